//! Course of tracing a process that runs already, with probes in it: this thread seizes it and holds it by ptrace until
//! the end, the others plan while it runs, read, check and report. It is stopped while memory is mapped into it, and
//! while its code is patched.

use std::{
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::Arc,
    time::Instant,
};

use crossbeam_channel::bounded;

use super::{
    attach_error::AttachError,
    attach_target::AttachTarget,
    attaching::{Pending, Shared, announce},
    await_end::await_end,
    capture_end::CaptureEnd,
    error::RunError,
    finished_program::ProgramReport,
    launching::first_program,
    live_report::LiveReports,
    pipeline::{Pipeline, prepare_first},
    processes::arguments,
    program_end::ProgramEnd,
    program_id::ProgramId,
    threads::{joined, spawn},
    traced_program::TracedProgram,
};
use capture::{
    backend::Backend,
    in_process::{self, InProcess, InProcessError, Left, StartError},
};
use linux::{ids::NsPid, proc, ptrace_refusal};
use report::Limitation;

/// Attaches to a process, and checks it until it ends or the tracing is to end. The calling thread traces it. Returns
/// the report on each program that it has run.
pub(super) fn trace(
    target: &AttachTarget,
    shared: &Arc<Shared>,
    live_reports: LiveReports,
) -> Result<Vec<ProgramReport>, RunError> {
    let (options, status) = (&shared.options, &shared.status);
    let pending = Pending::new(shared);
    let (over, is_over) =
        UnixStream::pair().map_err(RunError::system("cannot create a pair of sockets"))?;
    let pid = target.pid;
    let attached = in_process::Tracer::attach(pid, options.ring_mode());
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
    let sees_memory = options.accesses.level.probes_instructions();
    let cut = shared.end_signals.cut();
    let read = in_process::read(streams, sees_memory, cut);
    let (reader, batches) = read.map_err(RunError::system("cannot start a thread"))?;
    let leave = in_process.end();
    let argv = arguments(pid);
    let id = ProgramId { argv: argv.clone(), ..first_program(options, pid, NsPid(pid)) };
    let (end_request, capture_end) = CaptureEnd::new(None);
    let (ready, is_ready) = bounded(1);
    let track = {
        let shared = Arc::clone(shared);
        move || {
            let mut turn = shared.turn(pid)?;
            let (backend, first) = prepare(&shared, id, in_process)?;
            turn.has_begun = true;
            drop(turn);
            let tracker = shared.track(backend, first, capture_end, live_reports)?;
            let _ = ready.send(());
            Ok(tracker)
        }
    };
    let pipeline = Pipeline::start(reader, batches, cut, (), track)?;
    let ending = spawn("avtrace-end", {
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
    })?;
    let left = tracer.run_attached().map_err(RunError::system("cannot follow the process"));
    drop(over);
    // It needs the checker's answer, which answers while there is a reader.
    let awaited = joined(ending);
    let mut tracker = pipeline.finish()?;
    // The report is written in any case.
    let left = left.unwrap_or_else(|error| {
        status.print(&format!("avtrace: warning: probes are left in process {pid}: {error}\n"));
        Left { ending: None, keeps_memory: true }
    });
    awaited.map_err(RunError::system("cannot wait for the end"))?;
    tracker.limit([Limitation::Attached]);
    tracker.limit(left.keeps_memory.then_some(Limitation::KeptMemory));
    Ok(tracker.end(left.ending.map_or(ProgramEnd::Running, ProgramEnd::Ended)))
}

/// Plans while the process runs, and patches it. From then on it stops for records.
fn prepare(
    shared: &Shared,
    id: ProgramId,
    in_process: InProcess,
) -> Result<(Backend, TracedProgram), RunError> {
    let pid = id.pid;
    let mut backend = Backend::from(in_process);
    let first = prepare_first(&shared.options, &mut backend, id, &shared.numbers);
    let mut first = first.map_err(|error| match error {
        RunError::InProcess(InProcessError::NoMemory) => AttachError::EndedMeanwhile { pid }.into(),
        error => error,
    })?;
    first.begin_within();
    // Libraries that were loaded after the plan was made.
    first.libraries(&mut backend, pid);
    backend.start();
    Ok((backend, first))
}
