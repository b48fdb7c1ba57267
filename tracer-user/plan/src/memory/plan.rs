//! Probes beside instructions that access memory, in a plan: the functions that get them, and their sites.
//! Machine code is in `instructions`.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use abi::{ACCESS_GROUPS, AccessDescriptor, Cookie, Kind, ProbeProgram};
use iced_x86::{FlowControl, Mnemonic};
use symbolize::{ElfFile, LinkAddr, Module, ProcessAddr, Symbolizer};
use x86::{
    commuting::{commuting_update, is_last_owner_test},
    functions::{Function, Functions},
    instruction::{decode, decode_first},
    no_return::never_returns,
    placement::{Cost, PlaceRules},
    restartable::restartable_sequences,
};

use super::{
    instructions::{self, AccessOptions, AccessProbe, AccessProbes, Coverage, PlannedAccess},
    library_calls::LibraryCalls,
    site::{AccessGroup, AccessPlace, MemorySite},
};
use crate::{
    go_code,
    origin::Origins,
    own_modules::OwnModules,
    plan::{
        Plan, Site, SiteKind, Wanted,
        builder::Planner,
        skipped::{ProbePurpose, SkipReason},
        step::PlanStep,
    },
    regions::{
        line_function::LineFunction, patterns::Pattern, site::RegionSite,
        test_frameworks::TestFrameworks,
    },
    selection::{Choice, SelectError, unmatched},
    sync::{function_roles::FunctionRole, library_code::LibraryCode, runtime_libraries},
};

