//! Probes of the user's own locks, in a plan.

use checker::format::ObjectKind;

use super::functions::CallSpec;
use crate::{
    plan::{
        Plan,
        builder::Planner,
        skipped::{CallPart, ProbePurpose, SkipReason},
        step::PlanStep,
    },
    selection::{Choice, unmatched},
};

/// Adds the probes of the user's locks in the modules of a step. Records patterns without a match.
pub(crate) fn add(plan: &mut Plan, step: PlanStep<'_>) {
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
