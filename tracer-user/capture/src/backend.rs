//! Back end of capture: BPF programs in the kernel, or probes in the traced process itself. Both attach the probes of
//! one plan and make the same records; the differences in how processes are held and looked at end here.

use std::{collections::BTreeSet, io, ops::Range, path::Path};

use abi::{DelayPlace, PlanNumber};
use symbolize::{ProcessAddr, Symbolizer};

use crate::{
    in_process::{self, InProcess, InProcessError, Starver},
    kernel::{Kernel, KernelError, Lost},
};
use linux::{
    breakpoints::breakpoints,
    ids::{KernelPid, NsPid},
    seized_thread::{SeizeError, SeizedThread},
};
use plan::{
    memory::watch_spec::MAX_WATCHPOINTS,
    perturbation::DelayTable,
    plan::PlannedProbe,
    point::{ProbePoint, Refusal},
};

/// Back end of capture.
#[derive(Debug)]
pub enum Backend {
    /// BPF programs at breakpoints.
    Kernel(Box<Kernel>),
    /// Machine code in the traced process.
    InProcess(InProcess),
}

/// Reason for which a back end does not work.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Error of the kernel side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Error of probes in the process.
    #[error(transparent)]
    InProcess(#[from] InProcessError),
}

/// Hold of a process whose probes change. When it is dropped the process goes on.
#[derive(Debug)]
pub enum Hold {
    /// Hold of one thread, by ptrace.
    Thread(SeizedThread),
    /// Hold of all threads, which stand at the entry point of a new program if it has just replaced the last one.
    Process(in_process::Hold),
}

impl From<Kernel> for Backend {
    fn from(kernel: Kernel) -> Self {
        Self::Kernel(Box::new(kernel))
    }
}

impl From<InProcess> for Backend {
    fn from(process: InProcess) -> Self {
        Self::InProcess(process)
    }
}

