//! Order in which a plan is built: from all modules of a process, and later from newly loaded ones.

use std::sync::Arc;

use symbolize::{Module, Symbolizer};

use super::{
    Plan, Site, UnwatchedFunction, Wanted,
    builder::Planner,
    own_code::{self, Decision},
    skipped::{ProbePurpose, SkipReason, SkippedProbe},
    step::{BuilderState, PlanStep},
};
use crate::{delays, interpreters, memory, regions, regions::site::RegionSite, sync};

impl Plan {
    /// Plans the probes of a process from its modules.
    ///
    /// Without the delays of `wanted` it is the same plan before [`delay`](Self::delay).
    #[must_use]
    pub fn build(symbolizer: &Symbolizer, pid: u32, wanted: Wanted<'_>) -> Self {
        let state = BuilderState {
            sees_memory: wanted.sees_memory(),
            place_rules: wanted.place_rules,
            focus: wanted.focus.map(Arc::clone),
            ..BuilderState::default()
        };
        let mut plan = Self { state, ..Self::default() };
        let is_named = own_code::names_own(wanted.rules, wanted.locks, wanted.accesses);
        let decision = own_code::decide(symbolizer, pid, wanted.own_code, is_named);
        tracing::debug!(pid, ?decision, is_named, "probes in the program's own code");
        match decision {
            Decision::Probe => {}
            Decision::Risk(risk) => plan.facts.remapped_code = Some(risk),
            Decision::Leave(reason) => {
                let program = symbolizer.executable().map(Module::name).unwrap_or_default();
                plan.skip(ProbePurpose::Module { module: program }, reason);
                plan.state.leaves_program = true;
            }
        }
        let all = plan.modules(symbolizer);
        plan.add(PlanStep { symbolizer, pid, wanted, which: &all, first: true });
        if plan.state.leaves_program {
            // Patterns for functions of the program itself need not match: its functions were not searched.
            let is_own = |number: usize| {
                wanted.rules.get(number).is_some_and(|rule| rule.pattern.library().is_none())
            };
            plan.facts.unmatched.retain(|(number, _)| !is_own(*number));
        }
        plan
    }

    /// Adds the delays to a plan that was made without, for the same modules.
    pub fn delay(&mut self, symbolizer: &Symbolizer, pid: u32, wanted: Wanted<'_>) {
        let all = self.modules(symbolizer);
        delays::add(self, PlanStep { symbolizer, pid, wanted, which: &all, first: true });
    }

    /// Adds the probes of modules that were loaded later, by their indices.
    pub fn extend(
        &mut self,
        symbolizer: &Symbolizer,
        pid: u32,
        wanted: Wanted<'_>,
        late: &[usize],
    ) {
        self.add(PlanStep { symbolizer, pid, wanted, which: late, first: false });
    }

    /// Returns the indices of all modules that may get probes.
    fn modules(&self, symbolizer: &Symbolizer) -> Vec<usize> {
        let program = symbolizer.executable();
        let is_left = |module: &Module| {
            self.state.leaves_program
                && (program.is_some_and(|program| std::ptr::eq(program, module))
                    || interpreters::language(module).is_some())
        };
        let modules = symbolizer.modules().enumerate();
        modules.filter(|(_, module)| !is_left(module)).map(|(index, _)| index).collect()
    }

    fn add(&mut self, step: PlanStep<'_>) {
        self.add_modules(step);
        sync::lock_plan::add(self, step);
        regions::plan::add(self, step);
        memory::plan::add(self, step);
        delays::add(self, step);
        tracing::info!(
            pid = step.pid,
            modules = step.which.len(),
            first = step.first,
            probes = self.probes.len(),
            sites = self.sites.len(),
            regions = self.functions.len(),
            skipped = self.facts.skipped.len(),
            "planned modules"
        );
    }

    fn add_modules(&mut self, step: PlanStep<'_>) {
        let PlanStep { symbolizer, pid, which, .. } = step;
        let saw_memory = self.state.sees_memory;
        for module in step.modules() {
            match module.file() {
                Ok(file) => {
                    let mut planner = Planner { plan: self, module, file, pid };
                    planner.restartable_sequences();
                    planner.markers();
                    planner.calls();
                    planner.inlined_locks();
                    planner.cpp_waits();
                }
                Err(error) => self.skip(
                    ProbePurpose::Module { module: module.name() },
                    SkipReason::UnreadableFile { error: error.to_string() },
                ),
            }
        }
        let names_shared =
            |site: &Site| site.kind.region().and_then(RegionSite::shared_variable).is_some();
        self.state.sees_memory |= !self.shared.is_empty() || self.sites.iter().any(names_shared);
        if !self.state.sees_memory {
            return;
        }
        // The first module to name a variable may be loaded later: then no module's allocators were probed before.
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

    /// Records a probe that cannot be placed.
    pub(crate) fn skip(&mut self, purpose: ProbePurpose, reason: impl Into<SkipReason>) {
        let reason = reason.into();
        tracing::debug!(%purpose, %reason, "skipped a probe");
        self.facts.skipped.push(SkippedProbe { purpose, reason });
    }

    /// Records a function that could be a region and is not.
    pub(crate) fn leave_unwatched(&mut self, function: UnwatchedFunction) {
        tracing::debug!(
            name = function.name,
            address = format_args!("{:#x}", function.address.0),
            why = function.why,
            "no region"
        );
        self.facts.unwatched.push(function);
    }
}
