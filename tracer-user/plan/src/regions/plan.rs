//! Regions that are functions, in a plan: the functions that the rules or the default name, and the probes on their
//! entries and exits. Patterns are in `patterns`, the default in `defaults`, machine code in `x86`.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use abi::{Cookie, Kind, ProbeProgram};
use checker::defect::RegionRole;
use iced_x86::Register;
use symbolize::{ElfFile, LinkAddr, Module, ProcessAddr, Symbolizer};
use x86::{
    call_graph::Imports,
    exits::{self, Exit, Leaves},
    functions::{Function, Functions},
    placement::{Needs, Placement, Refusal},
    restartable::restartable_sequences,
};

use super::{
    default_plan, detachable,
    imported_roles::ImportedRoles,
    inlined_regions::RuleHere,
    known_names::{KnownLocks, OwnLocks},
    library_effects::roles_of_libraries,
    line_function::LineFunction,
    non_local_exits::{NON_LOCAL_EXITS, NonLocalExit},
    patterns::Rule,
    site::{FunctionPlace, RegionSite},
};
use crate::{
    own_modules::OwnModules,
    plan::{
        Plan, SiteKind, UnwatchedFunction, Wanted, WatchedFunction,
        builder::Planner,
        skipped::{ProbePurpose, SkipReason},
        step::PlanStep,
    },
    selection::{Choice, Chosen, SelectError, unmatched},
    sync::functions::{Role, calls_named},
};

/// Adds the regions that are functions to a plan that has the markers already, in the modules of a step.
pub(crate) fn add(plan: &mut Plan, step: PlanStep<'_>) {
    let PlanStep { symbolizer, pid, wanted, which, first } = step;
    let Wanted { rules, locks, low_prior, thread_starts, .. } = wanted;
    let had_regions = !first && plan.state.has_regions;
    let has_markers = plan.has_markers();
    if first {
        plan.state.by_default = !rules.iter().any(|rule| rule.atomic);
    }
    // Also the first library with markers may be loaded later.
    plan.state.by_default &= !has_markers;
    tracing::info!(
        by_default = plan.state.by_default,
        has_markers,
        rules = rules.len(),
        "choosing regions"
    );
    let own = OwnModules::of(symbolizer);
    let code = Arc::clone(&plan.state.lock_code);
    let mut choices: Vec<Choice<'_>> = Vec::new();
    for module in step.modules() {
        let is_program = own.is_program(module);
        let wanted = |rule: &Rule| rule.pattern.is_about(&module.name(), is_program);
        let is_own = plan.state.by_default && own.contains(module);
        let Ok(file) = module.file() else { continue };
        if is_own || rules.iter().any(wanted) {
            choices.push(Choice::new(module, file, is_program));
        } else if plan.state.by_default && OwnModules::may_be_named(module) && takes_locks(file) {
            tracing::debug!(
                module = module.name(),
                "a library that takes locks has no default regions"
            );
            plan.facts.left_out.insert(module.name());
        }
    }
    if plan.state.by_default {
        let imported = imported_roles(symbolizer, &own);
        let mut own: Vec<&mut Choice<'_>> =
            choices.iter_mut().filter(|choice| own.contains(choice.module)).collect();
        let known_locks = KnownLocks { rules: locks, imported: &imported, code: &code };
        default_plan::choose(&mut own, plan, symbolizer, known_locks, low_prior);
        for choice in own {
            if choice.is_program && choice.file.is_stripped() && takes_locks(choice.file) {
                tracing::info!(module = choice.module.name(), "the program is stripped");
                plan.facts.stripped = Some(choice.module.name());
            }
        }
    }
    if thread_starts && !plan.state.by_default {
        let imported = ImportedRoles::default();
        let known_locks = KnownLocks { rules: locks, imported: &imported, code: &code };
        for module in step.modules() {
            if own.contains(module)
                && let Ok(file) = module.file()
            {
                let choice = Choice::new(module, file, own.is_program(module));
                let found = choice.analyze(symbolizer, known_locks, false);
                choice.note_thread_starts(plan, &found);
            }
        }
    }
    let mut matched = vec![false; rules.len()];
    let mut problems: Vec<Option<SelectError>> = vec![None; rules.len()];
    for (index, rule) in rules.iter().enumerate() {
        for choice in &mut choices {
            if choice.is_named_by(rule) {
                match choice.apply(index, rule, plan, symbolizer) {
                    Ok(found) => matched[index] |= found,
                    Err(problem) => problems[index] = Some(problem),
                }
            }
        }
    }
    let has_atomic = rules.iter().any(|rule| rule.atomic);
    for choice in &mut choices {
        if !has_atomic && choice.inlined.is_empty() {
            continue;
        }
        let about: Vec<RuleHere<'_>> = (0..)
            .zip(rules)
            .filter(|(_, rule)| choice.is_named_by(rule))
            .map(|(number, rule)| RuleHere { number, rule, line: choice.lines.get(&number) })
            .collect();
        let mut planner = Planner { plan, module: choice.module, file: choice.file, pid };
        if has_atomic {
            for number in planner.inlined_regions(&about, &choice.functions) {
                matched[number] = true;
            }
        }
        let instead = planner.inlined_defaults(&choice.inlined, &about, &choice.functions);
        for (index, chosen) in instead {
            choice.chosen.entry(index).or_insert(chosen);
        }
    }
    for (index, (rule, problem)) in rules.iter().zip(problems).enumerate() {
        let matched = matched[index] || inlined_away(rule, &choices, plan);
        let is_about = choices.iter().any(|choice| choice.is_named_by(rule));
        plan.note_match(index, matched, is_about, first, || {
            problem.unwrap_or_else(|| unmatched(rule.option(), &rule.pattern, &choices, symbolizer))
        });
    }
    let no_imported = ImportedRoles::default();
    for choice in &choices {
        let imports = Imports::from_file(choice.file);
        let name = choice.module.name();
        let own_locks = choice
            .own_locks(&name, KnownLocks { rules: locks, imported: &no_imported, code: &code });
        let releases = |target: u64| {
            let target = LinkAddr(target);
            let own =
                choice.functions.starting_at(target).and_then(|own| choice.functions.get(own));
            let import = imports.behind(choice.file, target);
            let symbol = match own {
                Some(own) => Some(own.symbol.as_str()),
                None => import.as_deref().map(|import| import.symbol.as_str()),
            };
            let of_users = match own {
                Some(own) => own_locks.role(own),
                None => import.as_deref().and_then(|import| own_locks.role_of_import(import)),
            };
            let known = |symbol: &str| calls_named(symbol).any(|call| call.role.releases());
            of_users.is_some_and(Role::releases) || symbol.is_some_and(known)
        };
        let mut planner = Planner { plan, module: choice.module, file: choice.file, pid };
        let mut jumps = Vec::new();
        for (&index, chosen) in &choice.chosen {
            if let Some(function) = choice.functions.get(index) {
                planner.function(function, chosen, &releases, &mut jumps);
            }
        }
        planner.tail_calls(jumps);
    }
    detachable::mark(plan);
    plan.state.has_regions = has_markers || !plan.functions.is_empty();
    if plan.state.has_regions {
        for (index, module) in symbolizer.modules().enumerate() {
            // If these are the first regions, modules that were planned before lack these probes.
            let is_due = if had_regions { which.contains(&index) } else { !module.is_gone() };
            let Ok(file) = module.file() else { continue };
            if is_due {
                Planner { plan, module, file, pid }.non_local_exits();
            }
        }
    }
}