impl Backend {
    /// Returns the programs in the kernel, if they are the back end.
    #[must_use]
    pub fn kernel(&self) -> Option<&Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            Self::InProcess(_) => None,
        }
    }

    /// Returns the programs in the kernel, if they are the back end, to change what they do.
    pub fn kernel_mut(&mut self) -> Option<&mut Kernel> {
        match self {
            Self::Kernel(kernel) => Some(kernel),
            Self::InProcess(_) => None,
        }
    }

    /// Lets a program start whose tracer waits for that; one that runs already has all its first probes.
    pub fn start(&mut self) {
        if let Self::InProcess(process) = self {
            process.start();
        }
    }

    /// Returns what starves threads, if the back end can.
    #[must_use]
    pub fn starver(&self) -> Option<Starver> {
        match self {
            Self::Kernel(_) => None,
            Self::InProcess(process) => Some(process.starver()),
        }
    }

    /// Attaches the probes of a plan to a process; the memory of `thread` is that of the process, and the symbolizer
    /// has its modules. Those that are refused
    /// are left out and returned.
    ///
    /// # Errors
    ///
    /// When none can be attached for a reason that is not the place's.
    pub fn attach(
        &mut self,
        plan: PlanNumber,
        (thread, symbolizer): (u32, &Symbolizer),
        probes: &[PlannedProbe],
    ) -> Result<Vec<Refusal>, BackendError> {
        match self {
            Self::Kernel(kernel) => {
                let addresses: Vec<ProcessAddr> =
                    probes.iter().map(|probe| probe.address).collect();
                kernel.note_places(plan, thread, &addresses);
                let points = probes.iter().map(|probe| probe.point.clone()).collect();
                Ok(kernel.attach_probes(plan, points)?)
            }
            Self::InProcess(process) => Ok(process.attach(plan, symbolizer, probes)?),
        }
    }

    /// Sets the delays of a plan whose probes are to be attached. Those that run already count anew.
    ///
    /// # Errors
    ///
    /// When they cannot be set.
    pub fn set_delays(&mut self, plan: PlanNumber, table: &DelayTable) -> Result<(), BackendError> {
        match self {
            Self::Kernel(kernel) => Ok(kernel.set_delays(table)?),
            Self::InProcess(process) => Ok(process.set_delays(plan, table)?),
        }
    }

    /// Makes access probes of a plan that are to be attached ones that can be switched off, if they are in the process.
    pub fn limit_accesses(&mut self, plan: PlanNumber) {
        if let Self::InProcess(process) = self {
            process.limit_accesses(plan);
        }
    }

    /// Returns whether there is a process of a plan in which access probes can be switched: not if it has ended.
    #[must_use]
    pub fn can_switch(&self, plan: PlanNumber) -> bool {
        match self {
            Self::Kernel(_) => false,
            Self::InProcess(process) => process.can_switch(plan),
        }
    }

    /// Switches groups of access probes in a plan's process off, or on again.
    pub fn switch_accesses(&self, plan: PlanNumber, groups: &BTreeSet<u16>, is_off: bool) {
        if let Self::InProcess(process) = self {
            process.switch_accesses(plan, groups, is_off);
        }
    }

    /// Returns the places of a plan's delays with their counts so far.
    #[must_use]
    pub fn delays(&self, plan: PlanNumber) -> Vec<DelayPlace> {
        match self {
            Self::Kernel(kernel) => kernel.delays(),
            Self::InProcess(process) => process.delays(plan),
        }
    }

    /// Returns for each of these places of attached probes whether the probe shows in a thread's memory.
    ///
    /// # Errors
    ///
    /// When the memory cannot be read.
    pub fn shows(&self, thread: u32, places: &[ProcessAddr]) -> io::Result<Vec<bool>> {
        match self {
            Self::Kernel(_) => breakpoints(thread, places.iter().map(|place| place.0)),
            // Each patch was read back.
            Self::InProcess(_) => Ok(vec![true; places.len()]),
        }
    }

    /// Makes a process stop when its dynamic linker has loaded or unloaded something, at a function of the linker.
    ///
    /// # Errors
    ///
    /// The reason why it does not.
    pub fn attach_linker(
        &mut self,
        plan: PlanNumber,
        pid: u32,
        (point, address): (ProbePoint, ProcessAddr),
    ) -> Result<(), String> {
        match self {
            Self::Kernel(kernel) => {
                kernel.note_places(plan, pid, &[address]);
                match kernel.attach_probes(plan, vec![point]) {
                    Ok(refusals) if refusals.is_empty() => Ok(()),
                    Ok(refusals) => Err(refusals[0].error.to_string()),
                    Err(error) => Err(error.to_string()),
                }
            }
            Self::InProcess(process) => {
                process.attach_linker(pid, &point, address).map_err(|error| error.to_string())
            }
        }
    }

    /// Returns the points that a plan has attached, and `more`, to be attached by the plan of a child that has a copy
    /// of its memory. A copy of memory has all probes in the process.
    ///
    /// # Errors
    ///
    /// As [`Kernel::points_for_child`].
    pub fn points_for_child(
        &mut self,
        parent: PlanNumber,
        child: PlanNumber,
        more: impl IntoIterator<Item = ProbePoint>,
    ) -> io::Result<Vec<ProbePoint>> {
        let kernel = self.kernel_mut();
        kernel.map_or_else(|| Ok(Vec::new()), |kernel| kernel.points_for_child(parent, child, more))
    }

    /// Attaches to a child of this plan the points that are its parent's.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub fn attach_to_child(
        &mut self,
        plan: PlanNumber,
        process: KernelPid,
        points: Vec<ProbePoint>,
    ) -> Result<Vec<Refusal>, BackendError> {
        let Some(kernel) = self.kernel_mut() else { return Ok(Vec::new()) };
        kernel.set_plan(process, plan)?;
        Ok(kernel.attach_probes(plan, points)?)
    }

    /// Detaches a plan's probes in files for which `gone` holds.
    pub fn detach_files(&mut self, plan: PlanNumber, gone: impl Fn(&Path) -> bool) {
        // In the process they have gone with the memory.
        if let Some(kernel) = self.kernel_mut() {
            kernel.detach_probes(plan, gone);
        }
    }

    /// Detaches all probes of a plan whose process goes on when the tracing ends.
    pub fn leave_probes(&mut self, plan: PlanNumber) {
        // Those in the process are taken back by its tracer.
        if let Some(kernel) = self.kernel_mut() {
            kernel.leave_probes(plan);
        }
    }

    /// Makes watchpoints fire no more; the numbers of their hits remain.
    pub fn stop_watchpoints(&self) {
        // Those in the process end with it.
        if let Some(kernel) = self.kernel() {
            kernel.stop_watchpoints();
        }
    }

    /// Has a process that is held, and has no probes, go on without a tracer.
    pub fn leave_alone(&self, pid: u32) {
        // The kernel's probes need none.
        if let Self::InProcess(process) = self {
            process.leave_alone(pid);
        }
    }

    /// Forgets what was attached in a range of addresses, where nothing is mapped any more.
    pub fn forget_places(&mut self, plan: PlanNumber, range: &Range<ProcessAddr>) {
        match self {
            Self::Kernel(kernel) => kernel.forget_places(plan, range),
            // They have gone with the memory.
            Self::InProcess(_) => {}
        }
    }

    /// From now on probes of a plan are limited to this process.
    pub fn limit_plan(&mut self, plan: PlanNumber, process: u32) {
        match self {
            Self::Kernel(kernel) => kernel.limit_plan(plan, process),
            Self::InProcess(in_process) => in_process.set_plan(plan, process),
        }
    }

    /// From now on a followed process is traced by this plan.
    ///
    /// # Errors
    ///
    /// As [`Kernel::set_plan`].
    pub fn follow_plan(&mut self, process: KernelPid, plan: PlanNumber) -> Result<(), KernelError> {
        self.kernel_mut().map_or(Ok(()), |kernel| kernel.set_plan(process, plan))
    }

    /// Detaches a plan that no process has any more; nothing waits for it if the process has ended.
    pub fn drop_plan(&mut self, plan: PlanNumber, has_ended: bool) {
        if let Some(kernel) = self.kernel_mut() {
            if has_ended {
                kernel.detach_ended(plan);
            } else {
                kernel.detach_probes(plan, |_| true);
            }
            kernel.forget_plan(plan);
        }
    }

    /// Watches a range, by its address and length, in a process that stands at its entry point with these threads, as
    /// [`Kernel::watch`].
    ///
    /// # Errors
    ///
    /// As there, and those of [`InProcess::watch`].
    pub fn watch(
        &mut self,
        (pid, threads): (u32, &[u32]),
        (address, length): (u64, u64),
    ) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => threads
                .iter()
                .try_for_each(|&thread| kernel.watch(thread, address, length).or_else(end_is_fine)),
            Self::InProcess(process) => process.watch(pid, Some((address, length)), true),
        }
    }

    /// Keeps a watchpoint in a process that stands at its entry point, as [`Kernel::keep_watchpoint`].
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn keep_watchpoint(&mut self, (pid, threads): (u32, &[u32])) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.keep_watchpoint(threads),
            Self::InProcess(process) => process.watch(pid, None, true),
        }
    }

    /// Returns whether a watchpoint is left for a process.
    #[must_use]
    pub fn can_watch_later(&self, pid: u32) -> bool {
        match self {
            Self::Kernel(kernel) => kernel.can_watch_later(),
            Self::InProcess(process) => process.watched(pid) < MAX_WATCHPOINTS,
        }
    }

    /// Watches a range in a process that runs, as [`Kernel::watch_later`].
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn watch_later(&mut self, pid: u32, (address, length): (u64, u64)) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.watch_later(address, length),
            Self::InProcess(process) => process.watch(pid, Some((address, length)), false),
        }
    }

    /// Holds a process that was stopped with this number, for a change in this thread. `is_child` says that it is a
    /// child of this process. `None` when the thread has ended meanwhile.
    ///
    /// # Errors
    ///
    /// When it cannot be held.
    pub fn hold(
        &mut self,
        (pid, is_child): (u32, bool),
        thread: u32,
        stop: u32,
    ) -> Result<Option<Hold>, SeizeError> {
        match self {
            Self::Kernel(_) => {
                let held = SeizedThread::await_and_seize(pid, thread, is_child)?;
                Ok(held.map(Hold::Thread))
            }
            Self::InProcess(process) => Ok(process.hold(pid, stop).map(Hold::Process)),
        }
    }

    /// Returns the number of a process's latest stop; 0 without one.
    pub fn stops(&mut self, process: NsPid) -> u32 {
        match self {
            Self::Kernel(kernel) => kernel.stops(process),
            Self::InProcess(process) => process.stops(),
        }
    }

    /// Notes that the stops of a process up to this number are over.
    pub fn mark_continued(&mut self, process: NsPid, number: u32) {
        if let Some(kernel) = self.kernel_mut() {
            kernel.mark_continued(process, number);
        }
    }

    /// Notes that a process has ended.
    pub fn forget_process(&mut self, number: NsPid, process: KernelPid) {
        if let Some(kernel) = self.kernel_mut() {
            kernel.forget_stops(number);
            kernel.forget_calls(process);
        }
    }

    /// Notes that a process has replaced its program, which has no calls under way, and, of the first process, no
    /// watchpoints.
    pub fn replace_program(&mut self, process: KernelPid, is_first: bool) {
        if let Some(kernel) = self.kernel_mut() {
            kernel.forget_calls(process);
            if is_first {
                kernel.start_anew();
            }
        }
    }

    /// Returns the number of events of each class that found no room so far; `None` when they are not known.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        match self {
            Self::Kernel(kernel) => kernel.lost(),
            Self::InProcess(process) => Some(process.lost()),
        }
    }

    /// Detaches everything.
    pub fn detach(self) {
        if let Self::Kernel(kernel) = self {
            kernel.detach();
        }
    }
}

/// Accepts the error for a thread that has ended, which it may at any time.
fn end_is_fine(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}
