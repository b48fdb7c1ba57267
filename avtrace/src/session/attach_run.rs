//! Course of tracing a process that runs already, with programs in the kernel: attach while it runs, record until it
//! ends or the tracing is to end, detach. The process is never stopped for it.

use std::{
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Instant,
};

use abi::{PlanNumber, Target};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1},
    flag,
    low_level::pipe,
};

use super::{
    attach_target::{AttachError, AttachTarget},
    capture_end::CaptureEnd,
    error::RunError,
    finished_program::{FinishedProgram, ProgramReport},
    live_report::{LiveReports, Receiver},
    options::RunOptions,
    outcome::joined,
    processes::{ProcessTracker, arguments},
    program_end::ProgramEnd,
    program_id::ProgramId,
    traced_program::TracedProgram,
};
use crate::{
    backend::Backend,
    kernel::{Copies, Kernel, LoadOptions},
    live::reader::Reader,
    progress::Steps,
    report::{self, Limitation},
    sys::{self, ids::NsPid, perf, proc, tracee},
};

/// Attaches to a process, and checks it until it ends or the tracing is to end. `receiver` gets reports meanwhile.
/// Returns the report on each program that it has run.
///
/// # Errors
///
/// See [`RunError`].
pub(super) fn attach(
    options: &RunOptions,
    target: &AttachTarget,
    receiver: Receiver,
) -> Result<Vec<ProgramReport>, RunError> {
    let memory_error = RunError::system("cannot set memory aside for the run");
    sys::memory::check_headroom().map_err(memory_error)?;
    let pid = target.pid;
    let thread_error = || RunError::system("cannot start a thread");
    let namespace_error = RunError::system("cannot read the PID namespace");
    let (pidns_dev, pidns_ino, tgid) = proc::pid_namespace(pid).map_err(namespace_error)?;
    // It may end at any time: from here on another one with its id is not taken for it.
    let process = tracee::pidfd(pid).map_err(RunError::system("cannot find the process"))?;
    let mut kernel = Kernel::load(&LoadOptions {
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
    let guardian = Arc::new(kernel.start_guardian().map_err(guardian_error)?);
    let handler_error = || RunError::system("cannot install signal handlers");
    let (asked, end) = asked_to_end().map_err(handler_error())?;
    let report_asked_for = Arc::<AtomicBool>::default();
    flag::register(SIGUSR1, Arc::clone(&report_asked_for)).map_err(handler_error())?;
    let live_reports = LiveReports::new(receiver, report_asked_for, end);
    if options.debug_bpf {
        kernel.print_log()?;
    }
    kernel.attach_threads()?;
    let mut gate = kernel.take_gate()?;
    let events = kernel.take_events()?;
    let copies = kernel.restore_copies()?;
    let mut backend = Backend::Kernel(Box::new(kernel));
    let options = Arc::new(options.clone());
    let argv = arguments(pid);
    let id = ProgramId {
        pid,
        ns_pid: NsPid(tgid),
        parent: None,
        exec_generation: 1,
        argv: argv.clone(),
        plan: PlanNumber(0),
    };
    let steps = Steps::on_terminal();
    let mut first = TracedProgram::prepare(&options, &mut backend, id, true, &steps)?;
    drop(steps);
    first.start_recorder(0);
    if let Some(error) = first.recorder_error() {
        return Err(error.into());
    }
    first.begin_within();
    if target.has_ended() {
        return Err(AttachError::EndedMeanwhile { pid }.into());
    }
    gate.open()?;
    // Libraries that were loaded after the plan was made.
    first.libraries(&mut backend, pid);
    let (reader, batches) = Reader::start(events).map_err(thread_error())?;
    let (finished, reporting) = crossbeam_channel::unbounded();
    let (end_request, capture_end) = CaptureEnd::new(Some(gate));
    let tracker = ProcessTracker::new(&options, backend, first, finished)
        .until(capture_end)
        .with_reports(live_reports);
    let tracker = thread::Builder::new()
        .name("avtrace-checker".to_owned())
        .spawn({
            let in_case = guardian.in_case_of_panic();
            move || {
                // Its probes are detached before this is dropped.
                let _in_case = in_case;
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
    announce(target, &argv);
    let until = target.duration.map(|duration| Instant::now() + duration);
    let awaited = await_end([process.as_fd(), asked.as_fd()], until);
    // The program has its own code and speed again before the rest is checked.
    let closed = end_request.close();
    let undecodable = reader.finish();
    let mut limitations = vec![Limitation::Attached];
    if undecodable > 0 {
        limitations.push(Limitation::UndecodableRecords { count: undecodable });
    }
    let unrestored = |(reason, count)| Limitation::UnrestoredChildren { count, reason };
    limitations.extend(Copies::finish(copies).into_iter().map(unrestored));
    let tracker = joined(tracker);
    let end = tracker.first_ending().map_or(ProgramEnd::Running, ProgramEnd::Ended);
    // The kernel waits for a grace period at each detach: names are looked up meanwhile.
    tracker.end(end, limitations).detach();
    awaited.map_err(RunError::system("cannot wait for the end"))?;
    closed?;
    Ok(joined(reporting))
}

/// Announces that the process is traced from here on.
pub(super) fn announce(target: &AttachTarget, argv: &[String]) {
    if target.quiet {
        return;
    }
    let pid = target.pid;
    let command = argv.join(" ");
    let command = report::printable(&command);
    let (command, until) = (report::cut_message(&command), described_end(target));
    // Nothing is left to do when standard error is closed.
    let _ = writeln!(io::stderr(), "avtrace: attached to process {pid} (`{command}`) {until}");
    if target.is_stopped() {
        let _ = writeln!(
            io::stderr(),
            "avtrace: process {pid} is stopped, and records nothing before it goes on (`kill -CONT {pid}`)"
        );
    }
}

/// Returns the end of the tracing, in words.
fn described_end(target: &AttachTarget) -> String {
    let duration = target.duration.map(|duration| format!("for {duration:?}; "));
    format!("{}Ctrl-C detaches", duration.unwrap_or_else(|| "until it ends; ".to_owned()))
}

/// Returns what becomes readable when a signal asks this process to end, and its other end.
pub(super) fn asked_to_end() -> io::Result<(UnixStream, UnixStream)> {
    let (asked, handlers) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        pipe::register(signal, handlers.try_clone()?)?;
    }
    Ok((asked, handlers))
}

/// Waits until one of these is readable, or for this moment.
pub(super) fn await_end(
    readable: [std::os::fd::BorrowedFd<'_>; 2],
    until: Option<Instant>,
) -> io::Result<()> {
    loop {
        let mut polled = readable.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Longer than the kernel's longest wait: once more.
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut polled, timeout) {
            Ok(0) if until.is_some_and(|until| Instant::now() < until) => {}
            Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