impl Choice<'_> {
    fn is_named_by(&self, rule: &Rule) -> bool {
        rule.pattern.is_about(&self.module.name(), self.is_program)
    }

    pub(super) fn own_locks<'rules>(
        &self,
        module: &'rules str,
        known: KnownLocks<'rules>,
    ) -> OwnLocks<'rules> {
        OwnLocks { known, module, is_program: self.is_program }
    }

    /// Applies the rule of this number to the module's functions; returns whether it matches any.
    fn apply(
        &mut self,
        number: usize,
        rule: &Rule,
        plan: &mut Plan,
        symbolizer: &Symbolizer,
    ) -> Result<bool, SelectError> {
        let matching: Vec<usize> = match rule.pattern.line() {
            Some((file, line)) => {
                let found =
                    LineFunction::find(self.module, &self.functions, symbolizer, file, line)
                        .map_err(|error| SelectError {
                            option: rule.option(),
                            pattern: rule.pattern.to_string(),
                            problem: error.into(),
                        })?;
                let own = found.own.iter().copied().collect();
                self.lines.insert(number, found);
                own
            }
            None => (0..)
                .zip(self.functions.iter())
                .filter(|(_, own)| !own.is_startup())
                .filter(|(_, own)| rule.pattern.matches(&own.symbol, &own.name))
                .map(|(index, _)| index)
                .collect(),
        };
        for &index in &matching {
            let Some(own) = self.functions.get(index) else { continue };
            let why = format!("{} {}", rule.option(), rule.pattern);
            if rule.atomic {
                self.chosen.insert(index, Chosen { why, role: RegionRole::Named, followed: false });
            } else if self.chosen.remove(&index).is_some()
                && let Some(address) = self.module.process_address(own.start)
            {
                let name = own.name.short.clone();
                plan.leave_unwatched(UnwatchedFunction { name, address, why });
            }
        }
        Ok(!matching.is_empty())
    }
}

