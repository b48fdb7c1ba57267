//! Course of tracing a process that runs already, with programs in the kernel: attach while it runs, record until it
//! ends or the tracing is to end, detach. The process is never stopped for it.

use std::{
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use abi::{PlanNumber, Target};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::{
    attach_target::{AttachError, AttachTarget},
    capture_end::CaptureEnd,
    end_signals::EndSignals,
    error::RunError,
    finished_program::{FinishedProgram, ProgramReport},
    live_report::LiveReports,
    options::RunOptions,
    outcome::joined,
    processes::{ProcessTracker, arguments},
    program_end::ProgramEnd,
    program_id::ProgramId,
    recording_numbers::RecordingNumbers,
    traced_program::TracedProgram,
};
use crate::{progress::Steps, status_line::StatusLine};
use capture::{
    backend::Backend,
    kernel::{Copies, Kernel, LoadOptions, reader::Reader},
};
use linux::{guardian::Guardian, ids::NsPid, perf, proc, tracee};
use report::{self, Limitation};

/// A process to attach to, with all that is to be made while this process has one thread.
pub(super) struct Loaded {
    target: AttachTarget,
    /// The process in its own PID namespace.
    ns_pid: NsPid,
    /// It may end at any time: another one with its id is not taken for it.
    process: OwnedFd,
    kernel: Kernel,
    guardian: Guardian,
}

/// Parts that are the same for all processes that are attached to.
pub(super) struct Shared {
    pub(super) options: Arc<RunOptions>,
    pub(super) end_signals: EndSignals,
    /// Numbers of recordings.
    pub(super) numbers: RecordingNumbers,
    /// Held by the thread that reads a program's code and attaches to it: it takes much memory.
    pub(super) turn: Mutex<Turns>,
    /// Number of processes that are not attached to yet, and may be still.
    pub(super) pending: AtomicUsize,
    pub(super) status: StatusLine,
}

/// A process that is not attached to yet. When the last one of these is dropped, the status line begins: nothing else
/// is printed then, but through it.
pub(super) struct Pending(Arc<Shared>);

impl Pending {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.0.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.status.begin();
        }
    }
}

/// Turns of attaching to one process after the other.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// A process is attached to.
    pub(super) has_begun: bool,
}

impl Shared {
    /// Waits for the turn to attach to a process.
    ///
    /// # Errors
    ///
    /// When the end was asked for meanwhile, unless it is the first one, which has a report in any case.
    pub(super) fn turn(&self, pid: u32) -> Result<MutexGuard<'_, Turns>, RunError> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.has_begun
            && self.end_signals.is_asked().map_err(RunError::system("cannot wait for the end"))?
        {
            return Err(AttachError::EndedBefore { pid }.into());
        }
        Ok(turn)
    }
}

impl Loaded {
    /// Loads the programs of the kernel for a process. To be called while this process has one thread.
    ///
    /// # Errors
    ///
    /// See [`RunError`].
    pub(super) fn load(options: &RunOptions, target: AttachTarget) -> Result<Self, RunError> {
        let pid = target.pid;
        // Before all that goes by its id: if this one has not ended in the end, all was about it.
        let process = tracee::pidfd(pid);
        target.check()?;
        let process = process.map_err(RunError::system("cannot find the process"))?;
        let namespace_error = RunError::system("cannot read the PID namespace");
        let (pidns_dev, pidns_ino, tgid) = proc::pid_namespace(pid).map_err(namespace_error)?;
        let kernel = Kernel::load(&LoadOptions {
            target: Target { tgid: tgid.into(), pidns_dev, pidns_ino },
            process: pid,
            buffer_bytes: options.buffer_bytes,
            debug: options.debug_bpf,
            perf_probes: options.perf_probes,
            follow: false,
            is_gated: true,
            accesses: options.accesses.level.probes_instructions(),
            // Recordings have each event at its place.
            defers_owned: options.record.is_none(),
        })?;
        // Both fork while there is one thread.
        let _ = perf::trial();
        let guardian_error = RunError::system("cannot start the guardian");
        let guardian = kernel.start_guardian(Some((NsPid(tgid), pid))).map_err(guardian_error)?;
        Ok(Self { target, ns_pid: NsPid(tgid), process, kernel, guardian })
    }

    /// Returns the process.
    pub(super) const fn target(&self) -> &AttachTarget {
        &self.target
    }

