//! Back end of capture: BPF programs in the kernel, or probes in the traced process itself. Both attach the probes of
//! one plan and make the same records; the differences in how processes are held and looked at end here.

use std::{collections::BTreeSet, io, ops::Range, path::PathBuf};

use abi::{DelayPlace, PlanNumber};
use inline::clock::ClockChoice;
use symbolize::{ProcessAddr, Symbolizer};

use crate::{
    in_process::{self, InProcess, InProcessError, Starver, Switched, Windows, Withdrawal},
    kernel::{Copies, Entry, EntryError, EntryStop, Kernel, KernelError, Lost, ProbeLoss},
};
use linux::{
    breakpoints::breakpoints,
    ids::{KernelPid, NsPid},
    perf, ptrace_breakpoint,
    seized_thread::{SeizeError, SeizedThread},
};
use plan::{
    memory::watch_spec::MAX_WATCHPOINTS,
    perturbation::DelayTable,
    plan::PlannedProbe,
    point::{ProbePoint, Refusal},
};

/// Back end of capture. Callers ask it questions; which of the two it is stays here.
#[derive(Debug)]
pub struct Backend(Side);

#[derive(Debug)]
enum Side {
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

/// Start of a plan in a process.
#[derive(Clone, Copy, Debug)]
pub struct PlanStart<'a> {
    /// The process, to which the plan's probes are limited from now on.
    pub process: u32,
    /// Delays of the plan, if it has any. Those that run already count anew.
    pub delays: Option<&'a DelayTable>,
    /// Probes of the plan that can be switched off later, if they are in the process.
    pub switched: Switched,
}

/// Order of the events of a run.
#[derive(Clone, Debug)]
pub enum EventOrder {
    /// The kernel reserves the room of records in one ring buffer.
    RingBuffer,
    /// Threads read a clock.
    Clock {
        /// The clock.
        choice: ClockChoice,
        /// Number of times that threads had to wait for the reader.
        waits: u64,
    },
}

/// Number of watchpoint hits, for a comparison with their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// Each hit makes its record in the process: there is no other count.
    Uncounted,
    /// The kernel does not count them.
    Unknown,
    /// Number of hits so far.
    Counted(u64),
}

/// Threads and processes in which probes record nothing, or no longer.
#[derive(Clone, Debug, Default)]
pub struct Unrecorded {
    /// Number of threads for which no ring was left.
    pub threads_without_rings: u64,
    /// Number of threads that lack the watchpoints of the others.
    pub threads_without_watchpoints: u64,
    /// Reason why probes were taken out of the process, and the error if that has failed.
    pub withdrawn: Option<(Withdrawal, Option<String>)>,
}

/// Switches of the access probes in a process.
#[derive(Debug)]
pub struct AccessSwitches<'a> {
    process: &'a InProcess,
    plan: PlanNumber,
}

impl AccessSwitches<'_> {
    /// Switches groups off, or on again, in all processes that share the code of the probes.
    pub fn switch(&self, groups: &BTreeSet<u16>, is_off: bool) {
        self.process.switch_accesses(self.plan, groups, is_off);
    }
}

/// Hold of a process whose probes change. When it is dropped the process goes on.
#[derive(Debug)]
pub struct Hold(HeldBy);

#[derive(Debug)]
enum HeldBy {
    /// A single thread, by ptrace.
    Thread(SeizedThread),
    /// All threads stand still, at the entry point of a new program if it has just replaced the last one.
    Tracer(in_process::Hold),
}

impl Hold {
    /// Returns whether a process that has just replaced its program stands at the entry point, with its libraries
    /// mapped.
    #[must_use]
    pub const fn is_at_entry(&self) -> bool {
        matches!(self.0, HeldBy::Tracer(_))
    }

    /// Has the process, which has no probes, go on without a tracer. The kernel's probes need none.
    pub fn leave_alone(&self) {
        if let HeldBy::Tracer(hold) = &self.0 {
            hold.leave_alone();
        }
    }
}

impl From<Kernel> for Backend {
    fn from(kernel: Kernel) -> Self {
        Self(Side::Kernel(Box::new(kernel)))
    }
}

