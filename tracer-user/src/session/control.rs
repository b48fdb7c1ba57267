//! How memory accesses are seen while a program runs: which probes are attached, and which addresses are watched, so
//! that it costs no more than it may.

use std::{collections::BTreeMap, time::Duration};

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

/// What a hit of a watchpoint is taken to cost, in nanoseconds, where that cannot be tried.
const HIT: u64 = 10_000;

/// What the record of a hit costs on top of the hit.
const RECORD: u64 = 2000;

/// What is seen of one program's memory.
#[derive(Debug)]
pub(super) struct Control {
    budget: Budget,
    sampler: Sampler,
    pid: u32,
    /// What a hit of a watchpoint costs, in nanoseconds.
    hit: u64,
    /// How long the process had worked when this began, in nanoseconds.
    began: u64,
    /// What watchpoint hits there were before.
    hits: u64,
    plan: u32,
    /// Probes that are detached, by their groups.
    detached: BTreeMap<u16, Vec<ProbePoint>>,
}

impl Control {
    /// For a program that stands still, in these threads; `None` where nothing is limited.
    pub(super) fn new(
        accesses: &Accesses,
        kernel: &mut Kernel,
        (pid, threads): (u32, &[u32]),
        plan: u32,
    ) -> Option<Self> {
        let budget = match accesses.level {
            Level::Sync | Level::Probe => return None,
            Level::Watch => Budget::to_learn(accesses.overhead),
            Level::Auto => Budget::new(accesses.overhead),
        };
        let hits = kernel.hits().unwrap_or(0);
        let sampler = Sampler::new(kernel, threads);
        let tried = perf::hit_cost().and_then(|cost| u64::try_from(cost.as_nanos()).ok());
        let hit = tried.map_or(HIT, |cost| cost + RECORD);
        let (began, detached) = (worked(pid)?, BTreeMap::new());
        Some(Self { budget, sampler, pid, hit, began, hits, plan, detached })
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
        // A process that has ended needs no control.
        let Some(worked) = worked(self.pid) else { return Ok(()) };
        let hits = kernel.hits().unwrap_or(0).saturating_sub(self.hits);
        let worked = worked.saturating_sub(self.began);
        let Change { detach, attach, is_over } =
            self.budget.change(worked, &kernel.touch_costs(), hits * self.hit);
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
        .map(|(share, function)| format!("`{function}` during {share:.0} % of the run"))
        .collect();
    let more = match unseen.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", {more} more functions for less"),
    };
    (!named.is_empty()).then(|| {
        format!(
            "to keep within --overhead, not all accesses were seen of {}{more}",
            named.join(", ")
        )
    })
}

/// How long a process has worked in its own code, in nanoseconds: what probes and watchpoints cost is the kernel's time.
/// What the program itself has the kernel do is not counted either: then less is spent than may be.
fn worked(pid: u32) -> Option<u64> {
    /// Of `USER_HZ`, which is the same for all programs.
    const TICK: u64 = 10_000_000;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The twelfth field after the name, which ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split_whitespace().nth(11)?.parse::<u64>().ok()? * TICK)
}
