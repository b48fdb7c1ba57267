//! Course of tracing a process that runs already, with probes in it: this thread seizes it and holds it by ptrace until
//! the end, the others plan while it runs, read, check and report. It is stopped while memory is mapped into it, and
//! while its code is patched.

use std::{
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Instant,
};

use crossbeam_channel::bounded;
use inline::layout::Mode;
use signal_hook::{consts::SIGUSR1, flag};

use super::{
    attach_run::{announce, await_end},
    attach_target::{AttachError, AttachTarget},
    capture_end::CaptureEnd,
    end_signals::EndSignals,
    error::RunError,
    finished_program::{FinishedProgram, ProgramReport},
    launching::first_program,
    live_report::{LiveReports, Receiver},
    options::{RunOptions, WhenFull},
    outcome::joined,
    processes::{ProcessTracker, arguments},
    program_end::ProgramEnd,
    program_id::ProgramId,
    traced_program::TracedProgram,
};
use crate::{
    backend::Backend,
    in_process::{self, InProcess, InProcessError, Left, StartError},
    progress::Steps,
    report::Limitation,
    status_line::StatusLine,
    sys::{self, ids::NsPid, perf, proc, ptrace_refusal},
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
    status: &StatusLine,
) -> Result<Vec<ProgramReport>, RunError> {
    let memory_error = RunError::system("cannot set memory aside for the run");
    sys::memory::check_headroom().map_err(memory_error)?;
    // It forks while there is one thread.
    let _ = perf::trial();
    let handler_error = || RunError::system("cannot install signal handlers");
    let end_signals = EndSignals::install().map_err(handler_error())?;
    let report_asked_for = Arc::<AtomicBool>::default();
    flag::register(SIGUSR1, Arc::clone(&report_asked_for)).map_err(handler_error())?;
    let live_reports = LiveReports::new(
        receiver,
        report_asked_for,
        end_signals.asker().map_err(handler_error())?,
        status.clone(),
    );
    let (over, is_over) =
        UnixStream::pair().map_err(RunError::system("cannot create a pair of sockets"))?;
    let mode = match options.when_full() {
        WhenFull::Wait => Mode::Lossless,
        WhenFull::Drop => Mode::Drop,
    };
    let pid = target.pid;
    let attached = in_process::Tracer::attach(pid, mode);
    let (tracer, in_process, streams) = attached.map_err(|error| match error {
        StartError::Start(error) if proc::is_gone(&error) && target.is_ending() => {
            RunError::Attach(AttachError::EndedMeanwhile { pid })
        }
        StartError::Start(error) => {
            let reason = ptrace_refusal::explain_attach(&error, pid);
            RunError::Attach(AttachError::Untraceable { pid, reason })
        }
        StartError::InProcess(error) => error.into(),
    })?;
    let thread_error = || RunError::system("cannot start a thread");
    let sees_memory = options.accesses.level.probes_instructions();
    let (reader, batches) = in_process::read(streams, sees_memory).map_err(thread_error())?;
    let leave = in_process.end();
    let (finished, reporting) = crossbeam_channel::unbounded();
    let options = Arc::new(options.clone());
    let argv = arguments(pid);
    let id = ProgramId { argv: argv.clone(), ..first_program(&options, pid, NsPid(pid)) };
    let (end_request, capture_end) = CaptureEnd::new(None);
    let (ready, is_ready) = bounded(1);
    let checking = thread::Builder::new().name("avtrace-checker".to_owned()).spawn({
        let options = Arc::clone(&options);
        move || -> Result<ProcessTracker, RunError> {
            let (backend, first) = prepare(&options, id, in_process)?;
            let _ = ready.send(());
            let tracker = ProcessTracker::new(&options, backend, first, finished)
                .until(capture_end)
                .with_reports(live_reports);
            Ok(tracker.follow(batches))
        }
    });
    let checking = checking.map_err(thread_error())?;
    let reporting = thread::Builder::new()
        .name("avtrace-reports".to_owned())
        .spawn(move || reporting.iter().map(FinishedProgram::report).collect())
        .map_err(thread_error())?;
    let ending = thread::Builder::new().name("avtrace-end".to_owned()).spawn({
        let (target, status) = (*target, status.clone());
        move || {
            // Without a plan there is nothing to end.
            if is_ready.recv().is_err() {
                return Ok(());
            }
            // The other back end, which forks, is not tried any more.
            status.start_printer();
            announce(&target, &argv, &status);
            status.begin();
            let until = target.duration.map(|duration| Instant::now() + duration);
            let awaited = await_end([is_over.as_fd(), end_signals.asked()], until);
            // Libraries that are loaded from here on get no probes.
            let _ = end_request.close();
            leave();
            awaited.map(drop)
        }
    });
    let ending = ending.map_err(thread_error())?;
    let left = tracer.run_attached().map_err(RunError::system("cannot follow the process"));
    drop(over);
    // It needs the checker's answer, which answers while there is a reader.
    let awaited = joined(ending);
    let undecodable = reader.finish();
    let tracker = joined(checking)?;
    // The report is written in any case.
    let left = left.unwrap_or_else(|error| {
        status.print(&format!("avtrace: warning: probes are left in process {pid}: {error}\n"));
        Left { ending: None, keeps_memory: true }
    });
    awaited.map_err(RunError::system("cannot wait for the end"))?;
    let mut limitations = vec![Limitation::Attached];
    if undecodable > 0 {
        limitations.push(Limitation::UndecodableRecords { count: undecodable });
    }
    if left.keeps_memory {
        limitations.push(Limitation::KeptMemory);
    }
    let end = left.ending.map_or(ProgramEnd::Running, ProgramEnd::Ended);
    tracker.end(end, limitations).detach();
    Ok(joined(reporting))
}

/// Plans while the process runs, and patches it. From then on it stops for records.
fn prepare(
    options: &Arc<RunOptions>,
    id: ProgramId,
    in_process: InProcess,
) -> Result<(Backend, TracedProgram), RunError> {
    let pid = id.pid;
    let mut backend = Backend::InProcess(in_process);
    let steps = Steps::on_terminal();
    let prepared = TracedProgram::prepare(options, &mut backend, id, true, &steps);
    drop(steps);
    let mut first = prepared.map_err(|error| match error {
        RunError::InProcess(InProcessError::NoMemory) => AttachError::EndedMeanwhile { pid }.into(),
        error => error,
    })?;
    first.start_recorder(0);
    if let Some(error) = first.recorder_error() {
        return Err(error.into());
    }
    first.begin_within();
    // Libraries that were loaded after the plan was made.
    first.libraries(&mut backend, pid);
    backend.start();
    Ok((backend, first))
}
