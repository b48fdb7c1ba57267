//! Control of the capture of memory accesses while a program runs: attaches and detaches groups of probes and moves
//! watchpoints, so that the overhead stays within its bound.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use abi::{Kind, PlanNumber, Record};
use nix::{
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

use super::{
    budget::{Budget, Change, OtherCosts, TracerCost},
    hot_regions::HotRegions,
    sampler::{Sampler, Share},
};
use capture::{
    kernel::{Kernel, KernelError, PendingDetach},
    windows::{self, worked},
};
use events::source::Source;
use linux::perf;
use plan::{
    memory::{
        options::{Accesses, Level},
        site::AccessGroup,
    },
    plan::Plan,
    point::ProbePoint,
};
use report::{Limitation, PartlySeen};

/// Interval of the checks.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// Assumed cost of a hit of a sampling watchpoint, in nanoseconds, where it cannot be measured.
const HIT_COST_NS: u64 = 10_000;

/// Cost of a hit's record on top of the hit, in nanoseconds.
const RECORD_COST_NS: u64 = 2000;

/// Number of checks by which the events that are checked are behind the program at most, as far as is foreseen.
const BEHIND: u32 = 5;

/// Number of values of words with watchpoints that probes may read in each interval: at most some percent of it.
const SAMPLED_READS: u64 = 16;

/// Capture of one program's memory accesses.
#[derive(Debug)]
pub(crate) struct MemoryController {
    budget: Budget,
    sampler: Sampler,
    clock: ClockId,
    /// Cost of a hit of a sampling watchpoint, in nanoseconds. Hits of named ranges cost as much with `--accesses
    /// sync`, and are no overhead.
    hit_cost_ns: u64,
    /// Processor time of the process when this began, in nanoseconds.
    began: u64,
    /// Costs of groups of earlier programs with the same numbers.
    costs_before: Vec<u64>,
    plan: PlanNumber,
    /// Probes that are detached, by their groups.
    detached: BTreeMap<u16, Vec<ProbePoint>>,
    /// Groups that are being detached.
    pending_detaches: Vec<(BTreeSet<u16>, PendingDetach)>,
    /// Groups that were attached again, with the number of checks until their records are surely among those that come.
    returning: BTreeMap<u16, u32>,
    hot: HotRegions,
}

/// Records of what is seen of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryRecords {
    accesses: u64,
    /// Blocks that allocators gave out.
    given: u64,
    /// Blocks that allocators took back.
    taken: u64,
}

impl MemoryRecords {
    /// Counts a record, if it is one.
    #[inline]
    pub(crate) const fn count(&mut self, record: &Record) {
        match record {
            Record::Access(_) | Record::Owned(_) | Record::Watchpoint(_) => self.accesses += 1,
            Record::Block(Kind::Free, _) => self.taken += 1,
            Record::Block(..) => self.given += 1,
            _ => {}
        }
    }

    /// Calls of allocators are seen anyway, for the sake of what is named.
    pub(crate) const fn calls_are_free(&mut self) {
        (self.given, self.taken) = (0, 0);
    }

    /// Returns the cost of these records.
    fn costs(self, tracer_cost: &TracerCost) -> OtherCosts {
        /// Cost of an allocating call for the program, in nanoseconds: two probes and a record.
        const GIVEN_COST_NS: u64 = 2700;
        /// Cost of a freeing call: one probe and one record.
        const TAKEN_COST_NS: u64 = 1900;
        OtherCosts {
            in_target: self.given * GIVEN_COST_NS + self.taken * TAKEN_COST_NS,
            in_tracer: self.in_tracer(tracer_cost),
        }
    }

    /// Cost of an access's record for the program with a probe in the process, in nanoseconds.
    pub(super) const INLINE_COST_NS: u64 = windows::RECORD_COST_NS;

