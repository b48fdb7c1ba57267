//! Capture of a program's memory accesses, as far as it is limited by a budget.

use abi::{PlanNumber, Record};

use crate::session::{
    memory::{
        budget::TracerCost,
        controller::{MemoryController, MemoryRecords},
        sampler::Share,
        switching::SwitchController,
    },
    program_id::ProgramId,
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
    controller: Option<Controller>,
    records: MemoryRecords,
}

#[derive(Debug)]
enum Controller {
    /// Groups of the kernel's probes are detached and attached.
    Groups(Box<MemoryController>),
    /// Probes in the process are switched.
    Switches(SwitchController),
}

impl Capture {
    /// Starts to control the capture of a process, with sampling watchpoints in these threads, if any. A forked child
    /// may have a controller already.
    pub(super) fn start(
        &mut self,
        accesses: &Accesses,
        backend: &mut Backend,
        &ProgramId { pid, plan, .. }: &ProgramId,
        samples: Option<&[u32]>,
    ) {
        if self.controller.is_some() {
            return;
        }
        self.controller = match backend.kernel_mut() {
            Some(kernel) => MemoryController::new(accesses, kernel, pid, plan, samples)
                .map(|controller| Controller::Groups(Box::new(controller))),
            None => SwitchController::new(accesses, pid, plan).map(Controller::Switches),
        };
    }

    /// Returns the capture of a child that was just forked, with the probes in the process that it has copied.
    pub(super) fn of_child(&self, pid: u32, plan: PlanNumber, parent: &Plan) -> Self {
        let switches = self.switches().and_then(|switches| switches.of_child(pid, plan, parent));
        Self { controller: switches.map(Controller::Switches), ..Self::default() }
    }

    const fn switches(&self) -> Option<&SwitchController> {
        match &self.controller {
            Some(Controller::Switches(switches)) => Some(switches),
            _ => None,
        }
    }

    /// Returns whether accesses are left out for a time that probes in the process would record.
    pub(super) fn is_partial(&self) -> bool {
        self.switches().is_some_and(SwitchController::is_partial)
    }

    /// Counts a record, if it is one of memory.
    #[inline]
    pub(super) fn count(&mut self, record: &Record, sites: &[Site]) {
        self.records.count(record);
        if let Some(Controller::Switches(switches)) = &mut self.controller {
            switches.count(record, sites);
        }
    }

    /// Takes calls of allocators so far for free.
    pub(super) const fn calls_are_free(&mut self) {
        self.records.calls_are_free();
    }

    /// Keeps the costs within the budget. Returns the limitation if the capture had to end.
    pub(super) fn tick(
        &mut self,
        backend: &mut Backend,
        source: &mut Source,
        plan: &Plan,
        tracer_cost: &TracerCost,
    ) -> Option<Limitation> {
        let records = self.records;
        match self.controller.as_mut()? {
            Controller::Switches(switches) => {
                switches.tick(backend, source, records, tracer_cost);
                None
            }
            Controller::Groups(controller) => {
                let kernel = backend.kernel_mut()?;
                let error = controller.tick(kernel, source, plan, records, tracer_cost).err()?;
                self.controller = None;
                Some(Limitation::CaptureEnded { error: error.to_string() })
            }
        }
    }

    /// Iterates over the probes that are detached at the moment.
    pub(super) fn detached(&self) -> impl Iterator<Item = &ProbePoint> {
        let controller = match &self.controller {
            Some(Controller::Groups(controller)) => Some(controller),
            _ => None,
        };
        controller.into_iter().flat_map(|controller| controller.detached())
    }

    /// Ends the capture. Returns the limitations for probes that were detached, and the share of the run for
    /// which each range was watched.
    pub(super) fn finish(
        self,
        backend: &mut Backend,
        plan: &Plan,
    ) -> (Vec<Limitation>, Vec<Share>) {
        match (self.controller, backend.kernel_mut()) {
            (Some(Controller::Switches(switches)), _) => {
                (switches.finish(plan).into_iter().collect(), Vec::new())
            }
            (Some(Controller::Groups(controller)), Some(kernel)) => controller.finish(kernel, plan),
            _ => Default::default(),
        }
    }
}
