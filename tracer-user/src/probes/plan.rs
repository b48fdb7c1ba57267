//! Plan of the probes of a process: markers and functions of every loaded module, each with its place, its cost
//! and its site number. Reads files and memory maps; attaches nothing.

use std::{collections::HashSet, path::PathBuf};

use tracer_ebpf::{Cookie, Kind};

pub use super::regions::plan::SelectError;
use super::{
    memory::{
        self, allocator_code,
        allocators::{
            self, ALLOCATORS, Allocator, AllocatorPoint, CPP_ALLOCATORS, allocator_points,
            is_over_malloc,
        },
        instructions::Coverage,
        options::{Accesses, Level},
        uncovered::Uncovered,
    },
    own_code::{self, Decision, OwnCode},
    regions::{
        self,
        markers::{Marker, Meaning, Operand, SharedVariable, markers},
        non_local_exits::NonLocalExit,
        patterns::Rule,
    },
    sync::{
        call_points::{CallPoint, call_points},
        functions::{CALLS, CallSpec},
        lock_rule::{self, LockRule},
        slow_paths::FastPath,
    },
};
use crate::x86::{
    constants,
    exits::Leaves,
    functions::Functions,
    placement::{self, Cost, Refusal},
};
use crate::{
    kernel::{ProbePoint, ProbeProgram},
    symbolize::{ElfFile, LinkAddr, Module, ProcessAddr, Symbolizer},
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
    fn sees_memory(&self) -> bool {
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
    leaves_program: bool,
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
    pub(in crate::probes) fn tell_match(
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

    /// Plans the probes of a process from its modules.
    #[must_use]
    pub fn build(symbolizer: &Symbolizer, pid: u32, wanted: Wanted<'_>) -> Self {
        let mut plan = Self { sees_memory: wanted.sees_memory(), ..Self::default() };
        let is_named = own_code::names_own(wanted.rules, wanted.locks, wanted.accesses);
        match own_code::decide(symbolizer, pid, wanted.own_code, is_named) {
            Decision::Probe => {}
            Decision::Risk(note) => plan.notes.push(note),
            Decision::Leave(reason) => {
                let program = symbolizer.executable().map(Module::name).unwrap_or_default();
                plan.skipped
                    .push(SkippedProbe { what: format!("everything in {program}"), reason });
                plan.leaves_program = true;
            }
        }
        let all = plan.modules(symbolizer);
        plan.add(symbolizer, pid, wanted, &all, true);
        if plan.leaves_program {
            // What names functions of the program need not match: nobody has looked.
            let is_own = |number: usize| {
                wanted.rules.get(number).is_some_and(|rule| rule.pattern.library().is_none())
            };
            plan.unmatched.retain(|(number, _)| !is_own(*number));
        }
        plan
    }

    /// The indices of all modules that may get probes.
    fn modules(&self, symbolizer: &Symbolizer) -> Vec<usize> {
        let program = symbolizer.executable();
        let is_left = |module: &Module| {
            self.leaves_program && program.is_some_and(|program| std::ptr::eq(program, module))
        };
        let modules = symbolizer.modules().enumerate();
        modules.filter(|(_, module)| !is_left(module)).map(|(index, _)| index).collect()
    }

    fn add(
        &mut self,
        symbolizer: &Symbolizer,
        pid: u32,
        Wanted { rules, locks, accesses, .. }: Wanted<'_>,
        which: &[usize],
        first: bool,
    ) {
        self.add_modules(symbolizer, pid, which);
        lock_rule::add(self, symbolizer, pid, locks, which, rules.len(), first);
        regions::plan::add(self, symbolizer, pid, (rules, locks), which, first);
        let lock_functions: usize = locks.iter().map(|lock| lock.functions.len()).sum();
        let first_number = rules.len() + lock_functions;
        memory::plan::add(self, symbolizer, pid, accesses, which, (first_number, first));
    }

    /// Adds the probes of modules that were loaded later, by their indices.
    pub fn extend(
        &mut self,
        symbolizer: &Symbolizer,
        pid: u32,
        wanted: Wanted<'_>,
        late: &[usize],
    ) {
        self.add(symbolizer, pid, wanted, late, false);
    }

    fn add_modules(&mut self, symbolizer: &Symbolizer, pid: u32, which: &[usize]) {
        let saw_memory = self.sees_memory;
        for module in which.iter().filter_map(|&index| symbolizer.modules().nth(index)) {
            match module.file() {
                Ok(file) => {
                    let mut planner = Planner { plan: self, module, file, pid };
                    planner.restartable_sequences();
                    planner.markers();
                    planner.calls();
                    planner.inlined_locks();
                    planner.cpp_waits();
                }
                Err(error) => self.skipped.push(SkippedProbe {
                    what: format!("everything in {}", module.name()),
                    reason: error.to_string(),
                }),
            }
        }
        let names_shared = |site: &Site| matches!(site.kind, SiteKind::Marker(Meaning::Shared(_)));
        self.sees_memory |= !self.shared.is_empty() || self.sites.iter().any(names_shared);
        if !self.sees_memory {
            return;
        }
        // The first module to name a variable may be loaded later: then no module's allocators were probed
        // before.
        let all = self.modules(symbolizer);
        let program = symbolizer.executable();
        for &index in if saw_memory { which } else { &all } {
            let Some(module) = symbolizer.modules().nth(index).filter(|one| !one.is_gone()) else {
                continue;
            };
            if let Ok(file) = module.file() {
                let is_program = program.is_some_and(|program| std::ptr::eq(program, module));
                Planner { plan: self, module, file, pid }.allocators(is_program);
            }
        }
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

/// Adds one module's probes to a plan.
pub(in crate::probes) struct Planner<'plan, 'module> {
    pub(in crate::probes) plan: &'plan mut Plan,
    pub(in crate::probes) module: &'module Module,
    pub(in crate::probes) file: &'module ElfFile,
    pub(in crate::probes) pid: u32,
}

impl Planner<'_, '_> {
    fn markers(&mut self) {
        let (markers, misunderstood) = markers(self.file);
        if misunderstood > 0 {
            self.skip(
                format!("{misunderstood} markers in {}", self.module.name()),
                "their notes are malformed".to_owned(),
            );
        }
        let refused = |marker: &Marker| !matches!(self.cost_at(marker.address), Some(Ok(_)));
        let endless: Vec<Meaning> = markers
            .iter()
            .filter(|marker| marker.meaning.is_end() && refused(marker))
            .map(|marker| marker.meaning.clone())
            .collect();
        for marker in markers {
            if let Meaning::Begin(name) = &marker.meaning
                && endless.iter().any(|end| end.may_end(name))
            {
                let what = format!("begin of region `{name}`");
                self.skip(what, "not all of its ends can be probed".to_owned());
            } else {
                self.marker(marker);
            }
        }
    }

    /// Counts the restartable sequences of which it is not known where they are.
    fn restartable_sequences(&mut self) {
        let (found, module) = (self.file.restartable(), self.module.name());
        let (malformed, undescribed) = (found.malformed, found.undescribed);
        if malformed > 0 {
            let what = format!("descriptors of {malformed} restartable sequences in {module}");
            self.skip(what, "they are malformed: probes may be inside these sequences".to_owned());
        }
        if undescribed > 0 {
            let what = format!("functions around {undescribed} restartable sequences in {module}");
            let reason = "what is described while the program runs is not known: none of their code is probed, where it \
                          is known which functions they are";
            self.skip(what, reason.to_owned());
        }
    }

    fn marker(&mut self, marker: Marker) {
        let (program, kind, what) = match &marker.meaning {
            Meaning::Begin(name) => {
                (ProbeProgram::Region, Kind::Begin, format!("begin of region `{name}`"))
            }
            Meaning::End(name) => {
                (ProbeProgram::Region, Kind::End, format!("end of region `{name}`"))
            }
            Meaning::EndInnermost => {
                (ProbeProgram::Region, Kind::EndInnermost, "end of the innermost region".to_owned())
            }
            Meaning::Shared(variable) => {
                if let Some(address) = self.static_address(marker.address, variable) {
                    self.plan.shared.push((address, variable.clone()));
                    return;
                }
                let what = format!("shared variable `{}`", variable.label);
                if let Operand::Symbol { name, .. } = &variable.operand {
                    let reason = if name.starts_with("%fs:") {
                        "it is thread-local: each thread has its own".to_owned()
                    } else {
                        format!("{} has no symbol `{name}`", self.module.name())
                    };
                    self.skip(what, reason);
                    return;
                }
                (ProbeProgram::Shared, Kind::Shared, what)
            }
        };
        let Some(address) = self.module.process_address(marker.address) else { return };
        let site = self.add_site(address, SiteKind::Marker(marker.meaning));
        self.add_probe(program, marker.address, Cookie::new(kind, site), what);
    }

    /// The variable's address, when it is known before the program runs: by its symbol, or by a constant that the
    /// code loads before the marker.
    fn static_address(&self, marker: LinkAddr, variable: &SharedVariable) -> Option<ProcessAddr> {
        let address = match &variable.operand {
            Operand::Symbol { name, offset } => {
                let symbol = self.file.symbols_named(name).next()?;
                symbol.address.0.wrapping_add_signed(*offset)
            }
            Operand::Registers { displacement, base: Some(base), index: None } => {
                let extent = self.file.function_containing(marker)?;
                let length = usize::try_from(extent.end.0.checked_sub(extent.start.0)?).ok()?;
                let code = self.file.bytes_at(extent.start, length)?;
                constants::register_at(code, extent.start.0, marker.0, base)?
                    .wrapping_add_signed(*displacement)
            }
            Operand::Registers { .. } => return None,
        };
        self.module.process_address(LinkAddr(address))
    }

    fn calls(&mut self) {
        let file = self.file;
        let mut calls: Vec<(CallSpec, LinkAddr)> = Vec::new();
        for call in CALLS {
            // One function may have several names and versions: one set of probes is enough.
            for symbol in file.symbols_named(call.name) {
                let is_new = calls.iter().all(|(_, known)| *known != symbol.address);
                if symbol.kind.is_function() && is_new {
                    calls.push((*call, symbol.address));
                }
            }
        }
        for (call, start) in &calls {
            let others: Vec<LinkAddr> = calls
                .iter()
                .filter(|(other, _)| other.role == call.role)
                .map(|(_, address)| *address)
                .collect();
            self.call(*call, *start, &others);
        }
    }

    /// Adds the probes of a function that synchronises; returns whether there are any.
    pub(in crate::probes) fn call(
        &mut self,
        spec: CallSpec,
        start: LinkAddr,
        others: &[LinkAddr],
    ) -> bool {
        let what = format!("{} in {}", spec.name, self.module.name());
        self.call_named(spec, what, start, others)
    }

    /// Adds the probes of a function under this name; see [`call`](Self::call).
    pub(in crate::probes) fn call_named(
        &mut self,
        spec: CallSpec,
        what: String,
        start: LinkAddr,
        others: &[LinkAddr],
    ) -> bool {
        let points = match call_points(self.file, spec, start, others) {
            Ok(points) if points.is_empty() => return false,
            Ok(points) => points,
            Err(error) => {
                self.skip(what, error.to_string());
                return false;
            }
        };
        let Some(address) = self.module.process_address(start) else { return false };
        let end = self.file.function_containing(start).map_or(start, |extent| extent.end);
        let end = self.module.process_address(end).unwrap_or(address);
        let site = self.add_site(address, SiteKind::Call { spec, end, object: None });
        for CallPoint { program, address, kind, flags, depth } in points {
            // Functions that jump into one another share their ends: the entry determines which one returns.
            let shared = program == ProbeProgram::CallEnd && flags & Cookie::LEAF == 0;
            let known = |probe: &PlannedProbe| {
                probe.point.program == program
                    && Some(probe.address) == self.module.process_address(address)
            };
            if shared && self.plan.probes.iter().any(known) {
                continue;
            }
            let what = match program {
                ProbeProgram::CallEnd if flags & Cookie::INSIDE != 0 => {
                    format!("routine of {what}")
                }
                ProbeProgram::CallReturn | ProbeProgram::CallEnd => format!("return of {what}"),
                _ => what.clone(),
            };
            self.add_probe(
                program,
                address,
                Cookie::new(kind, site).with(flags).with_depth(depth),
                what,
            );
        }
        true
    }

    fn allocators(&mut self, is_program: bool) {
        let file = self.file;
        let over_malloc = is_over_malloc(&self.module.name());
        let mut known: Vec<LinkAddr> = Vec::new();
        for spec in ALLOCATORS.iter().chain(CPP_ALLOCATORS.iter().filter(|_| !over_malloc)) {
            for symbol in file.symbols_named(spec.name) {
                if symbol.kind.is_function() && !known.contains(&symbol.address) {
                    known.push(symbol.address);
                    self.allocator_at(spec.role, symbol.address, spec.name);
                }
            }
        }
        let functions = if is_program { Functions::from_file(file) } else { Functions::default() };
        // Rust's default is a thin layer over the C library's.
        let is_default =
            |symbol: &str| symbol.starts_with("_R") && symbol.ends_with("11___rdl_alloc");
        let has_default = functions.iter().any(|function| is_default(&function.symbol));
        for function in functions.iter() {
            if has_default && function.symbol.starts_with("_R") {
                continue;
            }
            if let Some(role) = allocators::of_program(&function.symbol, &function.name.short)
                && !known.contains(&function.start)
            {
                known.push(function.start);
                self.allocator_at(role, function.start, &function.name.short);
            }
        }
        self.code_of_allocators(is_program, &functions, &known);
    }

    /// Excludes the code of allocators: their locks and accesses are their own.
    fn code_of_allocators(&mut self, is_program: bool, functions: &Functions, known: &[LinkAddr]) {
        let file = self.file;
        let code: Vec<(LinkAddr, LinkAddr)> = if is_program {
            allocator_code::own_code(file, functions, known)
                .into_iter()
                .filter_map(|index| functions.get(index))
                .flat_map(|own| std::iter::once((own.start, own.end)).chain(own.cold.clone()))
                .collect()
        } else if allocator_code::is_allocator(file) {
            let segments = file.segments().iter().filter(|segment| segment.executable);
            segments.map(|of| (of.address, LinkAddr(of.address.0 + of.file_size))).collect()
        } else {
            Vec::new()
        };
        for &(start, end) in &code {
            if let (Some(start), Some(end)) =
                (self.module.process_address(start), self.module.process_address(end))
            {
                self.add_site(start, SiteKind::Ignored { end });
            }
        }
        self.inner(code);
    }

    fn allocator_at(&mut self, role: Allocator, start: LinkAddr, name: &str) {
        let what = format!("{name} in {}", self.module.name());
        match allocator_points(self.file, role, start) {
            Ok(points) => self.allocator(role, start, &what, points),
            Err(error) => self.skip(what, error.to_string()),
        }
    }

    fn allocator(
        &mut self,
        role: Allocator,
        start: LinkAddr,
        what: &str,
        points: Vec<AllocatorPoint>,
    ) {
        let Some(address) = self.module.process_address(start) else { return };
        let site = self.add_site(address, SiteKind::Allocator { role });
        for AllocatorPoint { program, address, kind, flags, depth } in points {
            // Functions that jump into one another share their ends.
            let known = |probe: &PlannedProbe| {
                probe.point.program == program
                    && Some(probe.address) == self.module.process_address(address)
            };
            if program == ProbeProgram::AllocEnd && self.plan.probes.iter().any(known) {
                continue;
            }
            let is_return = matches!(program, ProbeProgram::AllocReturn | ProbeProgram::AllocEnd);
            let what = if is_return { format!("return of {what}") } else { what.to_owned() };
            self.add_probe(
                program,
                address,
                Cookie::new(kind, site).with(flags).with_depth(depth),
                what,
            );
        }
    }

    pub(in crate::probes) fn add_site(&mut self, address: ProcessAddr, kind: SiteKind) -> u32 {
        self.plan.sites.push(Site { address, kind });
        (self.plan.sites.len() - 1) as u32
    }

    pub(in crate::probes) fn add_probe(
        &mut self,
        program: ProbeProgram,
        at: LinkAddr,
        cookie: Cookie,
        what: String,
    ) {
        let (Some(offset), Some(address), Some(cost)) =
            (self.file.file_offset(at), self.module.process_address(at), self.cost_at(at))
        else {
            self.skip(what, "its code is not in the file".to_owned());
            return;
        };
        let cost = match cost {
            Ok(cost) => cost,
            Err(refusal) => return self.skip(what, refusal.to_string()),
        };
        let file = file_for_kernel(self.pid, self.module);
        self.plan.probes.push(PlannedProbe {
            point: ProbePoint { program, file, offset: offset.0, cookie: cookie.0, touch: None },
            address,
            cost,
            what,
        });
    }

    /// Cost of a probe, or why there can be none; `None` where the file has no code.
    fn cost_at(&self, at: LinkAddr) -> Option<Result<Cost, Refusal>> {
        let code = self.file.bytes_at(at, 15)?;
        if self.file.restartable().contains(at) {
            return Some(Err(Refusal::Restartable));
        }
        Some(placement::cost_at(code))
    }

    pub(in crate::probes) fn skip(&mut self, what: String, reason: String) {
        self.plan.skipped.push(SkippedProbe { what, reason });
    }
}

/// A path by which the kernel finds the very file that a process has mapped, whatever its mount namespace.
#[must_use]
pub fn file_for_kernel(pid: u32, module: &Module) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/{pid}/root"));
    path.extend(module.path().components().filter(|component| {
        !matches!(component, std::path::Component::RootDir | std::path::Component::Prefix(_))
    }));
    path
}