    /// Returns the cost of these records with probes in the process.
    pub(super) fn costs_inline(self, tracer_cost: &TracerCost) -> OtherCosts {
        /// Cost of an allocating call for the program: two probes and a record.
        const GIVEN_COST_NS: u64 = 60;
        let records = self.accesses + self.taken;
        OtherCosts {
            in_target: records * Self::INLINE_COST_NS + self.given * GIVEN_COST_NS,
            in_tracer: self.in_tracer(tracer_cost),
        }
    }

    fn in_tracer(self, tracer_cost: &TracerCost) -> u64 {
        tracer_cost.of_records(self.accesses + self.given + self.taken)
    }
}

/// Returns the processor time of avtrace, in nanoseconds.
pub(crate) fn worked_here() -> u64 {
    worked(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

impl MemoryController {
    /// Creates the controller of a program that stands still, with watchpoints in these threads, if it is to have
    /// any; `None` where nothing is limited.
    pub(crate) fn new(
        accesses: &Accesses,
        kernel: &mut Kernel,
        pid: u32,
        plan: PlanNumber,
        samples: Option<&[u32]>,
    ) -> Option<Self> {
        let budget = match accesses.level {
            Level::Sync | Level::Probe => return None,
            Level::Watch => Budget::to_learn(accesses.overhead),
            Level::Auto => Budget::new(accesses.overhead),
        };
        let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
        let sampler = samples.map_or_else(Sampler::without, |list| Sampler::new(kernel, list));
        let costs_before = kernel.access_costs();
        let tried = perf::hit_cost().and_then(|cost| u64::try_from(cost.as_nanos()).ok());
        let hit_cost_ns = tried.map_or(HIT_COST_NS, |cost| cost + RECORD_COST_NS);
        let (began, detached, pending_detaches) = (worked(clock)?, BTreeMap::new(), Vec::new());
        Some(Self {
            budget,
            sampler,
            clock,
            hit_cost_ns,
            began,
            costs_before,
            plan,
            detached,
            pending_detaches,
            returning: BTreeMap::new(),
            hot: HotRegions::new(accesses.overhead),
        })
    }

    /// Attaches and detaches what is to be by now.
    ///
    /// # Errors
    ///
    /// When probes cannot be attached any more.
    pub(crate) fn tick(
        &mut self,
        kernel: &mut Kernel,
        source: &mut Source,
        plan: &Plan,
        records: MemoryRecords,
        tracer_cost: &TracerCost,
    ) -> Result<(), KernelError> {
        self.note_detached(source, PendingDetach::is_done);
        self.note_returned(source);
        // A process that has ended has no clock, and needs no control.
        let Some(worked) = worked(self.clock) else { return Ok(()) };
        let worked = worked.saturating_sub(self.began);
        let hot = self.hot.tick(worked, kernel, source, self.plan, plan);
        // The cost of regions without a lock is overhead, and raises no bound.
        let worked = worked.saturating_sub(hot);
        let mut others = records.costs(tracer_cost);
        others.in_target += self.sampler.hits(kernel) * self.hit_cost_ns;
        let Change { detach, attach, is_over } =
            self.budget.change(worked, &self.costs(kernel), others);
        self.sampler.tick(kernel, source, is_over);
        kernel.allow_sampled_reads(SAMPLED_READS);
        if !detach.is_empty() {
            tracing::debug!(groups = ?detach, is_over, "budget spent: detaching access probes");
            let (points, pending) = kernel.detach_accesses(self.plan, &detach);
            for point in points {
                let group = point.access.map_or(0, |access| access.group);
                self.detached.entry(group).or_default().push(point);
            }
            for group in &detach {
                self.returning.remove(group);
                source.set_resting((*group).into(), true);
            }
            self.pending_detaches.push((detach, pending));
        }
        for group in attach {
            if self.pending_detaches.iter().any(|(groups, _)| groups.contains(&group)) {
                self.note_detached(source, |_| true);
            }
            tracing::debug!(group, "attaching access probes again");
            let points = self.detached.remove(&group).unwrap_or_default();
            // What was refused now was not when the program started: it is missed as what is detached.
            let _refused = kernel.attach_probes(self.plan, points)?;
            source.set_attached(group.into(), true);
            self.returning.insert(group, BEHIND);
        }
        Ok(())
    }

    /// Probes that are detached at the moment.
    pub(crate) fn detached(&self) -> impl Iterator<Item = &ProbePoint> {
        self.detached.values().flatten()
    }

    /// Probes see accesses until they are gone: only then what watchpoints see of the same instructions counts.
    fn note_detached(&mut self, source: &mut Source, is_over: impl Fn(&PendingDetach) -> bool) {
        for (groups, pending) in
            self.pending_detaches.extract_if(.., |(_, pending)| is_over(pending))
        {
            drop(pending);
            groups.into_iter().for_each(|group| source.set_attached(group.into(), false));
        }
    }

    /// Events are checked some time after they happened: those that come next may be older than the probes that were
    /// attached again.
    fn note_returned(&mut self, source: &mut Source) {
        self.returning.values_mut().for_each(|checks| *checks -= 1);
        for (group, _) in self.returning.extract_if(.., |_, checks| *checks == 0) {
            source.set_resting(group.into(), false);
        }
    }

    /// Returns the cost of each group of this program so far.
    fn costs(&self, kernel: &Kernel) -> Vec<u64> {
        let before = self.costs_before.iter().copied().chain(std::iter::repeat(0));
        let costs = kernel.access_costs().into_iter();
        costs.zip(before).map(|(cost, before)| cost.saturating_sub(before)).collect()
    }

    /// Returns the limitations for groups that were detached for a time and regions that were given up, and the share
    /// of the run for which each range was watched.
    pub(crate) fn finish(self, kernel: &mut Kernel, plan: &Plan) -> (Vec<Limitation>, Vec<Share>) {
        let over_budget = over_budget(&self.budget, &plan.access_groups);
        let limitations = over_budget.into_iter().chain(self.hot.finish(plan)).collect();
        (limitations, self.sampler.shares(kernel))
    }
}

/// Returns the limitation for the groups that were detached for a time to stay within the budget.
pub(super) fn over_budget(budget: &Budget, groups: &[AccessGroup]) -> Option<Limitation> {
    let mut unseen: Vec<(f64, &str)> = budget
        .unseen()
        .into_iter()
        .filter_map(|(number, share)| {
            Some((share, groups.get(usize::from(number))?.function.as_str()))
        })
        .collect();
    unseen.sort_by(|one, other| other.0.total_cmp(&one.0));
    let functions: Vec<PartlySeen> = unseen
        .into_iter()
        .map(|(share, function)| PartlySeen {
            function: function.to_owned(),
            unseen_percent: share.round_ties_even() as u64,
        })
        .collect();
    (!functions.is_empty()).then_some(Limitation::OverBudget { functions })
}

#[cfg(test)]
mod tests {
    use abi::{AccessRecord, BlockRecord, OwnedRecord, PairRecord};

    use super::*;

    #[test]
    fn calls_of_allocators_are_spent_and_so_is_reading_of_them() {
        let mut records = MemoryRecords::default();
        for record in [
            Record::Block(Kind::Alloc, BlockRecord::default()),
            Record::Block(Kind::Free, BlockRecord::default()),
            Record::Access(AccessRecord::default()),
            Record::Access(AccessRecord::default()),
            Record::Pair(Kind::Init, PairRecord::default()),
        ] {
            records.count(&record);
        }
        let mut tracer_cost = TracerCost::default();
        tracer_cost.note(80_000, 8);
        let mut more = records;
        more.count(&Record::Owned(OwnedRecord::default()));
        assert_eq!(
            more.costs(&tracer_cost).in_tracer,
            50_000,
            "deferred accesses are of memory too"
        );
        let costs = records.costs(&tracer_cost);
        assert_eq!(costs.in_tracer, 40_000, "four of eight");
        assert_eq!(costs.in_target, 4600, "one of each call");
        records.calls_are_free();
        assert_eq!(records.costs(&tracer_cost), OtherCosts { in_target: 0, in_tracer: 20_000 });
    }
}
