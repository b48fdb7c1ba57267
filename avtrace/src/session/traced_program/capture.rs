//! Capture of a program's memory accesses, as far as it is limited by a budget.

use abi::{PlanNumber, Record};

use crate::{
    backend::Backend,
    kernel::ProbePoint,
    live::source::Source,
    probes::{memory::options::Accesses, plan::Plan},
    report::Limitation,
    session::memory::{
        budget::TracerCost,
        controller::{MemoryController, MemoryRecords},
        sampler::Share,
    },
};

/// Controller of the capture and the records that it has made.
#[derive(Debug, Default)]
pub(super) struct Capture {
    controller: Option<MemoryController>,
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
        // Probes in the process cost too little to be limited.
        self.controller = backend
            .kernel_mut()
            .and_then(|kernel| MemoryController::new(accesses, kernel, process, plan));
    }

    /// Counts a record, if it is one of memory.
    #[inline]
    pub(super) const fn count(&mut self, record: &Record) {
        self.records.count(record);
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
        let controlled = self.controller.zip(backend.kernel_mut());
        controlled
            .map_or_else(Default::default, |(controller, kernel)| controller.finish(kernel, plan))
    }
}
