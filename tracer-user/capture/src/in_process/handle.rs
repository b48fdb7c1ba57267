//! Probes in a process, for the thread that plans: stops and state of the process. What is written to it is in
//! `attach`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, atomic::Ordering},
};

use abi::{CLASSES, Class, DelayPlace, PlanNumber};
use crossbeam_channel::Receiver;
use inline::clock::ClockChoice;
use symbolize::ProcessAddr;
use x86::patching::NEAR_JUMP;

use super::withdrawal::Withdrawal;
use super::{
    asking::Asking,
    error::InProcessError,
    image::Image,
    libraries,
    records::Stream,
    shared::{Places, Program, Request, Shared, Switched},
    stacks::saved_words,
    starver::Starver,
    windows::Windows,
};
use crate::kernel::Lost;
use plan::{perturbation::DelayTable, point::ProbePoint};

/// Probes in processes, as the thread that plans them has them.
#[derive(Debug)]
pub struct InProcess {
    shared: Arc<Shared>,
    tracer: Asking,
    /// Processes, by the numbers of their plans.
    processes: BTreeMap<PlanNumber, Planned>,
    /// Numbers of the ranges that are watched in processes.
    watched: BTreeMap<u32, usize>,
    /// Threads of the process that was held last.
    pub(super) places: Places,
    /// Words of the stacks of these threads, in order, where a signal handler may return to any instruction.
    pub(super) saved: Vec<u64>,
    /// The process ran already.
    is_attached: bool,
    /// The process runs until something is written to it.
    stops_for_writes: bool,
    /// Numbers of modules in which code that sets the GS base was looked for, by the numbers of the plans.
    pub(super) modules_checked: BTreeMap<PlanNumber, usize>,
    /// Memory of programs with delays, by the numbers of their plans, and the number of places.
    delayed: BTreeMap<PlanNumber, (Arc<Image>, usize)>,
}

/// Process with a plan, and the records of the program that was planned; `None` where it has no probes.
type Planned = (u32, Option<Arc<Stream>>);

/// Hold of all threads of a process. When it is dropped they go on.
#[derive(Debug)]
pub struct Hold {
    process: u32,
    shared: Arc<Shared>,
    tracer: Asking,
}

impl InProcess {
    /// From now on the process is one that ran already, and is stopped only while something is written to it.
    pub(super) const fn attached(mut self) -> Self {
        (self.is_attached, self.stops_for_writes) = (true, true);
        self
    }

