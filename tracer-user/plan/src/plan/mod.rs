//! Plan of the probes of a process: markers and functions of every loaded module, each with its place, its cost
//! and its site number. `build` makes it from files and memory maps; back ends attach it.

mod build;
pub(super) mod builder;
pub mod own_code;
pub mod skipped;
pub(crate) mod step;
mod stored;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
    sync::Arc,
};

use abi::Cookie;
use checker::defect::RegionRole;
use serde::{Deserialize, Serialize};
use symbolize::ProcessAddr;
use x86::placement::{Cost, PlaceRules};

use self::{
    own_code::{OwnCode, RemappedCode},
    skipped::{ProbePurpose, SkipReason, SkippedProbe},
    step::BuilderState,
};
use super::{
    memory::{
        options::{Accesses, Level},
        site::{AccessGroup, MemorySite},
        uncovered::Uncovered,
    },
    regions::{
        markers::{Meaning, SharedVariable},
        patterns::Rule,
        site::{FunctionPlace, InlinedBegin, InlinedRegions, RegionSite},
    },
    selection::SelectError,
    sync::{lock_rule::LockRule, site::SyncSite},
};
use crate::{focus::Focus, perturbation::Delay, point::ProbePoint};

/// Meaning of the records of a site number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The place in the process.
    pub address: ProcessAddr,
    /// Kind of the site.
    pub kind: SiteKind,
}

impl Site {
    /// Notes that memory may be given out unseen.
    pub(crate) const fn misses_allocations(&mut self) {
        if let SiteKind::Memory(MemorySite::Allocator(site)) = &mut self.kind {
            site.is_complete = false;
        }
    }
}

/// Kind of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteKind {
    /// Site of a region.
    Region(RegionSite),
    /// Site of synchronisation.
    Sync(SyncSite),
    /// Site of memory.
    Memory(MemorySite),
    /// The start of code that uses locks internally: its calls are not reported.
    Ignored {
        /// The address after its last instruction.
        end: ProcessAddr,
    },
    /// The start of code of synchronisation or allocators: its accesses are not reported.
    Inner {
        /// The address after its last instruction.
        end: ProcessAddr,
    },
    /// A delay, which makes no record.
    Delay,
    /// The first instruction of a function that threads start with, where a delay may be. It has no probe.
    ThreadStart,
    /// The entry of a function whose exits could not all be probed, or unloaded code: its records are ignored.
    Unwatched,
}

impl SiteKind {
    /// Returns the part about a region.
    #[must_use]
    pub const fn region(&self) -> Option<&RegionSite> {
        match self {
            Self::Region(site) => Some(site),
            _ => None,
        }
    }

    /// Returns the part about synchronisation.
    #[must_use]
    pub const fn sync(&self) -> Option<&SyncSite> {
        match self {
            Self::Sync(site) => Some(site),
            _ => None,
        }
    }

    /// Returns the part about memory.
    #[must_use]
    pub const fn memory(&self) -> Option<&MemorySite> {
        match self {
            Self::Memory(site) => Some(site),
            _ => None,
        }
    }
}

impl From<RegionSite> for SiteKind {
    fn from(site: RegionSite) -> Self {
        Self::Region(site)
    }
}

impl From<SyncSite> for SiteKind {
    fn from(site: SyncSite) -> Self {
        Self::Sync(site)
    }
}

impl From<MemorySite> for SiteKind {
    fn from(site: MemorySite) -> Self {
        Self::Memory(site)
    }
}

/// A function that is a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedFunction {
    /// Name of the function and of the region.
    pub name: String,
    /// First instruction.
    pub address: ProcessAddr,
    /// Reason why the function is a region.
    pub why: String,
    /// Role of the function in the program.
    pub role: RegionRole,
}

/// A function that could be a region and is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwatchedFunction {
    /// Name.
    pub name: String,
    /// First instruction.
    pub address: ProcessAddr,
    /// Reason why the function is no region.
    pub why: String,
}