/// Adds the probes of accesses in the modules of a step to a plan that has all others already.
pub(crate) fn add(plan: &mut Plan, step: PlanStep<'_>) {
    let PlanStep { symbolizer, pid, wanted: Wanted { accesses, regions_alone, .. }, .. } = step;
    if !accesses.level.probes_instructions() {
        return;
    }
    let own = OwnModules::of(symbolizer);
    let focus = plan.state.focus.clone();
    // The rest of the program's code.
    let has_more =
        plan.state.has_regions && accesses.level.samples() && focus.is_none() && !regions_alone;
    let choices: Vec<Choice<'_>> = step
        .modules()
        .filter_map(|module| {
            let file = module.file().ok()?;
            let is_program = own.is_program(module);
            let is_wanted = || {
                let about = |pattern: &Pattern| pattern.is_about(&module.name(), is_program);
                accesses.also.iter().any(about)
            };
            let is_own = || own.contains(module);
            let is_focused = || focus.as_ref().is_some_and(|focus| focus.is_about(&module.name()));
            let may_be_probed = has_more && is_own()
                || !roots(plan, module).is_empty()
                || !followed(plan, module).is_empty()
                || is_wanted()
                || is_focused();
            may_be_probed.then(|| Choice::new(module, file, is_program))
        })
        .collect();
    let mut wanted: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); choices.len()];
    tracing::debug!(
        has_more,
        modules = choices.len(),
        "choosing functions whose accesses are probed"
    );
    for (number, pattern) in (step.wanted.first_access_number()..).zip(&accesses.also) {
        let (mut matched, mut is_about, mut problem) = (false, false, None);
        for (choice, wanted) in choices.iter().zip(&mut wanted) {
            if pattern.is_about(&choice.module.name(), choice.is_program) {
                is_about = true;
                match named(choice, pattern, symbolizer) {
                    Ok(found) => {
                        matched |= !found.is_empty();
                        wanted.extend(found);
                    }
                    Err(error) => problem = Some(error),
                }
            }
        }
        if !matched && let Some(name) = inlined_away(pattern, &choices) {
            matched = true;
            let purpose = ProbePurpose::Accesses { function: name.to_owned() };
            plan.skip(purpose, SkipReason::AccessesInlined);
        }
        plan.note_match(number, matched, is_about, step.first, || {
            problem.unwrap_or_else(|| unmatched("--probe", pattern, &choices, symbolizer))
        });
    }
    let mut containers = BTreeSet::new();
    let origins = OnceCell::new();
    for (choice, wanted) in choices.iter().zip(wanted) {
        let Choice { module, file, functions, .. } = choice;
        let roots: BTreeSet<usize> =
            roots(plan, module).into_iter().filter_map(|root| functions.containing(root)).collect();
        let in_kernel = plan.state.place_rules == PlaceRules::Kernel;
        let deeper = if in_kernel { MAX_DEEPER_CODE } else { MAX_DEEPER_CODE * CHEAPER };
        let mut chosen =
            called(file, functions, roots.clone(), CalleeLimits { depth: accesses.depth, deeper });
        let named = wanted.clone();
        chosen.extend(wanted);
        if let Some(focus) = &focus {
            let name = module.name();
            for (index, function) in own_code(functions) {
                let short = &function.name.short;
                if focus.has_function(&name, short) && !is_runtime(function) {
                    chosen.insert(index);
                    plan.facts.focused_functions.insert((name.clone(), short.clone()));
                }
            }
        }
        // Their callees would be most of the program.
        chosen.extend(followed(plan, module).into_iter().filter_map(|at| functions.containing(at)));
        let all = match has_more && own.contains(module) {
            true => own_code_of(choice, symbolizer, in_kernel),
            false => None,
        };
        // That of regions first.
        let first = chosen.clone();
        let depth = if all.is_some() { Some(u32::MAX) } else { accesses.depth };
        chosen.extend(all.into_iter().flatten());
        let region_code = called(file, functions, roots, CalleeLimits { depth, deeper });
        plan.facts.uncovered.depth = accesses.depth.unwrap_or(DEPTH);
        let mut calls = LibraryCalls::of(file);
        plan.facts.uncovered.add_calls(symbolizer, choice, calls.imports(), &region_code, &chosen);
        let code = region_code.iter().filter_map(|&index| functions.get(index)?.parts(file));
        containers.extend(calls.containers(code.flatten()));
        let mut planner = Planner { plan, module, file, pid };
        tracing::debug!(
            module = module.name(),
            regions = first.len(),
            functions = chosen.len(),
            in_kernel,
            "probing accesses of functions"
        );
        let mut known = ExistingProbes::from_plan(planner.plan, module);
        // The user wants to see the accesses of named functions.
        let not_named = chosen.difference(&named).copied().collect();
        let origins = origins.get_or_init(|| Origins::of(symbolizer));
        known.libraries = LibraryCode::of(symbolizer, choice, &not_named, origins);
        let mut left = 0_u64;
        for index in first.iter().chain(chosen.difference(&first)).copied() {
            if accesses.level.samples() && planner.plan.probes.len() > MAX_PROBES {
                left += 1;
            } else if let Some(function) = functions.get(index) {
                let samples = accesses.level.samples();
                planner.access_probes(function, &known, &mut calls, true, samples);
            }
        }
        if left > 0 {
            let purpose = ProbePurpose::AccessesOfMany { count: left, module: module.name() };
            planner.skip(purpose, SkipReason::TooMany);
        }
    }
    add_containers(plan, step, &containers);
}

/// Adds probes of the functions with these symbols, in which a C++ library accesses containers of its callers.
fn add_containers(plan: &mut Plan, step: PlanStep<'_>, symbols: &BTreeSet<String>) {
    if symbols.is_empty() {
        return;
    }
    let has_containers = |module: &&Module| runtime_libraries::own(&module.name()).is_some();
    for module in step.modules().filter(has_containers) {
        let Ok(file) = module.file() else { continue };
        let named = symbols.iter().flat_map(|symbol| file.symbols_named(symbol));
        let found: Vec<Function> =
            named.filter_map(|symbol| Function::of_symbol(&symbol)).collect();
        if found.is_empty() {
            continue;
        }
        let mut planner = Planner { plan, module, file, pid: step.pid };
        let known = ExistingProbes::from_plan(planner.plan, module);
        let mut calls = LibraryCalls::of(file);
        for function in &found {
            let single_step = planner.is_single_stepped(function);
            planner.access_probes(function, &known, &mut calls, single_step, false);
        }
    }
}

