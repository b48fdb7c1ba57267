//! Plan of the probes of a process: markers and functions of every loaded module, each with its place, its cost
//! and its site number. Reads files and memory maps; attaches nothing.

use std::collections::HashSet;

use tracer_ebpf::Cookie;

use super::{
    memory::{
        allocators::Allocator,
        instructions::Coverage,
        options::{Accesses, Level},
        uncovered::Uncovered,
    },
    own_code::OwnCode,
    regions::{
        markers::{Meaning, SharedVariable},
        non_local_exits::NonLocalExit,
        patterns::Rule,
    },
    selection::SelectError,
    sync::{functions::CallSpec, lock_rule::LockRule, slow_paths::FastPath},
};
use crate::{
    kernel::ProbePoint,
    symbolize::ProcessAddr,
    x86::{exits::Leaves, placement::Cost},
};

/// Meaning of the records of a site number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The place in the process.
    pub address: ProcessAddr,
    /// Kind of the site.
    pub kind: SiteKind,
}

/// Kind of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// A marker.
    Marker(Meaning),
    /// A function that synchronises.
    Call {
        /// Row of the table of functions.
        spec: CallSpec,
        /// The address after its last instruction; that of its first one where it is not known.
        end: ProcessAddr,
        /// The object, where the function does not get it as an argument.
        object: Option<ProcessAddr>,
    },
    /// A fast path of a lock that was inlined.
    Inlined(InlinedPlace),
    /// The start of code that uses locks for itself: what it calls does not count.
    Ignored {
        /// The address after its last instruction.
        end: ProcessAddr,
    },
    /// The start of code that synchronisation is made of: what it touches is no data.
    Inner {
        /// The address after its last instruction.
        end: ProcessAddr,
    },
    /// The entry or an exit of a function that is a region.
    Function(FunctionPlace),
    /// Begins and ends of functions that were inlined.
    InlinedRegions(InlinedRegions),
    /// Beside an instruction that touches memory.
    Touch(TouchPlace),
    /// A function by which control leaves frames without their returns.
    NonLocalExit(NonLocalExit),
    /// A function that gives memory out or takes it back.
    Allocator {
        /// Effect on memory.
        role: Allocator,
    },
    /// The entry of a function whose exits could not all be probed: its records count for nothing.
    Unwatched,
}

/// Place of the fast path of a lock that was inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlinedPlace {
    /// Whose lock it is.
    pub spec: CallSpec,
    /// Effect of the fast path.
    pub fast: FastPath,
    /// The instruction that does it.
    pub at: ProcessAddr,
    /// Number to add to the address of the recorded object.
    pub plus: u64,
    /// Set if the record counts only where `rax` is 1.
    pub if_one: bool,
}

/// An instruction that touches memory, and is seen from a probe nearby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchPlace {
    /// The instruction.
    pub instruction: ProcessAddr,
    /// The number of its group.
    pub group: usize,
}

/// The instructions of a function that are probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchGroup {
    /// The function's name.
    pub function: String,
    /// Accesses that are seen, and those that are not.
    pub coverage: Coverage,
}

/// A place in a function that is a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionPlace {
    /// Entry of the function.
    Entry {
        /// The function's number.
        function: u32,
        /// The region's name.
        name: String,
        /// Distance in bytes of the stack pointer below its value at the function's first instruction.
        lowered: u64,
    },
    /// Place where control may leave the function.
    Exit {
        /// The function's number.
        function: u32,
        /// Condition for leaving.
        leaves: Leaves,
    },
}

/// A place where functions end that were inlined, and then others begin: one may follow another at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlinedRegions {
    /// Numbers of the functions that have ended when control comes here.
    pub ends: Vec<u32>,
    /// Numbers of the functions that begin here, the outermost first, and the names of the regions.
    pub begins: Vec<(u32, String)>,
}

/// A function that is a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedFunction {
    /// Name of the function and of the region.
    pub name: String,
    /// First instruction.
    pub address: ProcessAddr,
    /// Reason why the function is a region.
    pub why: String,
}

/// A function that could be a region and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwatchedFunction {
    /// Name.
    pub name: String,
    /// First instruction.
    pub address: ProcessAddr,
    /// Reason why the function is no region.
    pub why: String,
}

/// A probe to attach, and what it costs.
#[derive(Clone, Debug)]
pub struct PlannedProbe {
    /// For the kernel.
    pub point: ProbePoint,
    /// Place in the process, where the breakpoint must appear.
    pub address: ProcessAddr,
    /// Cost of a hit.
    pub cost: Cost,
    /// Purpose, for people.
    pub what: String,
}

/// A probe that was wanted and cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedProbe {
    /// Purpose, for people.
    pub what: String,
    /// Reason why there is no probe.
    pub reason: String,
}

/// Input of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'options> {
    /// Rules for the functions that are regions.
    pub rules: &'options [Rule],
    /// Functions that acquire and release locks of the user's own.
    pub locks: &'options [LockRule],
    /// Requested coverage of memory accesses.
    pub accesses: &'options Accesses,
    /// Set if the user names memory to watch.
    pub watches: bool,
    /// Decides about probes in the program's own code.
    pub own_code: OwnCode,
}

