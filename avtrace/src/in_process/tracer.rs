//! The thread that holds the process by ptrace: gives each thread a ring before its first instruction, makes the
//! records of threads and processes, and holds the process for the thread that plans.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use abi::{ChildProcessRecord, ExitRecord, ForkRecord, Header, Kind, Record, SiteId, StopRecord};
use crossbeam_channel::{Receiver, Sender};
use inline::{
    arena::{MUTED, ThreadStart},
    clock::ClockChoice,
    layout::Mode,
    memory::ProcessAddress,
    ring::Ring,
    tracer::Note,
};
use symbolize::MapName;

use super::{
    error::{InProcessError, ProgramRefusal, StartError},
    handle::{InProcess, connect},
    image::{Image, mappings},
    records::Stream,
    shared::{Request, Shared},
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

/// The tracer of a process, in the thread that has started it.
#[derive(Debug)]
pub struct Tracer {
    supervisor: Supervisor,
    process: u32,
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    streams: Sender<Arc<Stream>>,
    stream: Arc<Stream>,
    has_started: bool,
    clock: ClockChoice,
    /// Behaviour of threads whose rings are full.
    mode: Mode,
    /// Time stamp at the start.
    began: u64,
    /// End of the process, if it was seen while something else was awaited.
    ending: Option<Ending>,
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
    pub fn start(launch: Launch, mode: Mode) -> Result<Followed, StartError> {
        let (mut supervisor, process) = match Supervisor::launch(launch)? {
            Started::Held(supervisor, process) => (supervisor, process),
            Started::Ended { pid, ending } => return Ok(Followed::Ended { pid, ending }),
        };
        match run_to_entry(&mut supervisor, process) {
            Ok(None) => {}
            Ok(Some(ending)) => return Ok(Followed::Ended { pid: process, ending }),
            Err(error) => {
                kill(&mut supervisor, process);
                return Err(StartError::InProcess(explained(error)));
            }
        }
        let (in_process, shared, requests) = connect();
        let (streams, received) = crossbeam_channel::unbounded();
        let stream = Arc::new(Stream::without_rings(process, &shared.counters)?);
        let tracer = Box::new(Self {
            supervisor,
            process,
            shared,
            requests,
            streams,
            stream,
            has_started: false,
            clock: choose_clock(),
            mode,
            began: time_stamp::now(),
            ending: None,
        });
        Ok(Followed::Held { tracer, in_process, streams: received })
    }

    /// Returns the process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.process
    }

    /// Shares memory with the program, which stands at its entry point.
    ///
    /// # Errors
    ///
    /// The reason why the program cannot have probes.
    pub fn share(&mut self) -> Result<(), InProcessError> {
        let process = self.process;
        let failed = |what: &'static str| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::PermissionDenied => ProgramRefusal::Hidden { error }.into(),
                _ => InProcessError::System { what, error },
            }
        };
        let status = proc::Status::of_process(process)
            .map_err(failed("cannot read the program's status"))?;
        if status.seccomp() == Some(STRICT) {
            return Err(ProgramRefusal::StrictSeccomp.into());
        }
        self.supervisor.freeze(process).map_err(failed("cannot stop the program"))?;
        let shared = self.share_frozen();
        self.supervisor.thaw(process).map_err(failed("cannot let the program go"))?;
        shared
    }

    /// Shares memory with the program, of which no thread runs.
    fn share_frozen(&mut self) -> Result<(), InProcessError> {
        let process = self.process;
        let failed = |what: &'static str| move |error| InProcessError::System { what, error };
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
        self.stream = Arc::new(Stream::new(&image, &self.shared.counters));
        *self.shared.program() = Some((Arc::clone(&image), Arc::clone(&self.stream)));
        // Without a reader the run is over.
        let _ = self.streams.send(Arc::clone(&self.stream));
        for thread in self.supervisor.threads(process) {
            self.begin_thread(&image, thread);
        }
        Ok(())
    }

    /// Does what is asked for until the process has ended; returns its end. `None` where it was not to start.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn run(mut self) -> io::Result<Option<Ending>> {
        if !self.serve()? {
            return Ok(None);
        }
        loop {
            match self.supervisor.next_event()? {
                Event::Woken => self.answer()?,
                Event::End { process, ending } if process == self.process => {
                    self.stream.close();
                    return Ok(Some(ending));
                }
                event => self.handle(event)?,
            }
            if self.ending.is_some() {
                return Ok(self.ending);
            }
        }
    }

    /// Does what is asked for while the process stands still. Returns whether it goes on.
    fn serve(&mut self) -> io::Result<bool> {
        loop {
            match self.requests.recv() {
                Ok(Request::Hold(answer)) => drop(answer.send(self.places())),
                Ok(Request::Resume) if self.has_started => return Ok(true),
                Ok(Request::Resume) => {}
                Ok(Request::Start) => {
                    self.stream.await_reader();
                    self.supervisor.release(self.process)?;
                    self.has_started = true;
                    return Ok(true);
                }
                // The thread that plans has given up; a program that runs goes on.
                Err(_) => return Ok(self.has_started),
            }
        }
    }

    /// Does what was asked for while the process runs.
    fn answer(&mut self) -> io::Result<()> {
        while let Ok(request) = self.requests.try_recv() {
            if let Request::Hold(answer) = request {
                self.supervisor.freeze(self.process)?;
                // Who has asked waits.
                let _ = answer.send(self.places());
                self.serve()?;
                self.supervisor.thaw(self.process)?;
            }
        }
        Ok(())
    }

    /// Returns the next instruction of each thread.
    fn places(&self) -> Vec<u64> {
        let threads = self.supervisor.threads(self.process).into_iter();
        threads.filter_map(|thread| Some(self.supervisor.place(thread).ok()?.0)).collect()
    }

    fn handle(&mut self, event: Event) -> io::Result<()> {
        let image = self.shared.program().as_ref().map(|(image, _)| Arc::clone(image));
        match event {
            Event::Thread { parent, child, .. } => {
                // One that was killed needs nothing.
                let Ok((thread_pointer, _)) = self.supervisor.bases(child) else { return Ok(()) };
                let record = ForkRecord {
                    header: self.header(Kind::Fork, parent),
                    child,
                    epoch: 0,
                    pthread: thread_pointer,
                };
                self.stream.record(Record::Fork(record));
                if let Some(image) = image {
                    self.begin_thread(&image, child);
                }
            }
            Event::Process { parent, child, .. } => {
                if let Some(image) = image {
                    let muted = image.arena().address(MUTED);
                    self.supervisor.set_gs_base(child, muted.0)?;
                }
                let record = ChildProcessRecord {
                    header: self.header(Kind::ChildProcess, parent),
                    child,
                    epoch: 0,
                    child_process: child,
                    flags: 0,
                    comm: proc::thread_name(self.process, parent),
                };
                self.stream.record(Record::ChildProcess(record));
                self.supervisor.detach(child)?;
            }
            Event::Exit { process, thread, status, is_last } if process == self.process => {
                let record = ExitRecord {
                    header: self.header(Kind::Exit, thread),
                    is_last: is_last.into(),
                    epoch: 0,
                    status,
                    unused: 0,
                    comm: proc::thread_name(self.process, thread),
                };
                self.stream.record(Record::Exit(record));
                self.stream.notes.add(Note::Ended { tid: thread });
            }
            Event::Exec { process } if process == self.process => self.replaced()?,
            Event::Fault { thread, .. } => {
                if let Some(image) = image {
                    self.fault(&image, thread)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets a thread go on whose fault is a probe's and not the program's.
    fn fault(&mut self, image: &Image, thread: u32) -> io::Result<()> {
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
        Ok(())
    }

    /// Has the new program of the process come to its entry point, and be planned.
    fn replaced(&mut self) -> io::Result<()> {
        self.shared.program().take();
        self.stream.close();
        self.ending = run_to_entry(&mut self.supervisor, self.process)?;
        if self.ending.is_some() {
            return Ok(());
        }
        if let Err(error) = self.share() {
            // Attaching probes reports it.
            *self.shared.refusal() = Some(error);
            self.stream = Arc::new(Stream::without_rings(self.process, &self.shared.counters)?);
            let _ = self.streams.send(Arc::clone(&self.stream));
        }
        let stop = self.shared.next_stop();
        let header = self.header(Kind::Exec, self.process);
        self.stream.record(Record::Stop(Kind::Exec, StopRecord { header, stop, epoch: 0 }));
        self.serve().map(drop)
    }

    fn header(&self, kind: Kind, tid: u32) -> Header {
        Header { kind: kind as u32, tid, site: SiteId::NONE, lost: 0, process: self.process }
    }

    /// Returns a number for the epoch of a thread that begins: no thread makes as many records in the same time.
    fn next_epoch(&self) -> u64 {
        const CYCLES_PER_RECORD: u64 = 16;
        let passed = time_stamp::now().saturating_sub(self.began) / CYCLES_PER_RECORD;
        (passed + 1).min((1 << EPOCH_BITS) - 1)
    }

    /// Gives a held thread a ring, or where there is none, the block of those that record nothing.
    fn begin_thread(&mut self, image: &Image, thread: u32) {
        let mode = self.mode;
        let pointers = self.supervisor.place(thread).and_then(|(_, sp)| {
            let (thread_pointer, _) = self.supervisor.bases(thread)?;
            Ok((sp, thread_pointer))
        });
        let stack = pointers.ok().and_then(|pointers| stack_around(thread, pointers));
        let (low, high) = stack.unwrap_or_default();
        let stack = (ProcessAddress(low), ProcessAddress(high));
        let epoch = u64::from(thread) << EPOCH_BITS | self.next_epoch();
        let start = ThreadStart { tid: thread, epoch, stack, mode };
        let mut arena = image.arena();
        let base = match arena.start(start, &image.rings) {
            Ok(segment) => {
                let ring = Box::new(Ring::new(segment, mode, &image.rings));
                self.stream.notes.add(Note::Started { tid: thread, ring });
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
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if !self.has_started {
            kill(&mut self.supervisor, self.process);
        }
    }
}

/// Kills a process, and waits for its end.
fn kill(supervisor: &mut Supervisor, process: u32) {
    tracee::send_signal(process, libc::SIGKILL);
    while !supervisor.is_empty() && supervisor.next_event().is_ok() {}
}

/// Explains an error of looking at a process before its entry point, or of changing its memory there.
fn explained(error: io::Error) -> InProcessError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ProgramRefusal::Hidden { error }.into(),
        // What the kernel answers where `/proc/PID/mem` may change no code.
        _ if error.raw_os_error() == Some(libc::EIO) => {
            ProgramRefusal::DeniesWriting { error }.into()
        }
        _ => InProcessError::System { what: "cannot hold the program at its entry point", error },
    }
}

/// Lets a program run from its first instruction to its entry point, where its libraries are mapped. Returns its end if
/// that came first.
fn run_to_entry(supervisor: &mut Supervisor, process: u32) -> io::Result<Option<Ending>> {
    supervisor.stop_at(process, proc::entry_point(process)?)?;
    loop {
        match supervisor.next_event()? {
            Event::AtEntry { process: at } if at == process => return Ok(None),
            Event::End { process: ended, ending } if ended == process => return Ok(Some(ending)),
            Event::Exec { process: replaced } if replaced == process => {
                supervisor.stop_at(process, proc::entry_point(process)?)?;
            }
            // Of libraries that start before the program; a copy of memory has the breakpoint.
            Event::Process { child, shares_memory, .. } => {
                if !shares_memory {
                    supervisor.clear_breakpoint(child)?;
                }
                supervisor.detach(child)?;
            }
            _ => {}
        }
    }
}

/// Returns an address below the stack that a stack pointer is in, and the address after it, which is the thread pointer
/// where that is in the same memory.
fn stack_around(thread: u32, (sp, thread_pointer): (u64, u64)) -> Option<(u64, u64)> {
    /// Size to which the kernel lets the first thread's stack grow by default, in bytes.
    const FIRST_STACK: u64 = 8 << 20;
    let maps = mappings(thread).ok()?;
    let map = maps.iter().find(|map| (map.start.0..=map.end.0).contains(&sp))?;
    let is_first = matches!(&map.name, MapName::Special(name) if name == "[stack]");
    let low = if is_first { map.end.0.saturating_sub(FIRST_STACK) } else { map.start.0 };
    let is_top = (sp + 1..map.end.0).contains(&thread_pointer);
    Some((low.min(map.start.0), if is_top { thread_pointer } else { map.end.0 }))
}
