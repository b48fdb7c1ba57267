//! Course of tracing a process that runs already, with probes in it: this thread seizes it and holds it by ptrace until
//! the end, the others plan while it runs, read, check and report. It is stopped while memory is mapped into it, and
//! while its code is patched.

use std::{
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::Arc,
    thread,
    time::Instant,
};

use crossbeam_channel::bounded;
use inline::layout::Mode;

use super::{
    attach_run::{Pending, Shared, announce, await_end},
    attach_target::{AttachError, AttachTarget},
    capture_end::CaptureEnd,
    error::RunError,
    finished_program::{FinishedProgram, ProgramReport},
    launching::first_program,
    live_report::LiveReports,
    options::WhenFull,
    outcome::joined,
    processes::{ProcessTracker, arguments},
    program_end::ProgramEnd,
    program_id::ProgramId,
    traced_program::TracedProgram,
};
use crate::progress::Steps;
use capture::{
    backend::Backend,
    in_process::{self, InProcess, InProcessError, Left, StartError},
};
use linux::{ids::NsPid, proc, ptrace_refusal};
use report::Limitation;

/// Attaches to a process, and checks it until it ends or the tracing is to end. The calling thread traces it. Returns
/// the report on each program that it has run.
///
/// # Errors
///
/// See [`RunError`].
pub(super) fn trace(
    target: &AttachTarget,
    shared: &Arc<Shared>,
    live_reports: LiveReports,
) -> Result<Vec<ProgramReport>, RunError> {
    let (options, status) = (&shared.options, &shared.status);
    let pending = Pending::new(shared);
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
    let (reader, batches) =
        in_process::read(streams, sees_memory, shared.end_signals.cut()).map_err(thread_error())?;
    let leave = in_process.end();
    let (finished, reporting) = crossbeam_channel::unbounded();
    let argv = arguments(pid);
    let id = ProgramId { argv: argv.clone(), ..first_program(options, pid, NsPid(pid)) };
    let (end_request, capture_end) = CaptureEnd::new(None);
    let (ready, is_ready) = bounded(1);
    let checking = thread::Builder::new().name("avtrace-checker".to_owned()).spawn({
        let shared = Arc::clone(shared);
        move || -> Result<ProcessTracker, RunError> {
            let mut turn = shared.turn(pid)?;
            let (backend, first) = prepare(&shared, id, in_process)?;
            turn.has_begun = true;
            drop(turn);
            let _ = ready.send(());
            let tracker = ProcessTracker::new(&shared.options, backend, first, finished)
                .until(capture_end)
                .with_reports(live_reports)
                .with_numbers(shared.numbers.clone());
            Ok(tracker.follow(batches))
        }
    });
    let checking = checking.map_err(thread_error())?;
    let reporting = thread::Builder::new()
        .name("avtrace-reports".to_owned())
        .spawn(move || reporting.iter().map(FinishedProgram::report).collect())
        .map_err(thread_error())?;
    let ending = thread::Builder::new().name("avtrace-end".to_owned()).spawn({
        let (target, shared) = (*target, Arc::clone(shared));
        move || {
            // Without a plan there is nothing to end.
            if is_ready.recv().is_err() {
                return Ok(());
            }
            announce(&target, &argv, &shared.status);
            drop(pending);
            let until = target.duration.map(|duration| Instant::now() + duration);
            let awaited = await_end(&[is_over.as_fd(), shared.end_signals.asked()], until);
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
    if shared.end_signals.cut().is_asked() {
        limitations.push(Limitation::CutShort);
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
    shared: &Shared,
    id: ProgramId,
    in_process: InProcess,
) -> Result<(Backend, TracedProgram), RunError> {
    let (options, pid) = (&shared.options, id.pid);
    let mut backend = Backend::InProcess(in_process);
    let steps = Steps::on_terminal();
    let prepared = TracedProgram::prepare(options, &mut backend, id, true, &steps);
    drop(steps);
    let mut first = prepared.map_err(|error| match error {
        RunError::InProcess(InProcessError::NoMemory) => AttachError::EndedMeanwhile { pid }.into(),
        error => error,
    })?;
    first.start_recorder(shared.numbers.next());
    if let Some(error) = first.recorder_error() {
        return Err(error.into());
    }
    first.begin_within();
    // Libraries that were loaded after the plan was made.
    first.libraries(&mut backend, pid);
    backend.start();
    Ok((backend, first))
}
