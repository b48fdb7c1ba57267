//! Plan of the probes: their places in the code, and the meaning of their records. Attaching is done by
//! `kernel`.

mod delays;
pub mod focus;
mod go_code;
pub mod memory;
pub mod origin;
pub mod own_modules;
pub mod perturbation;
pub mod plan;
pub mod point;
pub mod regions;
mod selection;
pub mod sync;

use std::sync::Arc;

use symbolize::{Module, Symbolizer};

pub use self::{
    plan::builder::file_for_kernel,
    selection::{SelectError, SelectProblem},
};
use self::{
    plan::{
        Plan, Site, Wanted,
        builder::Planner,
        own_code::{self, Decision},
        skipped::{ProbePurpose, SkipReason, SkippedProbe},
    },
    regions::site::RegionSite,
};

impl Plan {
    /// Plans the probes of a process from its modules.
    #[must_use]
    pub fn build(symbolizer: &Symbolizer, pid: u32, wanted: Wanted<'_>) -> Self {
        let mut plan = Self {
            sees_memory: wanted.sees_memory(),
            place_rules: wanted.place_rules,
            focus: wanted.focus.map(Arc::clone),
            ..Self::default()
        };
        let is_named = own_code::names_own(wanted.rules, wanted.locks, wanted.accesses);
        match own_code::decide(symbolizer, pid, wanted.own_code, is_named) {
            Decision::Probe => {}
            Decision::Risk(risk) => plan.remapped_code = Some(risk),
            Decision::Leave(reason) => {
                let program = symbolizer.executable().map(Module::name).unwrap_or_default();
                plan.skipped.push(SkippedProbe {
                    purpose: ProbePurpose::Module { module: program },
                    reason,
                });
                plan.leaves_program = true;
            }
        }
        let all = plan.modules(symbolizer);
        plan.add(symbolizer, pid, wanted, &all, true);
        if plan.leaves_program {
            // Patterns for functions of the program itself need not match: its functions were not searched.
            let is_own = |number: usize| {
                wanted.rules.get(number).is_some_and(|rule| rule.pattern.library().is_none())
            };
            plan.unmatched.retain(|(number, _)| !is_own(*number));
        }
        plan
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
        wanted: Wanted<'_>,
        which: &[usize],
        first: bool,
    ) {
        let Wanted { rules, locks, accesses, .. } = wanted;
        // Before those of accesses, which stay on their sides of these.
        delays::add(self, symbolizer, pid, wanted.delays, which);
        self.add_modules(symbolizer, pid, which);
        sync::lock_plan::add(self, symbolizer, pid, locks, which, rules.len(), first);
        regions::plan::add(self, symbolizer, pid, wanted, which, first);
        let lock_functions: usize = locks.iter().map(|lock| lock.functions.len()).sum();
        let first_number = rules.len() + lock_functions;
        memory::plan::add(self, symbolizer, pid, accesses, which, (first_number, first));
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
                    purpose: ProbePurpose::Module { module: module.name() },
                    reason: SkipReason::UnreadableFile { error: error.to_string() },
                }),
            }
        }
        let names_shared =
            |site: &Site| site.kind.region().and_then(RegionSite::shared_variable).is_some();
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
}
