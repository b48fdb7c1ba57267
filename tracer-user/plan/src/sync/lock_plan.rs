//! Probes of the user's own locks, in a plan.

use checker::format::ObjectKind;
use symbolize::Symbolizer;

use super::{functions::CallSpec, lock_rule::LockRule};
use crate::{
    plan::{
        Plan,
        builder::Planner,
        skipped::{CallPart, ProbePurpose, SkipReason},
    },
    selection::{Choice, unmatched},
};

/// Adds the probes of these locks in modules with these indices to a plan; `first` if these are all modules.
/// Records patterns without a match in the plan, numbered from `first_number` on.
pub(crate) fn add(
    plan: &mut Plan,
    symbolizer: &Symbolizer,
    pid: u32,
    rules: &[LockRule],
    which: &[usize],
    first_number: usize,
    first: bool,
) {
    if rules.is_empty() {
        return;
    }
    let program = symbolizer.executable();
    let choices: Vec<Choice<'_>> = which
        .iter()
        .filter_map(|&index| symbolizer.modules().nth(index))
        .filter_map(|module| {
            let is_program = program.is_some_and(|program| std::ptr::eq(program, module));
            let mut patterns = rules.iter().flat_map(|rule| &rule.functions);
            let about = patterns.any(|(pattern, _)| pattern.is_about(&module.name(), is_program));
            let file = module.file().ok().filter(|_| about)?;
            Some(Choice::new(module, file, is_program))
        })
        .collect();
    let mut number = first_number;
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

/// Returns true if a symbol is that of a clone of a function without some of its parameters.
fn has_other_parameters(symbol: &str) -> bool {
    [".constprop", ".isra"].iter().any(|clone| symbol.contains(clone))
}
