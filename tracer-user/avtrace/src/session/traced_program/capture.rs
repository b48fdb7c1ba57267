//! Capture of a program's memory accesses, as far as it is limited by a budget.

use abi::{PlanNumber, Record};

use crate::session::memory::{
    budget::TracerCost,
    controller::{MemoryController, MemoryRecords},
    sampler::Share,
    switching::SwitchController,
};
use capture::backend::Backend;
use events::source::Source;
use plan::{
    memory::options::Accesses,
    plan::{Plan, Site},
    point::ProbePoint,
};
use report::Limitation;

/// Controller of the capture and the records that it has made.
#[derive(Debug, Default)]
pub(super) struct Capture {
    controller: Option<MemoryController>,
    /// Controller of probes in the process.
    switches: Option<SwitchController>,
    records: MemoryRecords,
}

impl Capture {
    /// Starts to control what is captured of a process, with sampling watchpoints in these threads, if any.
    pub(super) fn start(
        &mut self,
        accesses: &Accesses,
        backend: &mut Backend,
        process: (u32, Option<&[u32]>),
        plan: PlanNumber,
    ) {
        self.controller = backend
            .kernel_mut()
            .and_then(|kernel| MemoryController::new(accesses, kernel, process, plan));
    }

    /// Starts to control what probes in a process record.
    pub(super) fn start_inline(&mut self, accesses: &Accesses, pid: u32, plan: PlanNumber) {
        self.switches = SwitchController::new(accesses, pid, plan);
    }

    /// Returns the capture of a child that was just forked, with the probes in the process that it has copied.
    pub(super) fn of_child(&self, pid: u32, plan: PlanNumber, parent: &Plan) -> Self {
        let switches =
            self.switches.as_ref().and_then(|switches| switches.of_child(pid, plan, parent));
        Self { switches, ..Self::default() }
    }

    /// Returns whether accesses are left out for a time that probes in the process would record.
    pub(super) fn is_partial(&self) -> bool {
        self.switches.as_ref().is_some_and(SwitchController::is_partial)
    }

    /// Counts a record, if it is one of memory.
    #[inline]
    pub(super) fn count(&mut self, record: &Record, sites: &[Site]) {
        self.records.count(record);
        if let Some(switches) = &mut self.switches {
            switches.count(record, sites);
        }
    }

    /// Keeps the costs within the budget. Calls of allocators cost nothing where they are seen for the sake of what is
    /// named. Returns the limitation if the capture had to end.
    pub(super) fn tick(
        &mut self,
        backend: &mut Backend,
        source: &mut Source,
        (calls_are_free, plan): (bool, &Plan),
        tracer_cost: &TracerCost,
    ) -> Option<Limitation> {
        let mut records = self.records;
        if calls_are_free {
            records.calls_are_free();
        }
        if let Some(switches) = &mut self.switches {
            switches.tick(backend, source, (records, tracer_cost));
        }
        let (controller, kernel) = self.controller.as_mut().zip(backend.kernel_mut())?;
        let error = controller.tick(kernel, source, plan, (records, tracer_cost)).err()?;
        self.controller = None;
        Some(Limitation::CaptureEnded { error: error.to_string() })
    }

    /// Iterates over the probes that are detached at the moment.
    pub(super) fn detached(&self) -> impl Iterator<Item = &ProbePoint> {
        self.controller.iter().flat_map(MemoryController::detached)
    }

    /// Ends the capture. Returns the limitations for probes that were detached, and the share of the run for
    /// which each range was watched.
    pub(super) fn finish(
        self,
        backend: &mut Backend,
        plan: &Plan,
    ) -> (Vec<Limitation>, Vec<Share>) {
        if let Some(switches) = self.switches {
            return (switches.finish(plan).into_iter().collect(), Vec::new());
        }
        let controlled = self.controller.zip(backend.kernel_mut());
        controlled
            .map_or_else(Default::default, |(controller, kernel)| controller.finish(kernel, plan))
    }
}
