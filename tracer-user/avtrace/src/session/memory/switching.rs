//! Control of probes in a process: groups of access probes are switched off and on, so that the overhead stays within
//! its bound. A program and the children that it has forked share the code of their probes, and so their switches and
//! their budget.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use abi::{ACCESS_GROUPS, PlanNumber, Record};
use nix::{
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

use super::{
    budget::{Budget, Change, OtherCosts, TracerCost},
    controller::{MemoryRecords, TICK, over_budget},
};
use capture::{backend::Backend, windows::worked};
use events::source::Source;
use plan::{
    memory::{
        options::{Accesses, Level},
        site::MemorySite,
    },
    plan::{Plan, Site, SiteKind},
};
use report::Limitation;

/// Control of what is captured of one process's accesses.
#[derive(Debug)]
pub(crate) struct SwitchController {
    common: Arc<Mutex<Common>>,
    plan: PlanNumber,
    /// Index of the process.
    process: usize,
    clock: ClockId,
    /// Processor time of the process when this began, in nanoseconds.
    began: u64,
    /// Number of groups that the process has in common with the program that it was forked from.
    groups: usize,
    /// Number of records of each group since the latest tick.
    records: Vec<u64>,
}

/// State of a program and the children that it has forked.
#[derive(Debug)]
struct Common {
    budget: Budget,
    /// Costs of groups so far, avtrace's own among them, in nanoseconds.
    costs: Vec<u64>,
    /// Work and costs of the processes, also of those that have ended.
    processes: Vec<Worked>,
    decided: Instant,
    /// Set once a group has been off.
    is_partial: bool,
}

/// Processor time of a process so far, in nanoseconds, and costs in it.
#[derive(Clone, Copy, Debug, Default)]
struct Worked {
    worked: u64,
    costs: OtherCosts,
}

impl SwitchController {
    /// Creates the controller of a program whose accesses are limited; `None` for others.
    pub(crate) fn new(accesses: &Accesses, pid: u32, plan: PlanNumber) -> Option<Self> {
        (accesses.level == Level::Auto).then_some(())?;
        let common = Common {
            budget: Budget::in_rotation(accesses.overhead),
            costs: Vec::new(),
            processes: Vec::new(),
            decided: Instant::now(),
            is_partial: false,
        };
        Self::over(Arc::new(Mutex::new(common)), pid, plan, ACCESS_GROUPS as usize)
    }

    /// Creates the controller of a child that was just forked, with the plan of its parent.
    pub(crate) fn of_child(&self, pid: u32, plan: PlanNumber, parent: &Plan) -> Option<Self> {
        let groups = parent.access_groups.len().min(self.groups);
        Self::over(Arc::clone(&self.common), pid, plan, groups)
    }

    fn over(common: Arc<Mutex<Common>>, pid: u32, plan: PlanNumber, groups: usize) -> Option<Self> {
        let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
        let began = worked(clock)?;
        let process = {
            let processes = &mut lock(&common).processes;
            processes.push(Worked::default());
            processes.len() - 1
        };
        Some(Self { common, plan, process, clock, began, groups, records: Vec::new() })
    }

    /// Returns whether a group has been off.
    pub(crate) fn is_partial(&self) -> bool {
        lock(&self.common).is_partial
    }

    /// Counts a record, if it is one of an access.
    #[inline]
    pub(crate) fn count(&mut self, record: &Record, sites: &[Site]) {
        let site = match record {
            Record::Access(access) => access.header.site,
            Record::Owned(owned) if owned.write.epoch != 0 => owned.write.site,
            Record::Owned(owned) => owned.read.site,
            _ => return,
        };
        let kind = sites.get(site.number() as usize).map(|site| &site.kind);
        let Some(MemorySite::Access(place)) = kind.and_then(SiteKind::memory) else { return };
        // Those that it has by itself are always on.
        let group = place.group % ACCESS_GROUPS as usize;
        if place.group < self.groups || self.groups == ACCESS_GROUPS as usize {
            if self.records.len() <= group {
                self.records.resize(group + 1, 0);
            }
            self.records[group] += 1;
        }
    }

    /// Switches off and on what is to be by now.
    pub(crate) fn tick(
        &mut self,
        backend: &Backend,
        source: &mut Source,
        records: MemoryRecords,
        tracer_cost: &TracerCost,
    ) {
        let mut common = lock(&self.common);
        // A process that has ended has no clock, and works no more.
        let now = worked(self.clock).map(|now| now.saturating_sub(self.began));
        let process = &mut common.processes[self.process];
        process.worked = now.unwrap_or(process.worked);
        process.costs = records.costs_inline(tracer_cost);
        common.add(&mem::take(&mut self.records), tracer_cost);
        // Once for all processes, by the first one of them that has not ended: they have the same switches.
        if common.decided.elapsed() >= TICK / 2
            && let Some(switches) = backend.access_switches(self.plan)
        {
            common.decided = Instant::now();
            let change = common.decide();
            common.is_partial |= !change.detach.is_empty();
            switches.switch(&change.detach, true);
            switches.switch(&change.attach, false);
            if change != Change::default() {
                tracing::debug!(off = ?change.detach, on = ?change.attach, "switched access probes");
            }
        }
        if common.is_partial {
            source.accesses_are_partial();
        }
    }

    /// Returns the limitation for groups that were off for a time.
    pub(crate) fn finish(&self, plan: &Plan) -> Option<Limitation> {
        over_budget(&lock(&self.common).budget, &plan.access_groups)
    }
}

impl Common {
    /// Adds the costs of records of groups.
    fn add(&mut self, records: &[u64], tracer_cost: &TracerCost) {
        if self.costs.len() < records.len() {
            self.costs.resize(records.len(), 0);
        }
        for (cost, &records) in self.costs.iter_mut().zip(records) {
            *cost += records * MemoryRecords::INLINE_COST_NS + tracer_cost.of_records(records);
        }
    }

    fn decide(&mut self) -> Change {
        let mut all = Worked::default();
        for Worked { worked, costs } in &self.processes {
            all.worked += worked;
            all.costs.in_target += costs.in_target;
            all.costs.in_tracer += costs.in_tracer;
        }
        self.budget.decide(all.worked, &self.costs, all.costs)
    }
}

fn lock(common: &Mutex<Common>) -> MutexGuard<'_, Common> {
    common.lock().unwrap_or_else(PoisonError::into_inner)
}