impl From<InProcess> for Backend {
    fn from(process: InProcess) -> Self {
        Self(Side::InProcess(process))
    }
}

impl Backend {
    /// Returns the programs in the kernel, if they are the back end, for the control of their groups of probes.
    pub fn kernel_mut(&mut self) -> Option<&mut Kernel> {
        match &mut self.0 {
            Side::Kernel(kernel) => Some(kernel),
            Side::InProcess(_) => None,
        }
    }

    /// Returns whether probes are machine code in the process: no breakpoints, and no record of a process is lost.
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        matches!(self.0, Side::InProcess(_))
    }

    /// Returns the order of events; `None` before a program has shared memory.
    #[must_use]
    pub fn order(&self) -> Option<EventOrder> {
        match &self.0 {
            Side::Kernel(_) => Some(EventOrder::RingBuffer),
            Side::InProcess(process) => {
                Some(EventOrder::Clock { choice: process.clock()?, waits: process.waits() })
            }
        }
    }

    /// Returns the threads in which probes record nothing, and the reason why a process has none any more, once.
    #[must_use]
    pub fn unrecorded(&self, process: u32) -> Unrecorded {
        match &self.0 {
            Side::Kernel(_) => Unrecorded::default(),
            Side::InProcess(probes) => Unrecorded {
                threads_without_rings: probes.threads_without_rings(),
                threads_without_watchpoints: probes.threads_without_watchpoints(),
                withdrawn: probes.withdrawn(process),
            },
        }
    }

    /// Starts to restore the code of children that are not followed, where a copy of memory has breakpoints.
    ///
    /// # Errors
    ///
    /// As [`Kernel::restore_copies`].
    pub fn restore_copies(&mut self) -> Result<Option<Copies>, KernelError> {
        self.kernel_mut().map(Kernel::restore_copies).transpose()
    }

    /// Lets a program start whose tracer waits for that; one that runs already has all its first probes.
    pub fn start(&mut self) {
        if let Side::InProcess(process) = &mut self.0 {
            process.start();
        }
    }

    /// Returns what starves threads, if the back end can.
    #[must_use]
    pub fn starver(&self) -> Option<Starver> {
        match &self.0 {
            Side::Kernel(_) => None,
            Side::InProcess(process) => Some(process.starver()),
        }
    }

    /// Attaches the probes of a plan to the process of a thread, whose modules the symbolizer has. Probes that are
    /// refused are left out and returned.
    ///
    /// # Errors
    ///
    /// When all are refused for a reason that does not lie with their places.
    pub fn attach(
        &mut self,
        plan: PlanNumber,
        thread: u32,
        symbolizer: &Symbolizer,
        probes: &[PlannedProbe],
    ) -> Result<Vec<Refusal>, BackendError> {
        match &mut self.0 {
            Side::Kernel(kernel) => {
                let addresses: Vec<ProcessAddr> =
                    probes.iter().map(|probe| probe.address).collect();
                kernel.note_places(plan, thread, &addresses);
                let points = probes.iter().map(|probe| probe.point.clone()).collect();
                Ok(kernel.attach_probes(plan, points)?)
            }
            Side::InProcess(process) => Ok(process.attach(plan, symbolizer, probes)?),
        }
    }

    /// Starts a plan whose probes are to be attached to a process.
    ///
    /// # Errors
    ///
    /// When its delays cannot be set.
    pub fn start_plan(
        &mut self,
        plan: PlanNumber,
        PlanStart { process, delays, switched }: PlanStart<'_>,
    ) -> Result<(), BackendError> {
        match &mut self.0 {
            Side::Kernel(kernel) => {
                kernel.limit_plan(plan, process);
                delays.map_or(Ok(()), |table| kernel.set_delays(table))?;
            }
            Side::InProcess(in_process) => {
                in_process.set_plan(plan, process);
                delays.map_or(Ok(()), |table| in_process.set_delays(plan, table))?;
                in_process.switch_probes(plan, switched);
            }
        }
        Ok(())
    }

    /// Returns the switches of access probes in a plan's process; `None` where there are none, or the process has
    /// ended.
    #[must_use]
    pub fn access_switches(&self, plan: PlanNumber) -> Option<AccessSwitches<'_>> {
        match &self.0 {
            Side::InProcess(process) if process.can_switch(plan) => {
                Some(AccessSwitches { process, plan })
            }
            _ => None,
        }
    }

    /// Returns the windows of capture of a plan's process; `None` where there are none, or the process has ended.
    #[must_use]
    pub fn windows(&self, plan: PlanNumber) -> Option<Windows> {
        match &self.0 {
            Side::InProcess(process) => process.windows(plan),
            Side::Kernel(_) => None,
        }
    }

    /// Returns the places of a plan's delays with their counts so far.
    #[must_use]
    pub fn delays(&self, plan: PlanNumber) -> Vec<DelayPlace> {
        match &self.0 {
            Side::Kernel(kernel) => kernel.delays(),
            Side::InProcess(process) => process.delays(plan),
        }
    }

    /// Returns for each of these places of attached probes whether the probe shows in a thread's memory.
    ///
    /// # Errors
    ///
    /// When the memory cannot be read.
    pub fn shows(&self, thread: u32, places: &[ProcessAddr]) -> io::Result<Vec<bool>> {
        match &self.0 {
            Side::Kernel(_) => breakpoints(thread, places.iter().map(|place| place.0)),
            // Each patch was read back.
            Side::InProcess(_) => Ok(vec![true; places.len()]),
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
        point: ProbePoint,
        address: ProcessAddr,
    ) -> Result<(), String> {
        match &mut self.0 {
            Side::Kernel(kernel) => {
                kernel.note_places(plan, pid, &[address]);
                match kernel.attach_probes(plan, vec![point]) {
                    Ok(refusals) if refusals.is_empty() => Ok(()),
                    Ok(refusals) => Err(refusals[0].error.to_string()),
                    Err(error) => Err(error.to_string()),
                }
            }
            Side::InProcess(process) => {
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

    /// Detaches a plan's probes in files without a loaded module, and forgets the places in unmapped ranges of
    /// addresses. Probes in the process have gone with the memory.
    pub fn unload(&mut self, plan: PlanNumber, files: &[PathBuf], ranges: &[Range<ProcessAddr>]) {
        let Some(kernel) = self.kernel_mut() else { return };
        if !files.is_empty() {
            kernel.detach_probes(plan, |file| files.iter().any(|gone| gone == file));
        }
        ranges.iter().for_each(|range| kernel.forget_places(plan, range));
    }

    /// Detaches all probes of a plan whose process goes on when the tracing ends.
    pub fn leave_probes(&mut self, plan: PlanNumber) {
        // Those in the process are taken back by its tracer.
        if let Some(kernel) = self.kernel_mut() {
            kernel.leave_probes(plan);
        }
    }

    /// Makes watchpoints fire no more; the numbers of their hits remain. Watchpoints in the process end with it.
    pub fn stop_watchpoints(&mut self) {
        if let Some(kernel) = self.kernel_mut() {
            kernel.stop_watchpoints();
        }
    }

    /// Keeps the probes of a process whose main thread has ended. Returns their loss, if there is any: probes in the
    /// process do not depend on a thread.
    pub fn keep_without_leader(
        &mut self,
        plan: PlanNumber,
        process: u32,
        places: &[ProcessAddr],
    ) -> Option<ProbeLoss> {
        self.kernel_mut()?.keep_without_leader(plan, process, places)
    }

    /// From now on a followed process is traced by this plan.
    ///
    /// # Errors
    ///
    /// As [`Kernel::set_plan`].
    pub fn follow_plan(&mut self, process: KernelPid, plan: PlanNumber) -> Result<(), KernelError> {
        self.kernel_mut().map_or(Ok(()), |kernel| kernel.set_plan(process, plan))
    }

    /// Detaches a plan that no process has any more. If the process has ended, this does not wait.
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

    /// Returns the result of the trial of watchpoints as this back end sets them.
    #[must_use]
    pub fn watchpoint_trial(&self) -> perf::Trial {
        if self.is_inline() { ptrace_breakpoint::trial() } else { perf::trial() }
    }

    /// Returns whether the kernel has set or reserved watchpoints, whose hits send `SIGTRAP` where they go wrong.
    #[must_use]
    pub fn has_watchpoints(&self) -> bool {
        matches!(&self.0, Side::Kernel(kernel) if kernel.has_watchpoints())
    }

    /// Returns the number of watchpoint hits so far.
    #[must_use]
    pub fn hits(&self) -> Hits {
        match &self.0 {
            Side::Kernel(kernel) => kernel.hits().map_or(Hits::Unknown, Hits::Counted),
            Side::InProcess(_) => Hits::Uncounted,
        }
    }

    /// Watches a range in a process that stands at its entry point with these threads, as [`Kernel::watch`].
    ///
    /// # Errors
    ///
    /// As there, and those of [`InProcess::watch`].
    pub fn watch(
        &mut self,
        process: u32,
        threads: &[u32],
        address: u64,
        length: u64,
    ) -> io::Result<()> {
        match &mut self.0 {
            Side::Kernel(kernel) => threads
                .iter()
                .try_for_each(|&thread| kernel.watch(thread, address, length).or_else(end_is_fine)),
            Side::InProcess(probes) => probes.watch(process, Some((address, length)), true),
        }
    }

    /// Keeps a watchpoint in a process that stands at its entry point, as [`Kernel::keep_watchpoint`].
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn keep_watchpoint(&mut self, process: u32, threads: &[u32]) -> io::Result<()> {
        match &mut self.0 {
            Side::Kernel(kernel) => kernel.keep_watchpoint(threads),
            Side::InProcess(probes) => probes.watch(process, None, true),
        }
    }

    /// Returns whether a watchpoint is left for a process.
    #[must_use]
    pub fn can_watch_later(&self, process: u32) -> bool {
        match &self.0 {
            Side::Kernel(kernel) => kernel.can_watch_later(),
            Side::InProcess(probes) => probes.watched(process) < MAX_WATCHPOINTS,
        }
    }

    /// Watches a range in a process that runs, as [`Kernel::watch_later`].
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    pub fn watch_later(&mut self, process: u32, address: u64, length: u64) -> io::Result<()> {
        match &mut self.0 {
            Side::Kernel(kernel) => kernel.watch_later(address, length),
            Side::InProcess(probes) => probes.watch(process, Some((address, length)), false),
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
        process: u32,
        is_child: bool,
        thread: u32,
        stop: u32,
    ) -> Result<Option<Hold>, SeizeError> {
        let held = match &mut self.0 {
            Side::Kernel(_) => {
                SeizedThread::await_and_seize(process, thread, is_child)?.map(HeldBy::Thread)
            }
            Side::InProcess(probes) => probes.hold(process, stop).map(HeldBy::Tracer),
        };
        tracing::debug!(process, thread, stop, is_held = held.is_some(), "held for a change");
        Ok(held.map(Hold))
    }

    /// Lets a process go on. Its stops up to this number are over.
    pub fn release(&mut self, hold: Option<Hold>, process: NsPid, number: u32) {
        drop(hold);
        if let Some(kernel) = self.kernel_mut() {
            kernel.mark_continued(process, number);
        }
    }

    /// Has a process that has just replaced its program run to the entry point. Returns the stop there; `None` for a
    /// process that stands there already.
    ///
    /// # Errors
    ///
    /// See [`EntryError`].
    pub fn run_to_entry(
        &mut self,
        hold: &Hold,
        entry: &Entry,
    ) -> Result<Option<EntryStop>, EntryError> {
        match (&mut self.0, &hold.0) {
            (Side::Kernel(kernel), HeldBy::Thread(held)) => {
                kernel.run_to_entry(held, entry).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns the number of a process's latest stop; 0 without one.
    pub fn stops(&mut self, process: NsPid) -> u32 {
        match &mut self.0 {
            Side::Kernel(kernel) => kernel.stops(process),
            Side::InProcess(process) => process.stops(),
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
        match &self.0 {
            Side::Kernel(kernel) => kernel.lost(),
            Side::InProcess(process) => Some(process.lost()),
        }
    }

    /// Detaches everything.
    pub fn detach(self) {
        if let Side::Kernel(kernel) = self.0 {
            kernel.detach();
        }
    }
}

/// Accepts the error for a thread that has ended, which it may at any time.
fn end_is_fine(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}