/// A probe to attach, and its cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedProbe {
    /// For the kernel.
    pub point: ProbePoint,
    /// Place in the process, where the breakpoint must appear.
    pub address: ProcessAddr,
    /// Set if the displacement of the accessed memory is an address in the process.
    pub has_address: bool,
    /// Cost of a hit.
    pub cost: Cost,
    /// Purpose.
    pub purpose: ProbePurpose,
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
    /// Set if only accesses of regions are to be seen, and of what they call: each other place costs some nanoseconds
    /// where its probes are switched off.
    pub regions_alone: bool,
    /// Set if the user names memory to watch.
    pub watches: bool,
    /// Decides about probes in the program's own code.
    pub own_code: OwnCode,
    /// Rules of the back end for the places of probes.
    pub place_rules: PlaceRules,
    /// Set if regions by default include functions that are seldom meant to be atomic: bodies of threads, and
    /// functions that wait.
    pub low_prior: bool,
    /// Delays at instructions.
    pub delays: &'options [Delay],
    /// Set if the functions that threads start with are to be known, whatever the rules are.
    pub thread_starts: bool,
    /// Regions and functions that a first pass has named: the plan is limited to them.
    pub focus: Option<&'options Arc<Focus>>,
}

impl Wanted<'_> {
    fn sees_memory(&self) -> bool {
        self.watches || self.accesses.level != Level::Sync
    }

    /// Number of the first `--lock` among the patterns that must match: rules come before, accesses after.
    pub(crate) const fn first_lock_number(&self) -> usize {
        self.rules.len()
    }

    pub(crate) fn first_access_number(&self) -> usize {
        let lock_functions: usize = self.locks.iter().map(|lock| lock.functions.len()).sum();
        self.first_lock_number() + lock_functions
    }
}

/// Probes of a process, and what their records mean.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Meaning of the site numbers: a site's number is its index.
    pub sites: Vec<Site>,
    /// Probes to attach.
    pub probes: Vec<PlannedProbe>,
    /// Variables that the program names as worth watching, at places known before it runs.
    pub shared: Vec<(ProcessAddr, SharedVariable)>,
    /// The functions that are regions; a function's number is its index.
    pub functions: Vec<WatchedFunction>,
    /// Groups of probes on instructions that access memory; a group's number is its index.
    pub access_groups: Vec<AccessGroup>,
    /// Global variables that the code of regions accesses: the address, the size of an access in bytes, and whether
    /// an access writes.
    pub globals: Vec<(ProcessAddr, u64, bool)>,
    /// Cost of one execution of each region whose probes may be detached, in nanoseconds, by the function's number.
    pub detachable: BTreeMap<u32, u64>,
    /// Sets of detachable regions, by number: probes that serve the same set form a group.
    pub region_groups: Vec<BTreeSet<u32>>,
    /// Facts for reports.
    pub facts: PlanFacts,
    pub(crate) state: BuilderState,
}

/// Facts about a plan, for reports: probes and regions that it leaves out, and reasons.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanFacts {
    /// Probes that cannot be attached.
    pub skipped: Vec<SkippedProbe>,
    /// Functions that could be regions and are not.
    pub unwatched: Vec<UnwatchedFunction>,
    /// Rules without a match so far, by their indices, and the reason.
    pub unmatched: Vec<(usize, SelectError)>,
    /// Code that regions call and whose accesses no probe sees.
    pub uncovered: Uncovered,
    /// Number of functions that are no regions because the limit was reached by more likely ones.
    pub unlikely: u64,
    /// File name of the stripped program whose functions are regions by default and take locks.
    pub stripped: Option<String>,
    /// File names of libraries that take locks and have no region by default.
    pub left_out: BTreeSet<String>,
    /// File names of modules with code of Go, which has no region by default.
    pub go_code: BTreeSet<String>,
    /// Regions that the focus leaves out.
    pub out_of_focus: BTreeSet<String>,
    /// Identifiers of the delays whose places were found.
    pub delays: BTreeSet<String>,
    /// Functions of the focus whose accesses are probed: module and name.
    pub focused_functions: BTreeSet<(String, String)>,
    /// Function that may map the program's own code anew, although that code gets probes.
    pub remapped_code: Option<RemappedCode>,
}