/// The name of a function that is only there inlined, where that cannot be found.
fn inlined_away<'pattern>(
    pattern: &'pattern Pattern,
    choices: &[Choice<'_>],
) -> Option<&'pattern str> {
    let name = pattern.plain_name()?;
    let mut about =
        choices.iter().filter(|one| pattern.is_about(&one.module.name(), one.is_program));
    about.any(|choice| choice.file.inlines(name)).then_some(name)
}

/// Functions of a module, by number, without the compiler's start-up code.
fn own_code(functions: &Functions) -> impl Iterator<Item = (usize, &Function)> {
    (0..).zip(functions.iter()).filter(|(_, function)| !function.is_startup())
}

/// Returns whether a function of the program belongs to a runtime library that was linked in.
fn is_runtime(function: &Function) -> bool {
    runtime_libraries::is_own_function(&function.symbol)
}

/// The functions of a module that a pattern names, by number; of a line also those that its function was
/// inlined into.
fn named(
    choice: &Choice<'_>,
    pattern: &Pattern,
    symbolizer: &Symbolizer,
) -> Result<BTreeSet<usize>, SelectError> {
    let Choice { module, functions, .. } = choice;
    if let Some((file, line)) = pattern.line() {
        let found = LineFunction::find(module, functions, symbolizer, file, line);
        let (option, pattern) = ("--probe", pattern.to_string());
        let found =
            found.map_err(|error| SelectError { option, pattern, problem: error.into() })?;
        return Ok(found.holders(functions));
    }
    let own = own_code(functions)
        .filter(|(_, function)| pattern.matches(&function.symbol, &function.name))
        .map(|(index, _)| index);
    Ok(own.collect())
}

/// Maximum number of probes in a plan when more are added for accesses, unless the user asks for all: this
/// many are planned and attached within a second.
const MAX_PROBES: usize = 20_000;

/// Returns true if a program or library has so little code that all of it may be probed, not only the regions'. Probes
/// that are too costly while it runs are detached then.
pub(crate) fn is_small(functions: &Functions) -> bool {
    code_length(functions.iter()) <= MAX_SMALL_CODE
}

/// Number of bytes of code that are little: they are decoded in a tenth of a second, and have some ten thousand
/// accesses.
const MAX_SMALL_CODE: u64 = 1 << 18;

/// Factor by which probes in the process may cover more code: a hit costs a small part of the kernel's.
const CHEAPER: u64 = 4;

fn code_length<'functions>(functions: impl IntoIterator<Item = &'functions Function>) -> u64 {
    functions.into_iter().map(|function| function.end.0 - function.start.0).sum()
}

/// Returns the functions of a module, by number, if it has so little code that all of them may be probed. Code of a
/// runtime library or a test framework that was linked in is left out. Of the C library only debug information says
/// which that is: where there is more than the kernel's probes would be on, what has none is left out too.
fn own_code_of(
    choice: &Choice<'_>,
    symbolizer: &Symbolizer,
    in_kernel: bool,
) -> Option<Vec<usize>> {
    let Choice { module, file, functions, .. } = choice;
    let frameworks = TestFrameworks::of(functions);
    let go_code = go_code::of(file);
    let is_left_out = |function: &Function| {
        is_runtime(function)
            || frameworks.has(&function.name)
            || go_code.as_ref().is_some_and(|code| code.contains(&function.start))
    };
    let of_program = || own_code(functions).filter(|(_, function)| !is_left_out(function));
    let numbers = |own: &[(usize, &Function)]| own.iter().map(|&(index, _)| index).collect();
    if is_small(functions) {
        return Some(numbers(&of_program().collect::<Vec<_>>()));
    }
    if in_kernel {
        return None;
    }
    let most = MAX_SMALL_CODE * CHEAPER;
    if file.symbols_named(START_OF_C_LIBRARY).next().is_none() {
        let is_little = code_length(functions.iter()) <= most;
        return is_little.then(|| numbers(&of_program().collect::<Vec<_>>()));
    }
    let has_source = |function: &Function| {
        let place = module.process_address(function.start);
        let resolution = place.and_then(|place| symbolizer.resolve(place).ok());
        resolution.is_some_and(|found| found.frames.iter().any(|frame| frame.file.is_some()))
    };
    let own: Vec<_> = of_program().filter(|(_, function)| has_source(function)).collect();
    (code_length(own.iter().map(|&(_, function)| function)) <= most).then(|| numbers(&own))
}