    /// Attaches to the process, and checks it until it ends or the tracing is to end. Returns the report on each
    /// program that it has run.
    ///
    /// # Errors
    ///
    /// See [`RunError`].
    pub(super) fn trace(
        self,
        shared: &Arc<Shared>,
        live_reports: LiveReports,
    ) -> Result<Vec<ProgramReport>, RunError> {
        let Self { target, ns_pid, process, mut kernel, guardian } = self;
        let (pid, options, end_signals) = (target.pid, &shared.options, &shared.end_signals);
        let thread_error = || RunError::system("cannot start a thread");
        let pending = Pending::new(shared);
        let mut turn = shared.turn(pid)?;
        let guardian = Arc::new(guardian);
        if options.debug_bpf {
            kernel.print_log()?;
        }
        kernel.attach_threads()?;
        let mut gate = kernel.take_gate()?;
        let events = kernel.take_events()?;
        let copies = kernel.restore_copies()?;
        let mut backend = Backend::Kernel(Box::new(kernel));
        let argv = arguments(pid);
        let id = ProgramId {
            pid,
            ns_pid,
            parent: None,
            exec_generation: 1,
            argv: argv.clone(),
            plan: PlanNumber(0),
        };
        let steps = Steps::on_terminal();
        let mut first = TracedProgram::prepare(options, &mut backend, id, true, &steps)?;
        drop(steps);
        first.start_recorder(shared.numbers.next());
        if let Some(error) = first.recorder_error() {
            return Err(error.into());
        }
        first.begin_within();
        let now = Some(Instant::now());
        let end_error = RunError::system("cannot wait for the end");
        if await_end(&[process.as_fd()], now).map_err(end_error)? {
            return Err(AttachError::EndedMeanwhile { pid }.into());
        }
        gate.open()?;
        turn.has_begun = true;
        // Libraries that were loaded after the plan was made.
        first.libraries(&mut backend, pid);
        drop(turn);
        let (reader, batches) = Reader::start(events, end_signals.cut()).map_err(thread_error())?;
        // Readable when nobody checks any more: after a panic.
        let (checked, is_unchecked) =
            UnixStream::pair().map_err(RunError::system("cannot create a pair of sockets"))?;
        let (finished, reporting) = crossbeam_channel::unbounded();
        let (end_request, capture_end) = CaptureEnd::new(Some(gate));
        let tracker = ProcessTracker::new(options, backend, first, finished)
            .until(capture_end)
            .with_reports(live_reports)
            .with_numbers(shared.numbers.clone());
        let tracker = thread::Builder::new()
            .name("avtrace-checker".to_owned())
            .spawn({
                let in_case = guardian.in_case_of_panic();
                move || {
                    // Its probes are detached before these are dropped.
                    let (_in_case, _checked) = (in_case, checked);
                    tracker.follow(batches)
                }
            })
            .map_err(thread_error())?;
        let reporting = thread::Builder::new()
            .name("avtrace-reports".to_owned())
            .spawn(move || {
                reporting.iter().map(FinishedProgram::report).collect::<Vec<ProgramReport>>()
            })
            .map_err(thread_error())?;
        announce(&target, &argv, &shared.status);
        drop(pending);
        let until = target.duration.map(|duration| Instant::now() + duration);
        let ends = [process.as_fd(), end_signals.asked(), is_unchecked.as_fd()];
        let awaited = await_end(&ends, until);
        // The program has its own code and speed again before the rest is checked.
        let closed = end_request.close();
        let undecodable = reader.finish();
        let mut limitations = vec![Limitation::Attached];
        if undecodable > 0 {
            limitations.push(Limitation::UndecodableRecords { count: undecodable });
        }
        let unrestored = |(reason, count)| Limitation::UnrestoredChildren { count, reason };
        if end_signals.cut().is_asked() {
            limitations.push(Limitation::CutShort);
        }
        limitations.extend(Copies::finish(copies).into_iter().map(unrestored));
        let tracker = joined(tracker);
        let end = tracker.first_ending().map_or(ProgramEnd::Running, ProgramEnd::Ended);
        // The kernel waits for a grace period at each detach: names are looked up meanwhile.
        tracker.end(end, limitations).detach();
        awaited.map_err(RunError::system("cannot wait for the end"))?;
        closed?;
        Ok(joined(reporting))
    }
}

/// Announces that the process is traced from here on.
pub(super) fn announce(target: &AttachTarget, argv: &[String], status: &StatusLine) {
    if target.quiet {
        return;
    }
    let pid = target.pid;
    let command = argv.join(" ");
    let command = report::printable(&command);
    let (command, until) = (report::cut_message(&command), described_end(target));
    status.print(&format!("avtrace: attached to process {pid} (`{command}`) {until}\n"));
    if target.is_stopped() {
        status.print(&format!(
            "avtrace: process {pid} is stopped, and records nothing before it goes on (`kill -CONT {pid}`)\n"
        ));
    }
}

/// Returns the end of the tracing, in words.
fn described_end(target: &AttachTarget) -> String {
    let duration = target.duration.map(|duration| format!("for {duration:?}; "));
    format!("{}Ctrl-C detaches", duration.unwrap_or_else(|| "until it ends; ".to_owned()))
}

/// Waits until one of these is readable, or for this moment. Returns whether one is.
pub(super) fn await_end(readable: &[BorrowedFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    loop {
        let polled = |&descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let mut polled: Vec<PollFd<'_>> = readable.iter().map(polled).collect();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Longer than the kernel's longest wait: once more.
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut polled, timeout) {
            Ok(0) if until.is_some_and(|until| Instant::now() < until) => {}
            Err(Errno::EINTR) => {}
            Ok(readable) => return Ok(readable > 0),
            Err(error) => return Err(error.into()),
        }
    }
}
