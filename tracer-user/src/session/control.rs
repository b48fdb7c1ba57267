//! How memory accesses are seen while a program runs: which probes are attached, and which addresses are watched, so
//! that it costs no more than it may.

use std::{collections::BTreeMap, time::Duration};

use nix::{
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

use super::budget::{Budget, Change};
use crate::{
    kernel::{Kernel, KernelError, ProbePoint},
    probes::{
        accesses::{Accesses, Level},
        plan::TouchGroup,
    },
};

/// How often it is looked at what there is to do.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// What a hit of a watchpoint costs, in nanoseconds.
const HIT: u64 = 8500;

/// What is seen of one program's memory.
#[derive(Debug)]
pub(super) struct Control {
    budget: Budget,
    clock: ClockId,
    /// What the processors had worked for the process when this began, in nanoseconds.
    began: u64,
    /// What watchpoint hits there were before.
    hits: u64,
    plan: u32,
    /// Probes that are detached, by their groups.
    detached: BTreeMap<u16, Vec<ProbePoint>>,
}

impl Control {
    /// For a program with probes on memory instructions; `None` where nothing is limited.
    pub(super) fn new(accesses: &Accesses, kernel: &Kernel, pid: u32, plan: u32) -> Option<Self> {
        let budget = match accesses.level {
            Level::Sync | Level::Probe => return None,
            Level::Watch => Budget::to_learn(accesses.overhead),
            Level::Auto => Budget::new(accesses.overhead),
        };
        let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
        let hits = kernel.hits().unwrap_or(0);
        Some(Self { budget, clock, began: worked(clock)?, hits, plan, detached: BTreeMap::new() })
    }

    /// Attaches and detaches what is to be by now.
    ///
    /// # Errors
    ///
    /// When probes cannot be attached any more.
    pub(super) fn tick(&mut self, kernel: &mut Kernel) -> Result<(), KernelError> {
        // A process that has ended has no clock, and needs no control.
        let Some(worked) = worked(self.clock) else { return Ok(()) };
        let hits = kernel.hits().unwrap_or(0).saturating_sub(self.hits);
        let worked = worked.saturating_sub(self.began);
        let Change { detach, attach } =
            self.budget.change(worked, &kernel.touch_costs(), hits * HIT);
        if !detach.is_empty() {
            for point in kernel.detach_touches(self.plan, &detach) {
                let group = point.touch.map_or(0, |touch| touch.group);
                self.detached.entry(group).or_default().push(point);
            }
        }
        for group in attach {
            let points = self.detached.remove(&group).unwrap_or_default();
            // What was refused now was not when the program started: it is missed as what is detached.
            let _refused = kernel.attach_probes(self.plan, points)?;
        }
        Ok(())
    }

    /// What was not always seen, for people.
    pub(super) fn unseen(&self, groups: &[TouchGroup]) -> Vec<String> {
        self.budget
            .unseen()
            .into_iter()
            .filter_map(|(number, share)| {
                let TouchGroup { function, .. } = groups.get(usize::from(number))?;
                Some((function, share))
            })
            .map(|(function, share)| {
                format!("the accesses of `{function}` were not seen during {share:.0} % of the run")
            })
            .collect()
    }
}

/// How long processors have worked for a process, in nanoseconds.
fn worked(clock: ClockId) -> Option<u64> {
    Duration::from(clock.now().ok()?).as_nanos().try_into().ok()
}
