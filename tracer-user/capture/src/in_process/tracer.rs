//! The thread that holds processes by ptrace: gives each thread a ring before its first instruction, makes the records
//! of threads and processes, and holds processes for the thread that plans.

mod attached;
mod births;
mod escaped_stacks;
pub(super) mod faults;
mod killed;
mod leaving;
pub(super) mod signals;
mod unfit;
mod watching;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use abi::{ExitRecord, Kind, Record, StopRecord};
use crossbeam_channel::{Receiver, Sender};
use inline::{clock::ClockChoice, layout::Mode, tracer::Note};

pub use self::attached::{Attached, Left};
use self::{faults::Entered, killed::kill, unfit::Unfit};
use super::ring_surroundings::choose_clock;
use super::{
    error::{InProcessError, ProgramRefusal, StartError, explained, failed},
    handle::{InProcess, connect},
    image::Image,
    records::{Stream, header},
    shared::{Place, Places, Request, Shared},
    traps,
    watchpoints::Watchpoints,
};
use linux::{
    proc,
    supervisor::{Ending, Event, Started, Supervisor},
    time_stamp,
    tracee::Launch,
    wake::WakeTimer,
};

/// Strict mode of seccomp, as in `/proc/PID/status`.
const STRICT: u64 = 1;

/// Ends of what a tracer shares with other threads: the state, requests to it, and streams of records from it.
type Channels = (Arc<Shared>, Receiver<Request>, Sender<Arc<Stream>>);