/// Function of the C library by which each program starts: a program that has it is linked statically.
const START_OF_C_LIBRARY: &str = "__libc_start_main";

/// Returns the cost of a hit, in units of 100 nanoseconds.
const fn cost(cost: Cost) -> u8 {
    match cost {
        Cost::Displaced => 1,
        Cost::Emulated => 7,
        Cost::SingleStepped => 120,
    }
}

/// Way of placing the probes of a function.
#[derive(Clone, Copy)]
struct Placing {
    /// Number of the group.
    group: usize,
    /// Set if probes may be on instructions that the kernel executes as single steps.
    single_step: bool,
    /// Set if watchpoints move to accessed memory.
    samples: bool,
}

#[derive(Clone, Copy)]
struct AccessProbeSpec<'name> {
    program: ProbeProgram,
    at: u64,
    /// Set for an exchange that is a store in the source.
    stores: bool,
    group: usize,
    /// Cost of a hit, in units of 100 nanoseconds.
    cost: u8,
    function: &'name str,
}

/// Existing probes and locks of a module.
struct ExistingProbes {
    /// Places of probes: the order with another one at the same place is not defined.
    taken: HashSet<u64>,
    /// Instructions of inlined acquires and releases.
    locks: HashSet<ProcessAddr>,
    /// Code that synchronisation is made of, by its start: from where to where.
    inner: BTreeMap<ProcessAddr, ProcessAddr>,
    /// Code of libraries by which threads synchronise, also where it was inlined.
    libraries: LibraryCode,
    /// The accesses that had probes, by instruction, where they are planned again: no others get probes.
    earlier: Option<HashMap<ProcessAddr, AccessPlace>>,
}

impl ExistingProbes {
    fn from_plan(plan: &Plan, module: &Module) -> Self {
        let taken = plan.probes.iter().filter_map(|probe| module.link_address(probe.address));
        let lock = |site: &Site| site.kind.sync()?.lock_instruction();
        Self {
            taken: taken.map(|address| address.0).collect(),
            locks: plan.sites.iter().filter_map(lock).collect(),
            inner: inner(plan),
            libraries: LibraryCode::default(),
            earlier: None,
        }
    }
}

/// Code that synchronisation is made of. Of stretches that lie in one another the outer ones count.
fn inner(plan: &Plan) -> BTreeMap<ProcessAddr, ProcessAddr> {
    let mut stretches: Vec<(ProcessAddr, ProcessAddr)> = plan
        .sites
        .iter()
        .filter_map(|site| match site.kind {
            SiteKind::Inner { end } => Some((site.address, end)),
            _ => None,
        })
        .collect();
    stretches.sort_unstable();
    let mut inner: BTreeMap<ProcessAddr, ProcessAddr> = BTreeMap::new();
    for (start, end) in stretches {
        match inner.last_entry() {
            Some(mut last) if start <= *last.get() => {
                let end = end.max(*last.get());
                last.insert(end);
            }
            _ => {
                inner.insert(start, end);
            }
        }
    }
    inner
}

/// Places of a module in functions that are regions, or have regions in them. Of the regions around others in a focus,
/// the functions alone are probed that it names.
fn roots(plan: &Plan, module: &Module) -> Vec<LinkAddr> {
    let is_wanted =
        |region: &str| plan.state.focus.as_ref().is_none_or(|focus| focus.has_inner(region));
    places(plan, module, &|site| site.is_in_region(&is_wanted))
}

/// Places of a module in functions that are followed for cuts.
fn followed(plan: &Plan, module: &Module) -> Vec<LinkAddr> {
    places(plan, module, &RegionSite::is_in_followed)
}

