//! The thread that holds processes by ptrace: gives each thread a ring before its first instruction, makes the records
//! of threads and processes, and holds processes for the thread that plans.

mod watching;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::unix::fs::FileExt as _,
    sync::{Arc, atomic::Ordering},
};

use abi::{ChildProcessRecord, ExitRecord, ForkRecord, Kind, Record, StopRecord};
use crossbeam_channel::{Receiver, Sender};
use inline::{
    arena::{MUTED, ThreadStart},
    clock::ClockChoice,
    layout::Mode,
    memory::ProcessAddress,
    ring::Ring,
    tracer::Note,
};

use super::{
    error::{InProcessError, ProgramRefusal, StartError, explained, failed},
    handle::{InProcess, connect},
    image::Image,
    leave,
    records::{Stream, header},
    shared::{Places, Request, Shared},
    stacks::stack_around,
    traps,
    watchpoints::Watchpoints,
};
use crate::{
    live::ring_surroundings::choose_clock,
    sys::{
        proc,
        supervisor::{Ending, Event, Started, Supervisor},
        time_stamp,
        tracee::{self, Launch},
    },
};

/// Bits of the number of a thread's epoch, below the thread's id.
const EPOCH_BITS: u32 = 42;

/// Strict mode of seccomp, as in `/proc/PID/status`.
const STRICT: u64 = 1;

/// The tracer of processes, in the thread that has started the first one.
#[derive(Debug)]
pub struct Tracer {
    supervisor: Supervisor,
    /// The first process.
    first: u32,
    follows_forks: bool,
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    streams: Sender<Arc<Stream>>,
    processes: BTreeMap<u32, Traced>,
    has_started: bool,
    /// Nobody plans any more.
    is_alone: bool,
    clock: ClockChoice,
    /// Behaviour of threads whose rings are full.
    mode: Mode,
    /// Time stamp at the start.
    began: u64,
    /// End of the first process.
    ending: Option<Ending>,
}

/// Traced process.
#[derive(Debug)]
struct Traced {
    /// Stream of its program; before the entry point that of the program before.
    stream: Arc<Stream>,
    /// Memory shared with its program; `None` before the entry point, and where it has no probes.
    image: Option<Arc<Image>>,
    /// Threads that have rings.
    threads: BTreeSet<u32>,
    watchpoints: Watchpoints,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On the way to the entry point of its program.
    Loading,
    /// Child in the memory of its parent, without events of its own, until it replaces its program.
    Muted,
    /// It runs, or is held for a change of its libraries.
    Running,
    /// It is held for the stop with this number.
    Standing(u32),
}

/// Result of starting a program.
#[derive(Debug)]
pub enum Followed {
    /// It stands at its entry point.
    Held {
        /// For the thread that starts it.
        tracer: Box<Tracer>,
        /// For the thread that plans.
        in_process: InProcess,
        /// For the thread that reads.
        streams: Receiver<Arc<Stream>>,
    },
    /// It has ended before.
    Ended {
        /// The process that it was.
        pid: u32,
        /// Its end.
        ending: Ending,
    },
}

impl Tracer {
    /// Starts a program and holds it at its entry point. `mode` says what its threads do when their rings are full.
    ///
    /// # Errors
    ///
    /// Those of starting it, and the reason why it cannot be looked at then.
    pub fn start(launch: Launch, mode: Mode, follows_forks: bool) -> Result<Followed, StartError> {
        let (mut supervisor, process) = match Supervisor::launch(launch)? {
            Started::Held(supervisor, process) => (supervisor, process),
            Started::Ended { pid, ending } => return Ok(Followed::Ended { pid, ending }),
        };
        if let Err(error) = supervisor.stop_at_entry(process) {
            kill(&mut supervisor, process);
            return Err(StartError::InProcess(explained(error)));
        }
        let (in_process, shared, requests) = connect();
        let (streams, received) = crossbeam_channel::unbounded();
        let stream = Arc::new(Stream::without_rings(&shared)?);
        let state = State::Loading;
        let (threads, watchpoints) = (BTreeSet::new(), Watchpoints::default());
        let traced = Traced { stream, image: None, threads, watchpoints, state };
        let mut tracer = Box::new(Self {
            supervisor,
            first: process,
            follows_forks,
            shared,
            requests,
            streams,
            processes: BTreeMap::from([(process, traced)]),
            has_started: false,
            is_alone: false,
            clock: choose_clock(),
            mode,
            began: time_stamp::now(),
            ending: None,
        });
        let ending =
            tracer.run_to_entry().map_err(|error| StartError::InProcess(explained(error)))?;
        Ok(match ending {
            Some(ending) => Followed::Ended { pid: process, ending },
            None => Followed::Held { tracer, in_process, streams: received },
        })
    }

