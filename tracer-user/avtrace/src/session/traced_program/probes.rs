//! Probes of a program: its plan, and the places where probes were attached and show in the program's memory.

use std::ops::Range;

use abi::PlanNumber;
use symbolize::{ProcessAddr, Symbolizer};

use super::coverage::Coverage;
use crate::session::dynamic_linker;
use capture::backend::{Backend, BackendError};
use linux::ids::KernelPid;
use plan::{
    plan::{
        Plan, PlannedProbe, Site,
        skipped::{ProbePurpose, SkipReason},
    },
    point::ProbePoint,
};
use report::{Limitation, UnseenLibraries, UntracedProcess};

#[derive(Debug, Default)]
pub(super) struct Probes {
    plan: Plan,
    /// Places of the probes that are attached.
    places: Vec<ProcessAddr>,
    /// Probes to attach when it starts, for a child that has not started.
    to_attach: Option<Vec<ProbePoint>>,
}

impl Probes {
    /// Creates the probes of a plan, of which none is attached.
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, ..Self::default() }
    }

    /// Returns the probes of a forked child, to be attached to it.
    pub(super) fn of_child(&self, points: Option<Vec<ProbePoint>>) -> Self {
        Self { plan: self.plan.clone(), places: self.places.clone(), to_attach: points }
    }

    pub(super) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the plan, to be extended.
    pub(super) const fn plan_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// Returns the sites of the plan, by their numbers.
    pub(super) fn sites(&self) -> &[Site] {
        &self.plan.sites
    }

    /// Returns the sites of the plan, when nothing is attached any more.
    pub(super) fn into_sites(self) -> Vec<Site> {
        self.plan.sites
    }

    /// Returns the places of the probes that are attached.
    pub(super) fn places(&self) -> &[ProcessAddr] {
        &self.places
    }

    /// Returns whether these are of a child, and not attached yet.
    pub(super) const fn await_start(&self) -> bool {
        self.to_attach.is_some()
    }

    /// Attaches the probes that were planned and are not attached, as plan `number`, to the process of `thread`, whose
    /// modules the symbolizer has.
    ///
    /// # Errors
    ///
    /// When the kernel attaches none.
    pub(super) fn attach(
        &mut self,
        backend: &mut Backend,
        number: PlanNumber,
        thread: u32,
        symbolizer: &Symbolizer,
        coverage: &mut Coverage,
    ) -> Result<(), BackendError> {
        let probes = std::mem::take(&mut self.plan.probes);
        let mut failed = vec![false; probes.len()];
        for refusal in backend.attach(number, thread, symbolizer, &probes)? {
            failed[refusal.index] = true;
            let purpose = probes[refusal.index].purpose.clone();
            let error = refusal.error.to_string();
            let reason = match backend.is_inline() {
                true => SkipReason::NoPatch { error },
                false => SkipReason::RefusedByKernel { error },
            };
            tracing::debug!(%purpose, %reason, "skipped a probe");
            coverage.skip(purpose, reason);
        }
        let attached: Vec<(usize, &PlannedProbe)> =
            probes.iter().enumerate().filter(|(index, _)| !failed[*index]).collect();
        coverage.count_probes(attached.iter().map(|(_, probe)| probe.cost));
        // Self-test of the probes: each must show in the program's memory.
        let places: Vec<ProcessAddr> = attached.iter().map(|(_, probe)| probe.address).collect();
        let are_there = backend.shows(thread, &places).unwrap_or_else(|error| {
            let (count, error) = (attached.len() as u64, error.to_string());
            coverage.limit(Limitation::UncheckedProbes { count, error });
            vec![true; attached.len()]
        });
        for ((index, probe), is_there) in attached.into_iter().zip(are_there) {
            if is_there {
                self.places.push(probe.address);
            } else {
                failed[index] = true;
                tracing::debug!(purpose = %probe.purpose, "a probe does not show in memory");
                coverage.skip(probe.purpose.clone(), SkipReason::NoBreakpoint);
            }
        }
        self.plan.probes = probes;
        self.plan.without((0..failed.len()).filter(|&index| failed[index]));
        self.plan.probes.clear();
        coverage.skip_all(&mut self.plan.facts.skipped);
        Ok(())
    }

    /// Attaches to a child, as plan `number`, what its parent had when it forked it. Returns whether this was not done
    /// before.
    pub(super) fn start(
        &mut self,
        backend: &mut Backend,
        number: PlanNumber,
        process: KernelPid,
        coverage: &mut Coverage,
    ) -> bool {
        let Some(points) = self.to_attach.take() else { return false };
        match backend.attach_to_child(number, process, points) {
            Ok(refusals) => {
                for refusal in refusals {
                    let error = refusal.error.to_string();
                    coverage.skip(ProbePurpose::OfParent, SkipReason::RefusedByKernel { error });
                }
            }
            Err(error) => coverage.limit(untraced(&error)),
        }
        true
    }

    /// Forgets the probes in a library that was unloaded.
    pub(super) fn unload(&mut self, range: &Range<ProcessAddr>) {
        self.plan.unload(range);
        self.places.retain(|place| !range.contains(place));
    }
}

/// Returns the limitation of a process to which the kernel did not attach probes.
pub(super) fn untraced(error: &dyn std::fmt::Display) -> Limitation {
    Limitation::UntracedProcess { reason: UntracedProcess::Failed { error: error.to_string() } }
}

/// Makes a process stop when its dynamic linker has loaded or unloaded something. `plan` is the number of its plan.
///
/// # Errors
///
/// The limitation where it does not.
pub(super) fn attach_linker(
    backend: &mut Backend,
    pid: u32,
    plan: PlanNumber,
    symbolizer: &Symbolizer,
) -> Result<(), Limitation> {
    let unseen = |reason| Limitation::UnseenLibraries { reason };
    let Some((point, address)) = dynamic_linker::probe(symbolizer, pid, plan).map_err(unseen)?
    else {
        return Ok(());
    };
    let attached = backend.attach_linker(plan, pid, point, address);
    attached.map_err(|error| unseen(UnseenLibraries::Refused { error }))
}