/// The tracer of processes, in the thread that has started the first one.
#[derive(Debug)]
pub struct Tracer {
    supervisor: Supervisor,
    first: u32,
    follows_forks: bool,
    defers_owned: bool,
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    streams: Sender<Arc<Stream>>,
    processes: BTreeMap<u32, Traced>,
    /// Handlers that threads have entered at displaced instructions, by processes and threads.
    entered: BTreeMap<(u32, u32), Vec<Entered>>,
    /// Processes that can have probes no longer.
    unfit: BTreeMap<u32, Unfit>,
    /// GS bases that the program has set, of threads that have another one in the code of probes.
    own_bases: BTreeMap<(u32, u32), u64>,
    /// Numbers of threads of processes, and of those that are traced, when all others were found to need no tracer.
    checked: BTreeMap<u32, (u64, u64)>,
    /// Processes stand still, and have their own code before they go on.
    is_leaving: bool,
    has_started: bool,
    /// Nobody plans any more.
    is_alone: bool,
    /// The first process ran already, and is left without a trace.
    is_attached: bool,
    /// Processes that the thread that plans holds.
    holds: BTreeSet<u32>,
    /// The processes are to be left once none is held.
    is_ending: bool,
    clock: ClockChoice,
    /// Behaviour of threads whose rings are full.
    mode: Mode,
    /// Time stamp at the start.
    began: u64,
    /// End of the first process.
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Traced {
    /// Stream of its program; before the entry point, the stream of the previous program.
    stream: Arc<Stream>,
    /// Memory shared with its program; `None` before the entry point, and where it has no probes.
    image: Option<Arc<Image>>,
    /// Threads that have rings.
    threads: BTreeSet<u32>,
    watchpoints: Watchpoints,
    /// The program may have saved contexts that go on in code of probes.
    has_contexts: bool,
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
    /// It goes on without a tracer.
    Left,
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
    /// Starts a program and holds it at its entry point. `mode` says what its threads do when their rings are full, and
    /// `defers_owned` whether accesses to words that one thread owns are deferred.
    ///
    /// # Errors
    ///
    /// Those of starting it, and the reason why it cannot be looked at then.
    pub fn start(
        launch: Launch,
        mode: Mode,
        follows_forks: bool,
        defers_owned: bool,
    ) -> Result<Followed, StartError> {
        let (in_process, shared, requests) = connect();
        let stream = Stream::without_rings(&shared.counts).map_err(|error| {
            let what = "avtrace cannot create memory to share with a program by `memfd_create`, which a seccomp filter \
                        may deny";
            StartError::InProcess(InProcessError::System { what, error })
        })?;
        let (mut supervisor, process) = match Supervisor::launch(launch)? {
            Started::Held(supervisor, process) => (*supervisor, process),
            Started::Ended { pid, ending } => return Ok(Followed::Ended { pid, ending }),
        };
        if let Err(error) = supervisor.stop_at_entry(process) {
            let ending = kill(&mut supervisor, process).filter(|_| proc::is_gone(&error));
            if let Some(ending) = ending {
                // It was killed before.
                return Ok(Followed::Ended { pid: process, ending });
            }
            return Err(StartError::InProcess(explained(error, process)));
        }
        let (streams, received) = crossbeam_channel::unbounded();
        let channels = (shared, requests, streams);
        let mut tracer = Box::new(Self::new(supervisor, process, stream, channels, mode));
        (tracer.follows_forks, tracer.defers_owned) = (follows_forks, defers_owned);
        let ending = match tracer.run_to_entry() {
            Ok(ending) => ending,
            Err(error) => {
                let ending = tracer.end_if_gone(&error);
                Some(ending.ok_or_else(|| StartError::InProcess(explained(error, process)))?)
            }
        };
        Ok(match ending {
            Some(ending) => Followed::Ended { pid: process, ending },
            None => Followed::Held { tracer, in_process, streams: received },
        })
    }

    /// Creates the tracer of a process that has no memory of probes yet.
    fn new(
        supervisor: Supervisor,
        process: u32,
        stream: Stream,
        (shared, requests, streams): Channels,
        mode: Mode,
    ) -> Self {
        let traced = Traced {
            stream: Arc::new(stream),
            image: None,
            threads: BTreeSet::new(),
            watchpoints: Watchpoints::default(),
            has_contexts: false,
            state: State::Loading,
        };
        Self {
            supervisor,
            first: process,
            follows_forks: false,
            defers_owned: false,
            shared,
            requests,
            streams,
            processes: BTreeMap::from([(process, traced)]),
            entered: BTreeMap::new(),
            unfit: BTreeMap::new(),
            own_bases: BTreeMap::new(),
            checked: BTreeMap::new(),
            is_leaving: false,
            has_started: false,
            is_alone: false,
            is_attached: false,
            holds: BTreeSet::new(),
            is_ending: false,
            clock: choose_clock(),
            mode,
            began: time_stamp::now(),
            ending: None,
        }
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
        self.supervisor.freeze(process).map_err(failed("cannot stop the program", process))?;
        let shared = self.share_frozen(process);
        self.supervisor.thaw(process).map_err(failed("cannot let the program go", process))?;
        if let Some(traced) = self.processes.get_mut(&process) {
            traced.state = State::Running;
        }
        shared
    }

    /// Shares memory with a program of which no thread runs.
    fn share_frozen(&mut self, process: u32) -> Result<(), InProcessError> {
        let status = proc::Status::of_process(process)
            .map_err(failed("cannot read the program's status", process))?;
        if status.seccomp() == Some(STRICT) {
            return Err(ProgramRefusal::StrictSeccomp.into());
        }
        if self.supervisor.stranger(process).is_some() {
            return Err(ProgramRefusal::HidesThreads { place: None }.into());
        }
        for thread in self.supervisor.threads(process) {
            let (_, gs_base) =
                self.supervisor.bases(thread).map_err(failed("cannot read registers", process))?;
            if gs_base != 0 {
                return Err(ProgramRefusal::UsesGs { place: None }.into());
            }
        }
        let clock = self.clock.clock();
        let image = Image::share(&mut self.supervisor, process, clock, self.defers_owned)?;
        let image = Arc::new(image);
        let is_as_chosen = image.clock == self.clock.clock();
        *self.shared.clock() =
            Some(if is_as_chosen { self.clock.clone() } else { ClockChoice::RefusedBarrier });
        let stream = Arc::new(Stream::new(&image, &self.shared.counts));
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

    /// Kills the first program, which has not started, and waits for its end.
    pub fn abandon(mut self) {
        kill(&mut self.supervisor, self.first);
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
        self.follow(first_has_ended)?;
        self.leave()?;
        Ok(self.ending)
    }

    /// Does what is asked for until all processes have ended or are to be left.
    fn follow(&mut self, first_has_ended: impl FnOnce()) -> io::Result<()> {
        /// Interval at which threads without a tracer are looked for.
        const LOOK: Duration = Duration::from_millis(20);
        // Without one they are found when something else happens.
        let _timer = WakeTimer::start(LOOK);
        let mut first_has_ended = Some(first_has_ended);
        while !self.processes.is_empty() {
            match self.supervisor.next_event()? {
                Event::Woken => {
                    if !self.answer()? {
                        break;
                    }
                    self.look_for_strangers();
                }
                event => self.handle(event)?,
            }
            self.withdraw()?;
            if self.ending.is_some()
                && !self.processes.is_empty()
                && let Some(call) = first_has_ended.take()
            {
                call();
            }
        }
        Ok(())
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
                let places = self.hold(process, stop)?;
                if places.is_some() {
                    self.holds.insert(process);
                }
                let _ = answer.send(places);
            }
            Request::Move { thread, to, answer } => {
                let is_moved = self.supervisor.relocate(thread, to)?;
                // It may be about to receive a signal, whose handler returns there.
                if is_moved && let Some(process) = self.supervisor.process_of(thread) {
                    self.note_context(process, thread);
                }
                let _ = answer.send(is_moved);
            }
            Request::Starve { thread, answer } => {
                let _ = answer.send(self.starve(thread)?);
            }
            Request::Feed { thread, answer } => {
                self.supervisor.feed(thread)?;
                let _ = answer.send(());
            }
            Request::Watch { process, range, at_entry, answer } => {
                let _ = answer.send(self.watch(process, range, at_entry));
            }
            Request::Resume { process, answer } => {
                self.holds.remove(&process);
                self.resume(process)?;
                let _ = answer.send(());
            }
            Request::LeaveAlone { process, answer } => {
                self.leave_alone(process)?;
                let _ = answer.send(());
            }
            Request::Leave { answer } => {
                self.is_alone = true;
                self.holds.clear();
                for process in self.processes.keys().copied().collect::<Vec<_>>() {
                    self.resume(process)?;
                }
                let _ = answer.send(());
            }
            Request::End { answer } => {
                let _ = answer.send(());
                self.is_ending = true;
            }
        }
        // A hold is answered, and its writes completed, before the tracing ends.
        Ok(!self.is_ending || !self.holds.is_empty())
    }