fn places(plan: &Plan, module: &Module, is_wanted: &dyn Fn(&RegionSite) -> bool) -> Vec<LinkAddr> {
    plan.sites
        .iter()
        .filter(|site| site.kind.region().is_some_and(is_wanted))
        .filter_map(|site| module.link_address(site.address))
        .collect()
}

/// Depth of calls down to which all functions are probed by default.
const DEPTH: u32 = 2;

/// Number of bytes of code that are probed beyond that: unoptimized code of templates and generic functions has its
/// accesses in many small functions, and this much has a thousand.
const MAX_DEEPER_CODE: u64 = 1 << 15;

/// Limits of the callees that are probed.
#[derive(Clone, Copy)]
struct CalleeLimits {
    /// Depth of calls; `None` for [`DEPTH`] and as much as `deeper` allows.
    depth: Option<u32>,
    /// Number of bytes of code beyond [`DEPTH`].
    deeper: u64,
}

/// Returns these functions and their callees, `depth` calls deep; without a depth [`DEPTH`] calls, and as many more as
/// have so many bytes of code. Functions of a runtime library are left out, as they are where the library is a file of
/// its own.
fn called(
    file: &ElfFile,
    functions: &Functions,
    roots: BTreeSet<usize>,
    CalleeLimits { depth, deeper: mut left }: CalleeLimits,
) -> BTreeSet<usize> {
    let (mut all, mut latest) = (roots.clone(), roots);
    for level in 0..depth.unwrap_or(u32::MAX) {
        if latest.is_empty() {
            break;
        }
        let mut next = BTreeSet::new();
        for function in latest.iter().filter_map(|&index| functions.get(index)) {
            let callees = function.parts(file).map(|parts| instructions::callees(&parts));
            for callee in callees.unwrap_or_default() {
                next.extend(functions.starting_at(LinkAddr(callee)));
            }
        }
        let is_deeper = depth.is_none() && level >= DEPTH;
        next.retain(|&index| {
            let Some(function) = functions.get(index) else { return false };
            if is_runtime(function) || all.contains(&index) {
                return false;
            }
            if is_deeper {
                let Some(rest) = left.checked_sub(function.end.0 - function.start.0) else {
                    return false;
                };
                if never_returns(&function.symbol, &function.name.short) {
                    return false;
                }
                left = rest;
            }
            all.insert(index)
        });
        latest = next;
    }
    all
}

/// Returns the exchanges that are stores of a language's library, as debug information has them, by address.
fn stores(file: &ElfFile, points: &[AccessProbe]) -> HashSet<u64> {
    let is_exchange = |&at: &u64| {
        let code = file.bytes_at(LinkAddr(at), 15).unwrap_or_default();
        decode_first(code, at).mnemonic() == Mnemonic::Xchg
    };
    let planned = points.iter().flat_map(|point| &point.accesses);
    let mut exchanges: Vec<LinkAddr> =
        planned.map(|one| one.instruction).filter(is_exchange).map(LinkAddr).collect();
    if exchanges.is_empty() {
        return HashSet::new();
    }
    exchanges.sort_unstable();
    let mut inlined = file.inlined_calls_around(&exchanges);
    inlined.retain(|call| FunctionRole::of(&call.symbol).is_atomic_store);
    let is_store = |at: &LinkAddr| inlined.iter().any(|call| call.contains(*at));
    exchanges.into_iter().filter(is_store).map(|at| at.0).collect()
}

impl Planner<'_, '_> {
    /// Adds the probes of a function, also on instructions that the kernel executes as single steps if `single_step`;
    /// and what it accesses that a watchpoint may be moved to, where one moves (`samples`).
    fn access_probes(
        &mut self,
        function: &Function,
        known: &ExistingProbes,
        calls: &mut LibraryCalls<'_>,
        single_step: bool,
        samples: bool,
    ) {
        let group = self.plan.access_groups.len();
        let placing = Placing { group, single_step, samples };
        if let Some(coverage) = self.place_accesses(function, known, calls, placing) {
            let name = function.name.short.clone();
            self.plan.access_groups.push(AccessGroup { function: name, coverage });
        }
    }