/// Finds the roles of the functions that the program's own libraries export, including libraries of earlier steps.
fn imported_roles(symbolizer: &Symbolizer, own: &OwnModules) -> ImportedRoles {
    let is_library = |module: &&Module| !own.is_program(module) && own.contains(module);
    let libraries: Vec<(&ElfFile, Functions)> = symbolizer
        .modules()
        .filter(|module| !module.is_gone())
        .filter(is_library)
        .filter_map(|module| module.file().ok())
        .map(|file| (&**file, Functions::from_file(file)))
        .collect();
    roles_of_libraries(libraries.iter().map(|(file, functions)| (*file, functions)))
}

/// Returns true if a file imports functions that take locks.
fn takes_locks(file: &ElfFile) -> bool {
    let takes = |symbol: &str| calls_named(symbol).any(|call| call.role.takes_lock());
    Imports::from_file(file).imports().any(|(_, import)| takes(&import.symbol))
}

/// Returns true if a function of this name exists only inlined, and adds that to the report.
fn inlined_away(rule: &Rule, choices: &[Choice<'_>], plan: &mut Plan) -> bool {
    let Some(name) = rule.pattern.plain_name() else { return false };
    let about =
        |choice: &&Choice<'_>| rule.pattern.is_about(&choice.module.name(), choice.is_program);
    let inlined = choices.iter().filter(about).any(|choice| choice.file.inlines(name));
    if inlined && rule.atomic {
        let purpose = ProbePurpose::Region { region: name.to_owned() };
        plan.skip(purpose, SkipReason::RegionInlined);
    }
    inlined
}

impl Planner<'_, '_> {
    /// Adds the probes of a function that is a region; without a place for each of them it adds no probe.
    /// Notes in `jumps` the sites of exits that jump elsewhere, and where to.
    fn function(
        &mut self,
        function: &Function,
        chosen: &Chosen,
        releases: &dyn Fn(u64) -> bool,
        jumps: &mut Vec<(u32, u64)>,
    ) {
        let role = chosen.role;
        let name = function.name.short.clone();
        let purpose = ProbePurpose::Region { region: name.clone() };
        let (placement, exits) = match self.places(function) {
            Ok(places) => places,
            Err(reason) => return self.skip(purpose, reason),
        };
        let Some(address) = self.module.process_address(function.start) else {
            return self.skip(purpose, SkipReason::NotInFile);
        };
        if self.leaves_out(&name, address, chosen.followed) {
            return;
        }
        tracing::debug!(
            name,
            address = format_args!("{:#x}", address.0),
            why = chosen.why,
            ?role,
            followed = chosen.followed,
            exits = exits.len(),
            "a region"
        );
        let number = self.plan.functions.len() as u32;
        self.plan.functions.push(WatchedFunction {
            name: name.clone(),
            address,
            why: chosen.why.clone(),
            role,
        });
        let entry = FunctionPlace::Entry {
            function: number,
            name: name.clone(),
            role,
            followed: chosen.followed,
            lowered: placement.depth.into(),
        };
        let site = self.add_site(address, RegionSite::Function(entry));
        let at = LinkAddr(function.start.0 + placement.offset);
        self.add_probe(
            ProbeProgram::Region,
            at,
            Cookie::new(Kind::Begin, site),
            ProbePurpose::RegionBegin { region: name.clone() },
        );
        for Exit { address, leaves, target } in exits {
            let leaves = match leaves {
                Leaves::Always if target.is_some_and(releases) => Leaves::IntoRelease,
                other => other,
            };
            let at = LinkAddr(address);
            let Some(place) = self.module.process_address(at) else { continue };
            let exit = FunctionPlace::Exit { function: number, leaves, into: None };
            let site = self.add_site(place, RegionSite::Function(exit));
            jumps.extend(target.map(|target| (site, target)));
            let purpose = ProbePurpose::RegionEnd { region: name.clone() };
            self.add_probe(ProbeProgram::Region, at, Cookie::new(Kind::End, site), purpose);
        }
    }

    /// Connects exits that jump to the start of another region with that region: its steps belong to both.
    fn tail_calls(&mut self, jumps: Vec<(u32, u64)>) {
        let entries: HashMap<ProcessAddr, u32> = self
            .plan
            .sites
            .iter()
            .filter_map(|site| match site.kind.region()? {
                RegionSite::Function(FunctionPlace::Entry { function, .. }) => {
                    Some((site.address, *function))
                }
                _ => None,
            })
            .collect();
        for (site, target) in jumps {
            let target = self.module.process_address(LinkAddr(target));
            let callee = target.and_then(|target| entries.get(&target)).copied();
            if let Some(site) = self.plan.sites.get_mut(site as usize)
                && let SiteKind::Region(RegionSite::Function(FunctionPlace::Exit {
                    function,
                    into,
                    ..
                })) = &mut site.kind
            {
                *into = callee.filter(|callee| callee != function);
            }
        }
    }

    /// Finds the places of a function's probes, or the reason why a place is missing.
    fn places(&self, function: &Function) -> Result<(Placement, Vec<Exit>), SkipReason> {
        if function.picked {
            return Err(SkipReason::Picked);
        }
        let parts = function.parts(self.file).ok_or(SkipReason::NotInFile)?;
        let mut exits = exits::exits(&parts, function.start.0)?;
        // The abort handlers of restartable sequences are elsewhere, and jump back.
        let code_at = |at| self.file.bytes_at(LinkAddr(at), 15);
        exits.retain(|exit| !exit.comes_back(&parts, function.start.0, &code_at));
        let rules = self.plan.state.place_rules;
        for exit in &exits {
            let address = exit.address;
            let refused = rules.cost_at(code_at(address).unwrap_or_default());
            refused.map_err(|refusal| SkipReason::RefusedExit { address, refusal })?;
        }
        let code = parts.first().map_or(&[][..], |part| part.code);
        let is_exit =
            |offset: u64| exits.iter().any(|exit| exit.address == function.start.0 + offset);
        let is_restartable = |at: u64| restartable_sequences(self.file).contains(LinkAddr(at));
        if let Some(exit) = exits.iter().find(|exit| is_restartable(exit.address)) {
            let (address, refusal) = (exit.address, Refusal::Restartable);
            return Err(SkipReason::RefusedExit { address, refusal });
        }
        let mut placement = rules.frame_entry(code);
        // The order of two probes in one place is not defined.
        if is_exit(placement.offset) || is_restartable(function.start.0 + placement.offset) {
            placement = rules.start(code);
        }
        if is_exit(placement.offset) {
            return Err(SkipReason::LeftAtOnce);
        }
        if is_restartable(function.start.0 + placement.offset) {
            return Err(Refusal::Restartable.into());
        }
        rules.cost_at(code.get(placement.offset as usize..).unwrap_or_default())?;
        Ok((placement, exits))
    }

    /// Adds the probes of the functions that leave frames without their returns.
    fn non_local_exits(&mut self) {
        let rules = self.plan.state.place_rules;
        for &(name, exit) in NON_LOCAL_EXITS {
            let file = self.file;
            let addresses: HashSet<LinkAddr> = file
                .symbols_named(name)
                .filter(|symbol| symbol.kind.is_function())
                .map(|symbol| symbol.address)
                .collect();
            for start in addresses {
                /// An entry is no longer, in bytes.
                const MAX_ENTRY_LENGTH: usize = 256;
                let purpose = ProbePurpose::call(name, self.module.name());
                let (Some(code), Some(place)) =
                    (file.bytes_at(start, MAX_ENTRY_LENGTH), self.module.process_address(start))
                else {
                    self.skip(purpose, SkipReason::NotInFile);
                    continue;
                };
                let placement = match exit {
                    NonLocalExit::Jump => {
                        let needs = Needs { arguments: &[Register::RDI], stack: true };
                        rules.entry(code, needs).unwrap_or_else(|| rules.frame_entry(code))
                    }
                    _ => rules.frame_entry(code),
                };
                let exit = match exit {
                    NonLocalExit::Catch { .. } => {
                        NonLocalExit::Catch { lowered: placement.depth.into() }
                    }
                    other => other,
                };
                let known = self.plan.sites.iter().any(|site| {
                    site.address == place
                        && matches!(site.kind.region(), Some(RegionSite::NonLocalExit(_)))
                });
                // `longjmp` has several names.
                if known {
                    continue;
                }
                let site = self.add_site(place, RegionSite::NonLocalExit(exit));
                let at = LinkAddr(start.0 + placement.offset);
                let (program, kind) = match exit {
                    NonLocalExit::Jump => (ProbeProgram::Jump, Kind::Jump),
                    _ => (ProbeProgram::Region, Kind::EndInnermost),
                };
                self.add_probe(program, at, Cookie::new(kind, site), purpose);
            }
        }
    }
}
