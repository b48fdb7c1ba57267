//! How memory accesses are seen while a program runs: which probes are attached, and which addresses are watched, so
//! that it costs no more than it may.

use std::{collections::BTreeMap, time::Duration};

use nix::{
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

use super::{
    budget::{Budget, Change},
    sampler::{Sampler, Share},
};
use crate::{
    kernel::{Kernel, KernelError, ProbePoint},
    live::source::Source,
    probes::{
        accesses::{Accesses, Level},
        plan::TouchGroup,
    },
    sys::perf,
};

/// How often it is looked at what there is to do.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// What a hit of a watchpoint that moves is taken to cost, in nanoseconds, where that cannot be tried.
const HIT: u64 = 10_000;

/// What the record of a hit costs on top of the hit.
const RECORD: u64 = 2000;

/// What is seen of one program's memory.
#[derive(Debug)]
pub(super) struct Control {
    budget: Budget,
    sampler: Sampler,
    clock: ClockId,
    /// What a hit of a watchpoint that moves costs, in nanoseconds. What is named costs as much with `--accesses sync`,
    /// and is no overhead.
    hit: u64,
    /// How long processors had worked for the process when this began.
    began: u64,
    /// What groups of other programs with the same numbers had cost before.
    costs_before: Vec<u64>,
    plan: u32,
    /// Probes that are detached, by their groups.
    detached: BTreeMap<u16, Vec<ProbePoint>>,
}

impl Control {
    /// For a program that stands still, with watchpoints in these threads, if it is to have any; `None` where nothing is
    /// limited.
    pub(super) fn new(
        accesses: &Accesses,
        kernel: &mut Kernel,
        (pid, threads): (u32, Option<&[u32]>),
        plan: u32,
    ) -> Option<Self> {
        let budget = match accesses.level {
            Level::Sync | Level::Probe => return None,
            Level::Watch => Budget::to_learn(accesses.overhead),
            Level::Auto => Budget::new(accesses.overhead),
        };
        let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
        let sampler = threads.map_or_else(Sampler::without, |list| Sampler::new(kernel, list));
        let costs_before = kernel.touch_costs();
        let tried = perf::hit_cost().and_then(|cost| u64::try_from(cost.as_nanos()).ok());
        let hit = tried.map_or(HIT, |cost| cost + RECORD);
        let (began, detached) = (worked(clock)?, BTreeMap::new());
        Some(Self { budget, sampler, clock, hit, began, costs_before, plan, detached })
    }

    /// Attaches and detaches what is to be by now.
    ///
    /// # Errors
    ///
    /// When probes cannot be attached any more.
    pub(super) fn tick(
        &mut self,
        kernel: &mut Kernel,
        source: &mut Source,
    ) -> Result<(), KernelError> {
        // A process that has ended has no clock, and needs no control.
        let Some(worked) = worked(self.clock) else { return Ok(()) };
        let worked = worked.saturating_sub(self.began);
        let spent = self.sampler.hits(kernel) * self.hit;
        let Change { detach, attach, is_over } =
            self.budget.change(worked, &self.costs(kernel), spent);
        self.sampler.tick(kernel, source, is_over);
        if !detach.is_empty() {
            for point in kernel.detach_touches(self.plan, &detach) {
                let group = point.touch.map_or(0, |touch| touch.group);
                self.detached.entry(group).or_default().push(point);
            }
            detach.iter().for_each(|&group| source.set_attached(group.into(), false));
        }
        for group in attach {
            let points = self.detached.remove(&group).unwrap_or_default();
            // What was refused now was not when the program started: it is missed as what is detached.
            let _refused = kernel.attach_probes(self.plan, points)?;
            source.set_attached(group.into(), true);
        }
        Ok(())
    }

    /// What each group of this program has cost so far.
    fn costs(&self, kernel: &Kernel) -> Vec<u64> {
        let before = self.costs_before.iter().copied().chain(std::iter::repeat(0));
        let costs = kernel.touch_costs().into_iter();
        costs.zip(before).map(|(cost, before)| cost.saturating_sub(before)).collect()
    }

    /// What was not always seen, for people; and for what share of the run each range was watched.
    pub(super) fn finish(
        self,
        kernel: &mut Kernel,
        groups: &[TouchGroup],
    ) -> (Option<String>, Vec<Share>) {
        (unseen(&self.budget, groups), self.sampler.shares(kernel))
    }
}

/// What was not always seen to keep within the budget.
fn unseen(budget: &Budget, groups: &[TouchGroup]) -> Option<String> {
    /// Functions that are named.
    const NAMED: usize = 3;
    let mut unseen: Vec<(f64, &str)> = budget
        .unseen()
        .into_iter()
        .filter_map(|(number, share)| {
            Some((share, groups.get(usize::from(number))?.function.as_str()))
        })
        .collect();
    unseen.sort_by(|one, other| other.0.total_cmp(&one.0));
    let named: Vec<String> = unseen
        .iter()
        .take(NAMED)
        .map(|(share, function)| format!("`{function}` ({share:.0} % of the run)"))
        .collect();
    let more = match unseen.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", nor of {more} more functions for less"),
    };
    (!named.is_empty()).then(|| {
        format!(
            "to keep within --overhead, accesses were not seen all the time: not those of {}{more}",
            named.join(", ")
        )
    })
}

/// How long processors have worked for a process, in nanoseconds: for what it does by itself, and for what probes and
/// watchpoints cost.
fn worked(clock: ClockId) -> Option<u64> {
    Duration::from(clock.now().ok()?).as_nanos().try_into().ok()
}
