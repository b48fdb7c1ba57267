//! Course of a run with probes in the process: this thread starts the program and holds it by ptrace until its end, the
//! others plan, read, check and report. No privileges are needed.

use std::{path::Path, sync::Arc, thread};

use inline::layout::Mode;

use super::{
    cpu_affinity,
    error::RunError,
    finished_program::FinishedProgram,
    launching::{first_program, launch, start_error},
    options::{RunOptions, WhenFull},
    outcome::{Outcome, ended_early, joined},
    processes::ProcessTracker,
    program_end::ProgramEnd,
    program_id::ProgramId,
    signals,
    traced_program::TracedProgram,
};
use crate::progress::Steps;
use capture::{
    backend::Backend,
    in_process::{self, Followed, InProcess, InProcessError, StartError},
    kernel::reader::Batches,
};
use linux::{self, cut::Cut, ids::NsPid, ptrace_breakpoint};
use report::Limitation;

/// Runs a program and checks it, and what it becomes.
///
/// # Errors
///
/// See [`RunError`].
pub(super) fn run(options: &RunOptions, program: &Path) -> Result<Outcome, RunError> {
    let memory_error = RunError::system("cannot set memory aside for the run");
    linux::memory::check_headroom().map_err(memory_error)?;
    // It forks while there is one thread.
    let _ = ptrace_breakpoint::trial();
    let mode = match options.when_full() {
        WhenFull::Wait => Mode::Lossless,
        WhenFull::Drop => Mode::Drop,
    };
    let defers_owned = options.accesses.level.probes_instructions() && options.defers_owned();
    let follows_forks = options.follow_forks;
    let launch = launch(options, program);
    let started = in_process::Tracer::start(launch, mode, follows_forks, defers_owned);
    let started = started.map_err(|error| match error {
        StartError::Start(error) => start_error(options, program, error),
        StartError::InProcess(error) => error.into(),
    })?;
    let (mut tracer, in_process, streams) = match started {
        Followed::Held { tracer, in_process, streams } => (tracer, in_process, streams),
        Followed::Ended { pid, ending } => return ended_early(options, pid, ending),
    };
    let pid = tracer.pid();
    if options.serialize {
        cpu_affinity::on_one_processor(pid)
            .map_err(RunError::system("cannot bind the program to one processor"))?;
    }
    if let Err(error) = tracer.share() {
        // Somebody has killed it: that is its end, and no failure.
        let ending = tracer.end_if_killed(&error).ok_or(error)?;
        return ended_early(options, pid, ending);
    }
    let thread_error = || RunError::system("cannot start a thread");
    let sees_memory = options.accesses.level.probes_instructions();
    let cut = Cut::default();
    let read = in_process::read(streams, sees_memory, &cut);
    let (reader, batches) = read.map_err(thread_error())?;
    let end = in_process.end();
    let (finished, reporting) = crossbeam_channel::unbounded();
    let options = Arc::new(options.clone());
    let id = first_program(&options, pid, NsPid(pid));
    let checking = thread::Builder::new().name("avtrace-checker".to_owned()).spawn({
        let options = Arc::clone(&options);
        move || check((&options, id), in_process, batches, finished)
    });
    let checking = checking.map_err(thread_error())?;
    let reporting = thread::Builder::new()
        .name("avtrace-reports".to_owned())
        .spawn(move || reporting.iter().map(FinishedProgram::report).collect())
        .map_err(thread_error())?;
    let signals =
        signals::forward(pid, &cut).map_err(RunError::system("cannot install signal handlers"))?;
    let ended =
        tracer.run(|| signals.be_alone(end)).map_err(RunError::system("cannot follow the program"));
    signals.be_over();
    let undecodable = reader.finish();
    let tracker = joined(checking)?;
    let Some(ending) = ended? else { return Err(InProcessError::NoMemory.into()) };
    let mut limitations = Vec::new();
    if undecodable > 0 {
        limitations.push(Limitation::UndecodableRecords { count: undecodable });
    }
    if cut.is_asked() {
        limitations.push(Limitation::CutShort);
    }
    tracker.end(ProgramEnd::Ended(ending), limitations).detach();
    let programs = joined(reporting);
    signals.close();
    Ok(Outcome { ending, programs })
}

/// Plans, lets the program start, and checks it until its end.
fn check(
    (options, id): (&Arc<RunOptions>, ProgramId),
    in_process: InProcess,
    batches: Batches,
    finished: crossbeam_channel::Sender<FinishedProgram>,
) -> Result<ProcessTracker, RunError> {
    let mut backend = Backend::InProcess(in_process);
    let mut first = TracedProgram::prepare(options, &mut backend, id, true, &Steps::on_terminal())?;
    first.start_recorder(0);
    if let Some(error) = first.recorder_error() {
        return Err(error.into());
    }
    let tracker = ProcessTracker::new(options, backend, first, finished);
    let mut tracker = tracker.perturbed().map_err(RunError::system("cannot start a thread"))?;
    tracker.start_first();
    Ok(tracker.follow(batches))
}