impl Plan {
    /// The names of the regions that markers begin, sorted.
    #[must_use]
    pub fn marked_regions(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .sites
            .iter()
            .filter_map(|site| match &site.kind {
                SiteKind::Region(RegionSite::Marker(Meaning::Begin(name))) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns true if memory accesses are seen, so that allocation and deallocation matter.
    #[must_use]
    pub const fn sees_memory(&self) -> bool {
        self.state.sees_memory
    }

    /// Returns the regions and functions that the plan is limited to.
    #[must_use]
    pub fn focus(&self) -> Option<&Focus> {
        self.state.focus.as_deref()
    }

    /// Returns whether a region is in the focus: without a focus, every region is.
    pub(crate) fn looks_at(&self, region: &str) -> bool {
        self.state.focus.as_ref().is_none_or(|focus| focus.has_region(region))
    }

    /// Returns whether markers begin regions, also outside the focus.
    pub(crate) fn has_markers(&self) -> bool {
        let is_begin = |site: &Site| {
            matches!(
                site.kind.region(),
                Some(
                    RegionSite::Marker(Meaning::Begin(_)) | RegionSite::Outside(Meaning::Begin(_))
                )
            )
        };
        self.sites.iter().any(is_begin)
    }

    /// Records whether the rule of this number matches anything in the modules of this step: all modules at
    /// `first`, later those that were loaded since. A later step changes the state only of rules that are about
    /// its modules.
    pub(crate) fn note_match(
        &mut self,
        number: usize,
        matched: bool,
        is_about: bool,
        first: bool,
        error: impl FnOnce() -> SelectError,
    ) {
        let was_unmatched = self.facts.unmatched.iter().any(|(other, _)| *other == number);
        if matched || first || (is_about && was_unmatched) {
            self.facts.unmatched.retain(|(other, _)| *other != number);
            if !matched {
                let error = error();
                tracing::debug!(number, %error, "a pattern matches nothing");
                self.facts.unmatched.push((number, error));
            }
        }
    }

    /// Returns true if any function that acquires a lock was found.
    #[must_use]
    pub fn has_locks(&self) -> bool {
        self.sites.iter().filter_map(|site| site.kind.sync()).any(SyncSite::acquires_lock)
    }

    /// Makes the records of sites in an unloaded library be ignored.
    pub fn unload(&mut self, range: &Range<ProcessAddr>) {
        for site in self.sites.iter_mut().filter(|site| range.contains(&site.address)) {
            site.kind = SiteKind::Unwatched;
        }
    }

    /// Marks these probes as failed. A function with a failed exit is no region any more, since a region
    /// without its end would be too long.
    pub fn without(&mut self, failed: impl IntoIterator<Item = usize>) {
        let mut blind = HashSet::new();
        let mut misses_allocations = false;
        for index in failed {
            let Some(probe) = self.probes.get(index) else { continue };
            tracing::debug!(purpose = %probe.purpose, "a probe failed");
            let site = self.sites.get(Cookie(probe.point.cookie).site().number() as usize);
            match site.and_then(|site| site.kind.region()) {
                Some(RegionSite::Function(FunctionPlace::Exit { function, .. })) => {
                    blind.insert(*function);
                }
                Some(RegionSite::Inlined(inlined)) => {
                    blind.extend(inlined.ends.iter().map(|(number, _)| number));
                }
                _ => {
                    let memory = site.and_then(|site| site.kind.memory());
                    misses_allocations |= matches!(memory, Some(MemorySite::Allocator(_)));
                }
            }
        }
        if misses_allocations {
            self.sites.iter_mut().for_each(Site::misses_allocations);
        }
        for site in &mut self.sites {
            match &mut site.kind {
                SiteKind::Region(RegionSite::Function(FunctionPlace::Exit { into, .. })) => {
                    *into = into.filter(|function| !blind.contains(function));
                }
                SiteKind::Region(RegionSite::Inlined(InlinedRegions { begins, .. })) => {
                    begins.retain(|InlinedBegin { function, name, .. }| {
                        if blind.contains(function) {
                            self.facts.skipped.push(SkippedProbe {
                                purpose: ProbePurpose::InlinedRegion {
                                    region: name.clone(),
                                    into: None,
                                },
                                reason: SkipReason::UnprobedEnds,
                            });
                        }
                        !blind.contains(function)
                    });
                }
                SiteKind::Region(RegionSite::Function(FunctionPlace::Entry {
                    function,
                    name,
                    ..
                })) if blind.contains(function) => {
                    self.facts.skipped.push(SkippedProbe {
                        purpose: ProbePurpose::Region { region: name.clone() },
                        reason: SkipReason::UnprobedExits,
                    });
                    site.kind = SiteKind::Unwatched;
                }
                _ => {}
            }
        }
    }
}