    /// Lets the first program run up to its entry point. Returns its end if that came first.
    fn run_to_entry(&mut self) -> io::Result<Option<Ending>> {
        while self.ending.is_none() {
            match self.supervisor.next_event()? {
                Event::AtEntry { process } if process == self.first => break,
                event => self.handle(event)?,
            }
        }
        Ok(self.ending)
    }

    /// Returns the first process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.first
    }

    /// Shares memory with the first program, which stands at its entry point.
    ///
    /// # Errors
    ///
    /// The reason why the program cannot have probes.
    pub fn share(&mut self) -> Result<(), InProcessError> {
        let process = self.first;
        self.supervisor.freeze(process).map_err(failed("cannot stop the program"))?;
        let shared = self.share_frozen(process);
        self.supervisor.thaw(process).map_err(failed("cannot let the program go"))?;
        if let Some(traced) = self.processes.get_mut(&process) {
            traced.state = State::Running;
        }
        shared
    }

    /// Shares memory with a program of which no thread runs.
    fn share_frozen(&mut self, process: u32) -> Result<(), InProcessError> {
        let status = proc::Status::of_process(process)
            .map_err(failed("cannot read the program's status"))?;
        if status.seccomp() == Some(STRICT) {
            return Err(ProgramRefusal::StrictSeccomp.into());
        }
        for thread in self.supervisor.threads(process) {
            let (_, gs_base) =
                self.supervisor.bases(thread).map_err(failed("cannot read registers"))?;
            if gs_base != 0 {
                return Err(ProgramRefusal::UsesGs { place: None }.into());
            }
        }
        let image = Image::share(&mut self.supervisor, process, self.clock.clock())?;
        let image = Arc::new(image);
        let is_as_chosen = image.clock == self.clock.clock();
        *self.shared.clock() =
            Some(if is_as_chosen { self.clock.clone() } else { ClockChoice::RefusedBarrier });
        let stream = Arc::new(Stream::new(&image, &self.shared));
        let program = (Arc::clone(&image), Arc::clone(&stream));
        self.shared.programs().insert(process, program);
        // Without a reader the run is over.
        let _ = self.streams.send(Arc::clone(&stream));
        if let Some(traced) = self.processes.get_mut(&process) {
            (traced.stream, traced.image) = (stream, Some(image));
        }
        for thread in self.supervisor.threads(process) {
            self.begin_thread(process, thread);
        }
        Ok(())
    }

    /// Does what is asked for until all processes have ended; returns the end of the first. `None` where it was not to
    /// start. `first_has_ended` is called when others are left then.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn run(mut self, first_has_ended: impl FnOnce()) -> io::Result<Option<Ending>> {
        if !self.serve()? {
            return Ok(None);
        }
        let mut first_has_ended = Some(first_has_ended);
        while !self.processes.is_empty() {
            match self.supervisor.next_event()? {
                Event::Woken => {
                    if !self.answer()? {
                        break;
                    }
                }
                event => self.handle(event)?,
            }
            if self.ending.is_some()
                && !self.processes.is_empty()
                && let Some(call) = first_has_ended.take()
            {
                call();
            }
        }
        self.leave()?;
        Ok(self.ending)
    }

    /// Has the processes that are left go on without probes and tracer.
    fn leave(&mut self) -> io::Result<()> {
        let Self { supervisor, processes, .. } = self;
        for (&process, traced) in &mut *processes {
            supervisor.freeze(process)?;
            traced.watchpoints.clear(supervisor, process);
        }
        let images = || {
            let image_of =
                |(process, traced): (&u32, &Traced)| Some((*process, traced.image.clone()?));
            processes.iter().filter_map(image_of)
        };
        let mut restored = Ok(());
        for (process, image) in images() {
            restored = restored.and_then(|()| leave::move_out(supervisor, process, &image));
        }
        for (process, image) in images() {
            // All patches stay if a thread is left in a trampoline.
            restored = restored.and_then(|()| leave::restore(process, &image));
        }
        for (&process, traced) in &*processes {
            traced.stream.close();
            supervisor.detach(process)?;
        }
        restored
    }

    /// Does what is asked for while the first process stands still. Returns whether it starts.
    fn serve(&mut self) -> io::Result<bool> {
        loop {
            match self.requests.recv() {
                Ok(Request::Start) => {
                    if let Some(first) = self.processes.get(&self.first) {
                        first.stream.await_reader();
                    }
                    self.supervisor.release(self.first)?;
                    self.has_started = true;
                    return Ok(true);
                }
                // The thread that plans has given up.
                Ok(Request::Leave { .. }) | Err(_) => return Ok(false),
                Ok(request) => {
                    self.meet(request)?;
                }
            }
        }
    }

    /// Does what was asked for. Returns whether processes are still to be followed.
    fn answer(&mut self) -> io::Result<bool> {
        let mut goes_on = true;
        while let Ok(request) = self.requests.try_recv() {
            goes_on &= self.meet(request)?;
        }
        Ok(goes_on)
    }

    /// Meets a request. Returns whether processes are still to be followed. Who has asked waits.
    fn meet(&mut self, request: Request) -> io::Result<bool> {
        match request {
            // It has started.
            Request::Start => {}
            Request::Hold { process, stop, answer } => {
                let _ = answer.send(self.hold(process, stop)?);
            }
            Request::Move { thread, to, answer } => {
                let _ = answer.send(self.supervisor.relocate(thread, to)?);
            }
            Request::Watch { process, range, at_entry, answer } => {
                let _ = answer.send(self.watch(process, range, at_entry));
            }
            Request::Resume { process, answer } => {
                self.resume(process)?;
                let _ = answer.send(());
            }
            Request::Leave { answer } => {
                self.is_alone = true;
                for process in self.processes.keys().copied().collect::<Vec<_>>() {
                    self.resume(process)?;
                }
                let _ = answer.send(());
            }
            Request::End { answer } => {
                let _ = answer.send(());
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stops a process for a change of its probes, or finds it stopped, and returns its threads. `None` where it has
    /// ended, or run another program since the stop with this number.
    fn hold(&mut self, process: u32, stop: u32) -> io::Result<Option<Places>> {
        match self.processes.get(&process).map(|traced| traced.state) {
            Some(State::Running) => self.supervisor.freeze(process)?,
            Some(State::Standing(latest)) if stop >= latest => {}
            _ => return Ok(None),
        }
        let threads = self.supervisor.threads(process).into_iter();
        Ok(Some(
            threads
                .filter_map(|thread| Some((thread, self.supervisor.place(thread).ok()?.0)))
                .collect(),
        ))
    }

    /// Lets a process go on that was held.
    fn resume(&mut self, process: u32) -> io::Result<()> {
        if let Some(traced) = self.processes.get_mut(&process) {
            if let State::Standing(_) = traced.state {
                traced.state = State::Running;
            }
            if traced.image.is_some() && !self.is_alone {
                traced.stream.await_reader();
            }
        }
        self.supervisor.thaw(process)
    }

    fn handle(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Thread { process, parent, child } => self.new_thread(process, parent, child),
            Event::Process { process, parent, child, shares_memory } => {
                self.new_process((process, parent), child, shares_memory)?;
            }
            Event::Exit { process, thread, status, is_last } => {
                let Some(traced) = self.processes.get_mut(&process) else { return Ok(()) };
                let record = ExitRecord {
                    header: header(Kind::Exit, process, thread),
                    is_last: is_last.into(),
                    epoch: 0,
                    status,
                    unused: 0,
                    comm: proc::thread_name(process, thread),
                };
                traced.stream.record(Record::Exit(record));
                if traced.threads.remove(&thread) {
                    traced.stream.notes.add(Note::Ended { tid: thread });
                }
            }
            Event::End { process, ending } => {
                if process == self.first {
                    self.ending = Some(ending);
                }
                self.shared.programs().remove(&process);
                if let Some(traced) = self.processes.remove(&process) {
                    self.end_threads(&traced.stream, traced.threads);
                }
            }
            Event::Exec { process } => self.replaced(process)?,
            Event::AtEntry { process } => self.at_entry(process)?,
            Event::Fault { process, thread } => {
                let image = self.processes.get(&process).and_then(|traced| traced.image.clone());
                if let Some(image) = image {
                    self.fault(&image, (process, thread))?;
                }
            }
            Event::Hit { process, thread } => self.hit(process, thread),
            Event::Trap { process, thread } => {
                if let Some(traced) = self.processes.get(&process) {
                    let record = traps::record(&self.supervisor, (process, thread))?;
                    traced.stream.record(Record::Trap(record));
                }
            }
            Event::Woken => {}
        }
        Ok(())
    }

    /// Writes the program's own code to a copy of patched code, whose jump has led a thread to a place where there is
    /// none. Returns the address of the copy.
    fn restore_copy(
        &mut self,
        image: &Image,
        (process, thread): (u32, u32),
        place: u64,
    ) -> io::Result<Option<u64>> {
        if self.supervisor.fault_address(thread).ok() != Some(place) {
            return Ok(None);
        }
        let Ok(memory) = proc::writable_memory(process) else { return Ok(None) };
        let Some((copy, code)) = image.copied(&memory, place) else { return Ok(None) };
        // Others may be about to execute the same copy.
        self.supervisor.freeze(process)?;
        let written = memory.write_all_at(&code, copy);
        self.supervisor.thaw(process)?;
        Ok(written.ok().map(|()| copy))
    }

    /// Lets a thread go on whose fault is a probe's and not the program's.
    fn fault(&mut self, image: &Image, (process, thread): (u32, u32)) -> io::Result<()> {
        let (place, _) = self.supervisor.place(thread)?;
        if let Some(to) = image.after_fault(place) {
            return self.supervisor.redirect(thread, to);
        }
        if image.reads_time_stamp(place) {
            // The program has denied itself the counter (`PR_SET_TSC`), or all system calls but a few, of which waiting
            // for the reader is none (seccomp's strict mode).
            let status = proc::Status::of_process(thread);
            if status.is_ok_and(|status| status.seccomp() == Some(STRICT)) {
                image.never_wait(self.supervisor.bases(thread)?.1);
            }
            return self.supervisor.read_time_stamp(thread, time_stamp::now());
        }
        match self.restore_copy(image, (process, thread), place)? {
            Some(copy) => self.supervisor.redirect(thread, copy),
            None => Ok(()),
        }
    }

    fn new_thread(&mut self, process: u32, parent: u32, child: u32) {
        let Some(traced) = self.processes.get(&process) else { return };
        // One that was killed needs nothing.
        let Ok((thread_pointer, _)) = self.supervisor.bases(child) else { return };
        if traced.state == State::Loading {
            // It gets its ring with the others.
            return;
        }
        let record = ForkRecord {
            header: header(Kind::Fork, process, parent),
            child,
            epoch: 0,
            pthread: thread_pointer,
        };
        traced.stream.record(Record::Fork(record));
        self.begin_thread(process, child);
    }

    /// Follows a child before its first instruction, or detaches it.
    fn new_process(
        &mut self,
        (process, parent): (u32, u32),
        child: u32,
        shares_memory: bool,
    ) -> io::Result<()> {
        let traced = self.processes.get(&process);
        let Some(traced) = traced.filter(|traced| traced.state != State::Loading) else {
            // Of libraries that start before the program; a copy of memory has the breakpoint.
            if !shares_memory {
                self.supervisor.clear_entry(process, child)?;
            }
            return self.supervisor.detach(child);
        };
        let (stream, image) = (Arc::clone(&traced.stream), traced.image.clone());
        let watchpoints = traced.watchpoints.of_child();
        let followed = image
            .as_ref()
            .filter(|_| self.follows_forks && !self.is_alone && traced.state != State::Muted);
        let flags = match followed {
            None => 0,
            Some(_) if shares_memory => ChildProcessRecord::FOLLOWED,
            Some(_) => ChildProcessRecord::FOLLOWED | ChildProcessRecord::STOPS,
        };
        let followed = followed.cloned();
        if let Some(image) = &image {
            let muted = image.arena().address(MUTED);
            self.supervisor.set_gs_base(child, muted.0)?;
        }
        let record = ChildProcessRecord {
            header: header(Kind::ChildProcess, process, parent),
            child,
            epoch: 0,
            child_process: child,
            flags,
            comm: proc::thread_name(process, parent),
        };
        stream.record(Record::ChildProcess(record));
        let Some(image) = followed else { return self.supervisor.detach(child) };
        let stop = (!shares_memory).then(|| self.shared.next_stop());
        let state = stop.map_or(State::Muted, State::Standing);
        let (threads, copy) = (BTreeSet::new(), Arc::clone(&stream));
        let traced =
            Traced { stream: copy, image: Some(image.clone()), threads, watchpoints, state };
        self.processes.insert(child, traced);
        if let Some(stop) = stop {
            self.shared.programs().insert(child, (image, Arc::clone(&stream)));
            self.begin_thread(child, child);
            self.supervisor.freeze(child)?;
            let header = header(Kind::Start, child, child);
            stream.record(Record::Stop(Kind::Start, StopRecord { header, stop, epoch: 0 }));
        }
        Ok(())
    }

    /// Has the new program of a process come to its entry point.
    fn replaced(&mut self, process: u32) -> io::Result<()> {
        let Some(traced) = self.processes.get_mut(&process) else { return Ok(()) };
        if traced.state != State::Loading {
            self.shared.programs().remove(&process);
            (traced.image, traced.watchpoints) = (None, Watchpoints::default());
            traced.state = State::Loading;
            let (stream, threads) =
                (Arc::clone(&traced.stream), std::mem::take(&mut traced.threads));
            threads.into_iter().for_each(|tid| stream.notes.add(Note::Ended { tid }));
        }
        match self.supervisor.stop_at_entry(process) {
            Ok(()) => Ok(()),
            // It was killed.
            Err(error) if proc::is_gone(&error) => Ok(()),
            // It has no probes, wherever it stands.
            Err(error) => {
                let Some(before) = self.stream_of(process) else { return Ok(()) };
                self.supervisor.freeze(process)?;
                self.announce((process, before), Err(explained(error)))
            }
        }
    }

    fn stream_of(&self, process: u32) -> Option<Arc<Stream>> {
        self.processes.get(&process).map(|traced| Arc::clone(&traced.stream))
    }

    /// Has the new program of a process, which stands at its entry point, be planned.
    fn at_entry(&mut self, process: u32) -> io::Result<()> {
        let Some(before) = self.stream_of(process) else { return Ok(()) };
        self.supervisor.freeze(process)?;
        let shared = self.share_frozen(process);
        self.announce((process, before), shared)
    }

    /// Announces the new program of a process of which no thread runs, after records of the last one in this stream.
    fn announce(
        &mut self,
        (process, before): (u32, Arc<Stream>),
        shared: Result<(), InProcessError>,
    ) -> io::Result<()> {
        if let Err(error) = shared {
            // Attaching probes reports it.
            self.shared.refusals().insert(process, error);
        }
        let stop = self.shared.next_stop();
        if let Some(traced) = self.processes.get_mut(&process) {
            traced.state = State::Standing(stop);
        }
        // In the stream of the last program: what that has recorded comes first.
        let header = header(Kind::Exec, process, process);
        before.record(Record::Stop(Kind::Exec, StopRecord { header, stop, epoch: 0 }));
        self.end_threads(&before, BTreeSet::new());
        if self.is_alone { self.resume(process) } else { Ok(()) }
    }

    /// Notes that threads of a stream have ended, and that no record will follow where no process has it.
    fn end_threads(&self, stream: &Arc<Stream>, threads: BTreeSet<u32>) {
        threads.into_iter().for_each(|tid| stream.notes.add(Note::Ended { tid }));
        let is_of = |traced: &Traced| Arc::ptr_eq(&traced.stream, stream);
        if !self.processes.values().any(is_of) {
            stream.close();
        }
    }

    /// Returns a number for the epoch of a thread that begins: no thread makes as many records in the same time.
    fn next_epoch(&self) -> u64 {
        const CYCLES_PER_RECORD: u64 = 16;
        let passed = time_stamp::now().saturating_sub(self.began) / CYCLES_PER_RECORD;
        (passed + 1).min((1 << EPOCH_BITS) - 1)
    }

    /// Gives a held thread a ring, or where there is none, the block of those that record nothing.
    fn begin_thread(&mut self, process: u32, thread: u32) {
        let mode = self.mode;
        let epoch = u64::from(thread) << EPOCH_BITS | self.next_epoch();
        let Some(traced) = self.processes.get_mut(&process) else { return };
        let Some(image) = &traced.image else { return };
        let registers = self.supervisor.place(thread).ok().zip(self.supervisor.bases(thread).ok());
        let stack = registers.and_then(|((_, sp), (pointer, _))| stack_around(thread, sp, pointer));
        let (low, high) = stack.unwrap_or_default();
        let stack = (ProcessAddress(low), ProcessAddress(high));
        let start = ThreadStart { tid: thread, epoch, stack, mode };
        let mut arena = image.arena();
        let base = match arena.start(start, &image.rings) {
            Ok(segment) => {
                let ring = Box::new(Ring::new(segment, mode, &image.rings));
                traced.stream.notes.add(Note::Started { tid: thread, process, ring });
                traced.threads.insert(thread);
                arena.address(segment.block)
            }
            Err(_) => {
                self.shared.muted_threads.fetch_add(1, Ordering::Relaxed);
                arena.address(MUTED)
            }
        };
        drop(arena);
        // One that was killed needs none.
        let _ = self.supervisor.set_gs_base(thread, base.0);
        if traced.watchpoints.arm(&self.supervisor, thread).is_err() {
            self.shared.unwatched_threads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if !self.has_started {
            kill(&mut self.supervisor, self.first);
        }
    }
}

/// Kills a process, and waits for its end.
fn kill(supervisor: &mut Supervisor, process: u32) {
    tracee::send_signal(process, libc::SIGKILL);
    while !supervisor.is_empty() && supervisor.next_event().is_ok() {}
}