    /// Stops a process that runs while its first plan is made, until this is dropped; `None` where it stands still
    /// already.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub(super) fn stop_for_write(&mut self, process: u32) -> Result<Option<Hold>, InProcessError> {
        /// Whatever it has stopped for, it may be stopped again.
        const LATER: u32 = u32::MAX;
        self.saved.clear();
        if !self.stops_for_writes {
            return Ok(None);
        }
        let hold = self.hold(process, LATER).ok_or(InProcessError::NoMemory)?;
        self.saved = saved_words(process, &self.places);
        Ok(Some(hold))
    }

    /// Lets the first program start, which was held at its entry point; one that runs already stops for records from
    /// here on.
    pub fn start(&mut self) {
        self.stops_for_writes = false;
        self.tracer.start();
    }

    /// Stops all threads of a process, or finds them stopped in the stop with this number; `None` when the process has
    /// ended, or runs another program.
    pub fn hold(&mut self, process: u32, stop: u32) -> Option<Hold> {
        self.places = self.tracer.ask(|answer| Request::Hold { process, stop, answer })??;
        let (shared, tracer) = (Arc::clone(&self.shared), self.tracer.clone());
        Some(Hold { process, shared, tracer })
    }

    /// Returns what starves threads.
    #[must_use]
    pub fn starver(&self) -> Starver {
        Starver(self.tracer.clone())
    }

    /// Returns what ends the tracing.
    pub fn end(&self) -> impl FnOnce() + Send + 'static {
        let tracer = self.tracer.clone();
        move || {
            // A tracer that has ended need not be ended.
            let _ = tracer.ask(|answer| Request::End { answer });
        }
    }

    /// Gives a process this plan.
    pub fn set_plan(&mut self, plan: PlanNumber, process: u32) {
        self.processes.retain(|_, (other, _)| *other != process);
        self.watched.remove(&process);
        // Of a process that has ended.
        self.shared.switched().remove(&plan);
        let stream = self.shared.program(process).map(|(_, stream)| stream);
        if let Some(stream) = &stream {
            stream.set_plan(process, plan);
        }
        self.processes.insert(plan, (process, stream));
    }

    /// Sets the delays of a plan, of which no probe is attached.
    ///
    /// # Errors
    ///
    /// When its program has no probes.
    pub fn set_delays(
        &mut self,
        plan: PlanNumber,
        table: &DelayTable,
    ) -> Result<(), InProcessError> {
        let (_, (image, _)) = self.program_of(plan)?;
        image.set_delays(table);
        self.delayed.insert(plan, (image, table.places.len()));
        Ok(())
    }

    /// Gives the probes of a plan switches when they are attached.
    pub fn switch_probes(&mut self, plan: PlanNumber, switched: Switched) {
        self.shared.switched().insert(plan, switched);
    }

    /// Returns which probes of a plan can be switched off.
    pub(super) fn switched(&self, plan: PlanNumber) -> Switched {
        self.shared.switched().get(&plan).copied().unwrap_or_default()
    }

    /// Returns the windows of capture of a plan's process; `None` if it has ended, or runs another program.
    #[must_use]
    pub fn windows(&self, plan: PlanNumber) -> Option<Windows> {
        let (_, (image, stream)) = self.program_of(plan).ok()?;
        Some(Windows::new(image, stream))
    }

    /// Returns whether there is a process of a plan in which access probes can be switched.
    #[must_use]
    pub fn can_switch(&self, plan: PlanNumber) -> bool {
        self.program_of(plan).is_ok()
    }

    /// Switches groups of access probes in a plan's process off, or on again, and in all with which it shares memory.
    pub fn switch_accesses(&self, plan: PlanNumber, groups: &BTreeSet<u16>, is_off: bool) {
        // A process that has ended, or runs another program, has no probes to switch.
        if let Ok((_, (image, stream))) = self.program_of(plan) {
            // The time for which they are said to rest covers the time for which they do.
            if is_off {
                stream.note_switch(groups, is_off);
            }
            image.switch(groups, is_off);
            if !is_off {
                stream.note_switch(groups, is_off);
            }
        }
    }

    /// Returns the places of a plan's delays with their counts so far.
    #[must_use]
    pub fn delays(&self, plan: PlanNumber) -> Vec<DelayPlace> {
        let delayed = self.delayed.get(&plan);
        delayed.map_or_else(Vec::new, |(image, count)| image.delays(*count))
    }

    /// Returns the number of the latest stop of a process.
    #[must_use]
    pub fn stops(&self) -> u32 {
        self.shared.stops()
    }

    /// Has a stopped thread go on elsewhere. Returns whether that was possible.
    pub(super) fn move_thread(&self, thread: u32, to: u64) -> bool {
        self.tracer.ask(|answer| Request::Move { thread, to, answer }).unwrap_or(false)
    }

    /// Returns the number of lost events. Their classes are unknown: they count as synchronisation, the worst to lose.
    /// Events of threads without rings are not counted.
    #[must_use]
    pub fn lost(&self) -> Lost {
        let lost = self.shared.counts.lost.load(Ordering::Relaxed);
        CLASSES.map(|class| (class, if class == Class::Sync { lost } else { 0 }))
    }

    /// Returns the number of threads for which no ring was left.
    #[must_use]
    pub fn threads_without_rings(&self) -> u64 {
        self.shared.muted_threads.load(Ordering::Relaxed)
    }

    /// Returns the reason why probes were taken out of a process that went on, and the error if that has failed; `None`
    /// where they were not, and from the second call on.
    #[must_use]
    pub fn withdrawn(&self, process: u32) -> Option<(Withdrawal, Option<String>)> {
        self.shared.withdrawn().remove(&process)
    }

    /// Returns the number of threads that lack the watchpoints of the others.
    #[must_use]
    pub fn threads_without_watchpoints(&self) -> u64 {
        self.shared.unwatched_threads.load(Ordering::Relaxed)
    }

    /// Watches `length` bytes (1, 2, 4 or 8) at `address`, a multiple of it, in all threads of a process and all that
    /// they will create. At the entry point of its program, with `at_entry`, the program is prepared for it first; only
    /// then others can be watched later. Without a range that is all.
    ///
    /// # Errors
    ///
    /// The kernel's: `ENOSPC` when four are watched already or others have taken the debug registers, `EINVAL` for a
    /// bad address or length; and where the program cannot be prepared, or was not.
    pub fn watch(
        &mut self,
        process: u32,
        range: Option<(u64, u64)>,
        at_entry: bool,
    ) -> io::Result<()> {
        // Without a tracer it has ended.
        let asked = self.tracer.ask(|answer| Request::Watch { process, range, at_entry, answer });
        let watched = asked.unwrap_or(Ok(()));
        if watched.is_ok() && range.is_some() {
            *self.watched.entry(process).or_default() += 1;
        }
        watched
    }

    /// Returns the number of ranges that are watched in a process.
    #[must_use]
    pub fn watched(&self, process: u32) -> usize {
        self.watched.get(&process).copied().unwrap_or(0)
    }

    /// Returns the number of times that threads had to wait for the reader.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.shared.counts.waits.load(Ordering::Relaxed)
    }

    /// Returns the clock of the order of records, once a program has shared memory.
    #[must_use]
    pub fn clock(&self) -> Option<ClockChoice> {
        self.shared.clock().clone()
    }

    /// Returns the process with a plan, and the program that it runs.
    pub(super) fn program_of(&self, plan: PlanNumber) -> Result<(u32, Program), InProcessError> {
        let (process, planned) = self.processes.get(&plan).ok_or(InProcessError::NoMemory)?;
        let program = self.program(*process)?;
        match planned {
            Some(planned) if Arc::ptr_eq(planned, &program.1) => Ok((*process, program)),
            // It runs another one meanwhile.
            _ => Err(InProcessError::NoMemory),
        }
    }

    fn program(&self, process: u32) -> Result<Program, InProcessError> {
        let program = self.shared.program(process);
        program.ok_or_else(|| {
            self.shared.refusals().remove(&process).unwrap_or(InProcessError::NoMemory)
        })
    }

    /// Makes a process stop when its dynamic linker has changed its libraries.
    ///
    /// # Errors
    ///
    /// When the linker's function cannot be replaced.
    pub fn attach_linker(
        &mut self,
        process: u32,
        point: &ProbePoint,
        address: ProcessAddr,
    ) -> io::Result<()> {
        let _hold = self.stop_for_write(process).map_err(io::Error::other)?;
        let (image, stream) = self.program(process).map_err(io::Error::other)?;
        let inside = address.0 + 1..address.0 + NEAR_JUMP;
        if self.saved.iter().any(|word| inside.contains(word)) {
            return Err(io::Error::other("a signal handler may return into it"));
        }
        for place in self.places.iter().filter(|place| inside.contains(&place.next)) {
            // The function does nothing: it may begin again.
            if self.stops_for_writes && !self.move_thread(place.thread, address.0) {
                return Err(io::Error::other("a thread stands there"));
            }
        }
        libraries::attach(process, &image, &stream, &self.shared, point, address)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        // Else it has not started, or has ended.
        if !self.tracer.is_of_this_thread() {
            let _ = self.tracer.ask(|answer| {
                // One that ran already is left alone when nobody checks it.
                if self.is_attached { Request::End { answer } } else { Request::Leave { answer } }
            });
        }
    }
}

impl Hold {
    /// Has the process, which has no probes, go on without a tracer.
    pub fn leave_alone(&self) {
        let process = self.process;
        // Without a tracer it is alone.
        let _ = self.tracer.ask(|answer| Request::LeaveAlone { process, answer });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Self { process, ref shared, ref tracer } = *self;
        if let Some((image, _)) = shared.program(process) {
            libraries::open_gate(&image, process);
        }
        // Without a tracer nobody is held.
        let _ = tracer.ask(|answer| Request::Resume { process, answer });
    }
}

/// Creates both ends: what the checker's thread has, and what the tracer's has, which is the calling one.
pub(super) fn connect() -> (InProcess, Arc<Shared>, Receiver<Request>) {
    let shared = Arc::<Shared>::default();
    let (tracer, received) = Asking::connect();
    let (processes, watched, places) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let in_process = InProcess {
        shared: Arc::clone(&shared),
        tracer,
        processes,
        watched,
        places,
        saved: Vec::new(),
        is_attached: false,
        stops_for_writes: false,
        modules_checked: BTreeMap::new(),
        delayed: BTreeMap::new(),
    };
    (in_process, shared, received)
}