    /// Plans the accesses of a function again, as it has other probes now. The properties of an access stay the same.
    pub(crate) fn replan_accesses(&mut self, function: &Function) {
        let Some(parts) = function.parts(self.file) else { return };
        let is_inside = |at: LinkAddr| parts.iter().any(|part| part.contains(at.0));
        let mut earlier = HashMap::new();
        let (plan, module) = (&mut *self.plan, self.module);
        plan.probes.retain(|probe| {
            let number = Cookie(probe.point.cookie).site().number() as usize;
            let is_here = module.link_address(probe.address).is_some_and(is_inside);
            let Some(site) = plan.sites.get_mut(number).filter(|_| is_here) else { return true };
            let SiteKind::Memory(MemorySite::Access(place)) = site.kind else { return true };
            earlier.insert(place.instruction, place);
            site.kind = SiteKind::Unwatched;
            false
        });
        let Some(group) = earlier.values().map(|place| place.group).min() else { return };
        let known = ExistingProbes {
            earlier: Some(earlier),
            ..ExistingProbes::from_plan(self.plan, self.module)
        };
        let single_step = self.is_single_stepped(function);
        let placing = Placing { group, single_step, samples: false };
        let mut calls = LibraryCalls::of(self.file);
        if let Some(coverage) = self.place_accesses(function, &known, &mut calls, placing) {
            self.plan.access_groups[group].coverage = coverage;
        }
    }

    /// Returns whether instructions of a function get probes that the kernel has to single-step. Strings of C++ are
    /// everywhere, and are seldom shared.
    fn is_single_stepped(&self, function: &Function) -> bool {
        self.plan.state.place_rules == PlaceRules::InProcess
            || runtime_libraries::own(&self.module.name()).is_none()
            || !runtime_libraries::is_string(&function.symbol)
    }