    /// Holds a thread of a program that runs.
    fn starve(&mut self, thread: u32) -> io::Result<bool> {
        let process = self.supervisor.process_of(thread);
        let traced = process.and_then(|process| self.processes.get(&process));
        let runs = traced.is_some_and(|traced| traced.state == State::Running);
        Ok(runs && self.supervisor.starve(thread)?)
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
                .filter_map(|thread| {
                    let (next, stack) = self.supervisor.place(thread).ok()?;
                    Some(Place { thread, next, stack })
                })
                .collect(),
        ))
    }

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
        self.take(event)?;
        match event {
            Event::Fault { process, thread }
            | Event::Signal { process, thread }
            | Event::Entered { process, thread }
            | Event::Call { process, thread } => unless_gone(self.return_base(process, thread)),
            _ => Ok(()),
        }
    }

    fn take(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Thread { process, parent, child } => self.new_thread(process, parent, child),
            Event::Process { process, parent, child, shares_memory } => {
                self.new_process(process, parent, child, shares_memory)?;
            }
            Event::Exit { process, thread, status, is_last } => {
                let Some(traced) = self.processes.get_mut(&process) else { return Ok(()) };
                self.entered.remove(&(process, thread));
                self.own_bases.remove(&(process, thread));
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
                // It was killed while it stands still. The record of its end is in the stream of its new program, and
                // may be read before that of its stop, in the stream of the last one: then nobody resumes it.
                let stands = matches!(traced.state, State::Standing(_));
                if is_last && stands && !self.holds.contains(&process) {
                    self.supervisor.thaw(process)?;
                }
            }
            Event::End { process, ending } => {
                if process == self.first {
                    self.ending = Some(ending);
                }
                self.shared.programs().remove(&process);
                self.forget_unfit(process);
                if let Some(traced) = self.processes.remove(&process) {
                    self.end_threads(&traced.stream, traced.threads);
                }
            }
            Event::Exec { process } => self.replaced(process)?,
            Event::AtEntry { process } => self.at_entry(process)?,
            Event::Fault { process, thread } => {
                unless_gone(self.faults(process, thread))?;
            }
            Event::Signal { process, thread } => {
                unless_gone(self.receives(process, thread))?;
            }
            Event::Entered { process, thread } => unless_gone(self.entered(process, thread))?,
            Event::Call { process, thread } => unless_gone(self.calls(process, thread))?,
            Event::Hit { process, thread } => self.hit(process, thread),
            Event::Trap { process, thread } => {
                if let Some(traced) = self.processes.get(&process) {
                    let record = traps::record(&self.supervisor, process, thread);
                    unless_gone(record.map(|record| traced.stream.record(Record::Trap(record))))?;
                }
                unless_gone(self.traps(process, thread))?;
                self.note_context(process, thread);
            }
            Event::Woken => {}
        }
        Ok(())
    }

    /// Has the new program of a process come to its entry point.
    fn replaced(&mut self, process: u32) -> io::Result<()> {
        self.entered.retain(|(other, _), _| *other != process);
        self.forget_unfit(process);
        let Some(traced) = self.processes.get_mut(&process) else { return Ok(()) };
        if traced.state != State::Loading {
            self.shared.programs().remove(&process);
            (traced.image, traced.watchpoints) = (None, Watchpoints::default());
            traced.has_contexts = false;
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
                self.announce(process, &before, Err(explained(error, process)))
            }
        }
    }

    fn image_of(&self, process: u32) -> Option<Arc<Image>> {
        self.processes.get(&process).and_then(|traced| traced.image.clone())
    }

    fn stream_of(&self, process: u32) -> Option<Arc<Stream>> {
        self.processes.get(&process).map(|traced| Arc::clone(&traced.stream))
    }

    /// Has the new program of a process, which stands at its entry point, be planned.
    fn at_entry(&mut self, process: u32) -> io::Result<()> {
        let Some(before) = self.stream_of(process) else { return Ok(()) };
        self.supervisor.freeze(process)?;
        let shared = self.share_frozen(process);
        self.announce(process, &before, shared)
    }

    /// Announces the new program of a process of which no thread runs, after records of the last one in this stream.
    fn announce(
        &mut self,
        process: u32,
        before: &Arc<Stream>,
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
        self.end_threads(before, BTreeSet::new());
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
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if !self.has_started {
            kill(&mut self.supervisor, self.first);
        }
    }
}

/// Result of what was done to a held thread; one that was killed meanwhile is reported next.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if proc::is_gone(&error) { Ok(()) } else { Err(error) })
}