impl Wanted<'_> {
    pub(in crate::probes) fn sees_memory(&self) -> bool {
        self.watches || self.accesses.level != Level::Sync
    }
}

/// All probes for a process.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Meaning of the site numbers: a site's number is its index.
    pub sites: Vec<Site>,
    /// Probes to attach.
    pub probes: Vec<PlannedProbe>,
    /// Probes that cannot be attached.
    pub skipped: Vec<SkippedProbe>,
    /// Variables that the program names as worth watching, at places known before it runs.
    pub shared: Vec<(ProcessAddr, SharedVariable)>,
    /// The functions that are regions; a function's number is its index.
    pub functions: Vec<WatchedFunction>,
    /// Groups of probes on instructions that touch memory; a group's number is its index.
    pub touch_groups: Vec<TouchGroup>,
    /// Global variables that the code of regions touches: the address, how many bytes at once, and whether they are
    /// written.
    pub globals: Vec<(ProcessAddr, u64, bool)>,
    /// Code that regions call and whose accesses no probe sees.
    pub uncovered: Uncovered,
    /// Functions that take locks and are no regions.
    pub unwatched: Vec<UnwatchedFunction>,
    /// No function of the program is a region by default because it was stripped: its file name.
    pub stripped: Option<String>,
    /// Rules that match nothing so far, by their indices, and why.
    pub unmatched: Vec<(usize, SelectError)>,
    /// Set if memory accesses are seen, so that allocation and deallocation matter.
    pub sees_memory: bool,
    /// Notes for the report.
    pub notes: Vec<String>,
    /// Set if the program's own code gets no probes.
    pub(in crate::probes) leaves_program: bool,
    /// Set if there are regions, so that non-local exits matter.
    pub(in crate::probes) has_regions: bool,
}

impl Plan {
    /// Returns the note about a program that was stripped.
    #[must_use]
    pub fn about_stripped(&self) -> Option<String> {
        let program = self.stripped.as_ref()?;
        Some(format!(
            "`{program}` was stripped, so that its functions are not known and none of them is a region: install its \
             debug symbols (Debian has them in packages that end in -dbgsym), build it with -g, or name functions of a \
             library (`--atomic 'LIB.so!NAME'`)"
        ))
    }

    /// The names of the regions that markers begin, sorted.
    #[must_use]
    pub fn marked_regions(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .sites
            .iter()
            .filter_map(|site| match &site.kind {
                SiteKind::Marker(Meaning::Begin(name)) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Records whether the rule of this number matches anything in the modules of this step: all modules at
    /// `first`, later those that were loaded since. A later step changes the state only of rules that are about
    /// its modules.
    pub(in crate::probes) fn note_match(
        &mut self,
        number: usize,
        matched: bool,
        is_about: bool,
        first: bool,
        error: impl FnOnce() -> SelectError,
    ) {
        let was_unmatched = self.unmatched.iter().any(|(other, _)| *other == number);
        if matched || first || (is_about && was_unmatched) {
            self.unmatched.retain(|(other, _)| *other != number);
            if !matched {
                self.unmatched.push((number, error()));
            }
        }
    }

    /// Returns true if any function that acquires a lock was found.
    #[must_use]
    pub fn has_locks(&self) -> bool {
        let takes = |site: &Site| match &site.kind {
            SiteKind::Call { spec, .. } => spec.role.takes_lock(),
            SiteKind::Inlined(place) => place.fast.acquires(),
            _ => false,
        };
        self.sites.iter().any(takes)
    }

    /// Marks these probes as failed. A function with a failed exit is no region any more, since a region
    /// without its end would be too long.
    pub fn without(&mut self, failed: impl IntoIterator<Item = usize>) {
        let mut blind = HashSet::new();
        for index in failed {
            let Some(probe) = self.probes.get(index) else { continue };
            let site = self.sites.get(Cookie(probe.point.cookie).site() as usize);
            match site.map(|site| &site.kind) {
                Some(SiteKind::Function(FunctionPlace::Exit { function, .. })) => {
                    blind.insert(*function);
                }
                Some(SiteKind::InlinedRegions(inlined)) => blind.extend(&inlined.ends),
                _ => {}
            }
        }
        for site in &mut self.sites {
            if let SiteKind::InlinedRegions(InlinedRegions { begins, .. }) = &mut site.kind {
                begins.retain(|(function, name)| {
                    if blind.contains(function) {
                        self.skipped.push(SkippedProbe {
                            what: format!("region `{name}`, inlined"),
                            reason: "not all of its ends could be probed".to_owned(),
                        });
                    }
                    !blind.contains(function)
                });
            }
            if let SiteKind::Function(FunctionPlace::Entry { function, name, .. }) = &site.kind
                && blind.contains(function)
            {
                self.skipped.push(SkippedProbe {
                    what: format!("region `{name}`"),
                    reason: "not all of its exits could be probed".to_owned(),
                });
                site.kind = SiteKind::Unwatched;
            }
        }
    }
}