    /// Adds the probes of a function to a group. Returns the numbers of accesses; `None` for code without probes.
    fn place_accesses(
        &mut self,
        function: &Function,
        known: &ExistingProbes,
        calls: &mut LibraryCalls<'_>,
        Placing { group, single_step, samples }: Placing,
    ) -> Option<Coverage> {
        let name = function.name.short.clone();
        let parts = function.parts(self.file).filter(|_| !function.picked)?;
        let file = self.file;
        let word_at = |address| {
            let bytes = file.bytes_at(LinkAddr(address), 4)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let is_constant = |address| file.is_constant(LinkAddr(address));
        let is_restartable = |address| restartable_sequences(file).contains(LinkAddr(address));
        let options = AccessOptions {
            place_rules: self.plan.state.place_rules,
            single_step,
            word_at: &word_at,
            is_constant: &is_constant,
            is_restartable: &is_restartable,
        };
        let is_taken = |at| known.taken.contains(&at);
        let AccessProbes { mut points, mut coverage, globals } =
            instructions::access_probes(&parts, &is_taken, options);
        let has_no_place = |at| is_taken(at) || is_restartable(at);
        calls.add_probes(&parts, &has_no_place, &mut points, &mut coverage);
        for global in globals.into_iter().filter(|_| samples) {
            if let Some(address) = self.module.process_address(LinkAddr(global.address)) {
                self.plan.globals.push((address, global.size.into(), global.is_written));
            }
        }
        let stores = match &known.earlier {
            None => stores(file, &points),
            Some(earlier) => {
                let stores = earlier.values().filter(|place| place.stores);
                let linked = |place: &AccessPlace| self.module.link_address(place.instruction);
                stores.filter_map(linked).map(|at| at.0).collect()
            }
        };
        for point in points {
            // The breakpoint is expensive; a further access at the same point is cheap.
            let costs = std::iter::once(cost(point.cost)).chain(std::iter::repeat(2));
            // One program for all of a point: it emits them in their order.
            let is_large = point.accesses.iter().any(|planned| planned.descriptor.may_be_large());
            let program = if is_large { ProbeProgram::AccessLarge } else { ProbeProgram::Access };
            let code_at = |at| file.bytes_at(LinkAddr(at), 15);
            let is_test = |planned: &PlannedAccess| {
                let load = decode_first(
                    code_at(planned.instruction).unwrap_or_default(),
                    planned.instruction,
                );
                let function = parts.iter().flat_map(|part| decode(part.code, part.start));
                is_last_owner_test(&load, &code_at, function)
            };
            let accesses = point.accesses.into_iter().filter(|planned| !is_test(planned));
            for (planned, cost) in accesses.zip(costs) {
                let stores = stores.contains(&planned.instruction);
                let probe =
                    AccessProbeSpec { program, at: point.at, stores, group, cost, function: &name };
                self.access_probe(probe, planned, known);
            }
        }
        Some(coverage)
    }

    fn access_probe(
        &mut self,
        probe: AccessProbeSpec<'_>,
        planned: PlannedAccess,
        known: &ExistingProbes,
    ) {
        let AccessProbeSpec { program, at, stores, group, cost, function } = probe;
        let PlannedAccess { instruction, mut descriptor, is_static, sees_value } = planned;
        let linked = instruction;
        let code = self.file.bytes_at(LinkAddr(instruction), 15).unwrap_or_default();
        let code_at = |at| self.file.bytes_at(LinkAddr(at), 15);
        let decoded = decode_first(code, instruction);
        let commuting = commuting_update(&decoded, &code_at);
        if at <= linked {
            descriptor.flags |= AccessDescriptor::AHEAD;
        }
        let is_call = decoded.flow_control() == FlowControl::Call;
        let returns_to = is_call.then(|| self.module.process_address(LinkAddr(decoded.next_ip())));
        if commuting.is_some() {
            descriptor.flags |= AccessDescriptor::COMMUTES;
        }
        let Some(instruction) = self.module.process_address(LinkAddr(instruction)) else { return };
        if is_static {
            let address = LinkAddr(descriptor.displacement.cast_unsigned());
            let Some(address) = self.module.process_address(address) else { return };
            descriptor.displacement = address.0.cast_signed();
        }
        let earlier = known.earlier.as_ref().map(|earlier| earlier.get(&instruction));
        if earlier.is_some_and(|place| place.is_none()) {
            return;
        }
        // The access is to the lock, which other probes report.
        let is_inner = || {
            let before = known.inner.range(..=instruction).next_back();
            before.is_some_and(|(_, &end)| instruction < end)
        };
        if known.locks.contains(&instruction) || is_inner() {
            let at = format_args!("{:#x}", instruction.0);
            tracing::trace!(function, at, "an access is a part of synchronisation");
            return;
        }
        // More groups than that share their costs.
        descriptor.group = (group % ACCESS_GROUPS as usize) as u16;
        descriptor.cost = cost;
        let returns_to = returns_to.flatten();
        let lock_code = self.plan.state.lock_code.get(&self.module.name());
        let polls = lock_code.is_some_and(|code| code.polls(linked));
        let earlier = earlier.flatten();
        let place = AccessPlace {
            instruction,
            returns_to,
            group,
            commuting,
            stores,
            polls: polls || earlier.is_some_and(|place| place.polls),
            is_library: earlier.is_some_and(|place| place.is_library)
                || known.libraries.contains(LinkAddr(linked))
                || lock_code.is_some_and(|code| code.is_part(LinkAddr(linked))),
            sees_value,
        };
        let site = self.add_site(instruction, MemorySite::Access(place));
        let purpose = ProbePurpose::Accesses { function: function.to_owned() };
        self.add_probe(program, LinkAddr(at), Cookie::new(Kind::Access, site), purpose);
        if let Some(probe) = self.plan.probes.last_mut()
            && probe.point.program == program
            && Cookie(probe.point.cookie).site().number() == site
        {
            probe.point.access = Some(descriptor);
            probe.has_address = is_static;
        }
    }
}
