//! Probes of the user's own locks, in a plan: those that `--lock` names, and those that are known by their code.

use std::{collections::HashMap, sync::Arc};

use abi::Kind;
use checker::format::ObjectKind;
use symbolize::LinkAddr;
use x86::functions::{Function, Functions};

use super::{
    functions::{CallSpec, Role},
    library_callers::LibraryCallers,
    lock_code::{LockCode, LockFunction, LockPlace, LockPoint},
    lock_rule::LockRule,
    site::{InlinedPlace, ObjectExtent, SyncSite},
    slow_paths::FastPath,
};
use crate::{
    own_modules::OwnModules,
    plan::{
        Plan, SiteKind,
        builder::Planner,
        skipped::{CallPart, ProbePurpose, SkipReason},
        step::PlanStep,
    },
    selection::{Choice, unmatched},
};

/// Name of the locks that the program makes itself.
const OWN: &str = "a lock of the program's own";

/// Adds the probes of locks that the program makes itself, in the program's own modules of a step.
fn add_by_code(plan: &mut Plan, step: PlanStep<'_>) {
    let PlanStep { symbolizer, pid, wanted, .. } = step;
    let own = OwnModules::of(symbolizer);
    let mut known: HashMap<String, LockCode> = HashMap::clone(&plan.state.lock_code);
    for module in step.modules().filter(|module| own.contains(module)) {
        let Ok(file) = module.file() else { continue };
        let functions = Functions::from_file(file);
        let code = LockCode::of(file, &functions, plan.state.place_rules);
        let (name, is_program) = (module.name(), own.is_program(module));
        let mut planner = Planner { plan, module, file, pid };
        for (start, lock) in code.functions() {
            let Some(function) = functions.starting_at(start).and_then(|own| functions.get(own))
            else {
                continue;
            };
            let here = Some((&*name, is_program));
            let is_named =
                |rule: &LockRule| rule.role_of(&function.symbol, &function.name, here).is_some();
            if lock.place != LockPlace::Pointee && !wanted.locks.iter().any(is_named) {
                planner.lock_function(function, lock);
            }
        }
        let guards = code.functions().filter(|(_, lock)| lock.place == LockPlace::Pointee);
        let guards = guards.map(|(start, _)| start.0).collect();
        let callers = LibraryCallers::with(file, &functions, guards);
        for point in code.points() {
            planner.lock_point(point, &callers);
        }
        known.insert(name, code);
    }
    plan.state.lock_code = Arc::new(known);
}

impl Planner<'_, '_> {
    /// Adds the probe of a lock that is acquired or released in line.
    fn lock_point(&mut self, point: &LockPoint, callers: &LibraryCallers<'_>) {
        let (fast, kind, action) = match point.acquires {
            true => (FastPath::Acquire, Kind::Acquire, "acquire"),
            false => (FastPath::Release, Kind::Release, "release"),
        };
        let Some(at) = self.module.process_address(point.at) else { return };
        let (object, role) = (ObjectKind::Lock, Role::ACQUIRE_ALWAYS);
        let spec = CallSpec { name: OWN, object, role, argument: 1 };
        let place = InlinedPlace { bytes: point.bytes, ..InlinedPlace::new(spec, kind, fast, at) };
        let module = self.module.name();
        let purpose = ProbePurpose::InlinedLock { action, lock: OWN, module };
        self.inlined_points(&place, &[point.point], &purpose, Some(callers));
    }

    /// Adds the probes of a function that acquires or releases a lock.
    fn lock_function(&mut self, function: &Function, lock: &LockFunction) {
        let purpose = ProbePurpose::Function {
            part: CallPart::Entry,
            function: function.name.short.clone(),
            of_user_lock: true,
            module: self.module.name(),
        };
        let (object, role) = (ObjectKind::Lock, lock.role);
        let spec = CallSpec { name: OWN, object, role, argument: 1 };
        if !self.call_named(spec, purpose, function.start, &[]) {
            return;
        }
        let fixed = match lock.place {
            LockPlace::Argument(_) | LockPlace::Pointee => None,
            LockPlace::Static(address) => self.module.process_address(LinkAddr(address)),
        };
        if let Some(site) = self.plan.sites.last_mut()
            && let SiteKind::Sync(SyncSite::Call { object, extent, .. }) = &mut site.kind
        {
            *object = fixed;
            *extent = Some(match lock.place {
                LockPlace::Argument(plus) => ObjectExtent { plus, bytes: lock.bytes },
                _ => ObjectExtent { plus: 0, bytes: lock.bytes },
            });
        }
        // What it waits for is no data, and is read often.
        if role.takes_lock() {
            self.inner([(function.start, function.end)]);
        }
    }
}

/// Adds the probes of the user's locks in the modules of a step. Records patterns without a match.
pub(crate) fn add(plan: &mut Plan, step: PlanStep<'_>) {
    add_by_code(plan, step);
    let PlanStep { symbolizer, pid, wanted, first, .. } = step;
    let rules = wanted.locks;
    if rules.is_empty() {
        return;
    }
    let program = symbolizer.executable();
    let choices: Vec<Choice<'_>> = step
        .modules()
        .filter_map(|module| {
            let is_program = program.is_some_and(|program| std::ptr::eq(program, module));
            let mut patterns = rules.iter().flat_map(|rule| &rule.functions);
            let about = patterns.any(|(pattern, _)| pattern.is_about(&module.name(), is_program));
            let file = module.file().ok().filter(|_| about)?;
            Some(Choice::new(module, file, is_program))
        })
        .collect();
    let mut number = wanted.first_lock_number();
    for rule in rules {
        for (pattern, role) in &rule.functions {
            let (mut matched, mut is_about) = (false, false);
            for choice in &choices {
                if !pattern.is_about(&choice.module.name(), choice.is_program) {
                    continue;
                }
                is_about = true;
                let Choice { module, file, functions, .. } = choice;
                let mut planner = Planner { plan, module, file, pid };
                for function in functions.iter().filter(|function| !function.is_startup()) {
                    if !pattern.matches(&function.symbol, &function.name) {
                        continue;
                    }
                    matched = true;
                    let (object, argument) = (ObjectKind::Lock, rule.argument);
                    let call = CallSpec { name: "--lock", object, role: *role, argument };
                    let purpose = ProbePurpose::Function {
                        part: CallPart::Entry,
                        function: function.name.short.clone(),
                        of_user_lock: true,
                        module: module.name(),
                    };
                    if has_other_parameters(&function.symbol) {
                        planner.skip(purpose, SkipReason::ParametersChanged);
                        continue;
                    }
                    tracing::debug!(function = function.name.short, ?role, "a function of --lock");
                    planner.call_named(call, purpose, function.start, &[]);
                }
            }
            plan.note_match(number, matched, is_about, first, || {
                unmatched("--lock", pattern, &choices, symbolizer)
            });
            number += 1;
        }
    }
}

/// Returns true if a symbol names a clone of a function without some of its parameters.
fn has_other_parameters(symbol: &str) -> bool {
    [".constprop", ".isra"].iter().any(|clone| symbol.contains(clone))
}
