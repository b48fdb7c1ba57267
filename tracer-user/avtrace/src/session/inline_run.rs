//! Course of a run with probes in the process: this thread starts the program and holds it by ptrace until its end, the
//! others plan, read, check and report. No privileges are needed.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    cpu_affinity,
    error::RunError,
    launching::{first_program, launch, start_error},
    options::RunOptions,
    outcome::{Outcome, ended_early},
    pipeline::{Pipeline, prepare_first},
    processes::ProcessTracker,
    program_end::ProgramEnd,
    recording_numbers::RecordingNumbers,
    signals,
};
use capture::{
    backend::Backend,
    in_process::{self, Followed, InProcessError, StartError},
};
use linux::{self, cut::Cut, ids::NsPid, ptrace_breakpoint, test_number};

/// Runs a program and checks it, and what it becomes.
pub(super) fn run(options: &RunOptions, program: &Path) -> Result<Outcome, RunError> {
    let memory_error = RunError::system("cannot set memory aside for the run");
    linux::memory::check_headroom().map_err(memory_error)?;
    // It forks while there is one thread.
    let _ = ptrace_breakpoint::trial();
    let defers_owned = options.accesses.level.probes_instructions() && options.defers_owned();
    let follows_forks = options.follow_forks;
    let launch = launch(options, program);
    let mode = options.ring_mode();
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
    let sees_memory = options.accesses.level.probes_instructions();
    let cut = Cut::default();
    let read = in_process::read(streams, sees_memory, &cut);
    let (reader, batches) = read.map_err(RunError::system("cannot start a thread"))?;
    let end = in_process.end();
    let options = Arc::new(options.clone());
    let is_started = Arc::<AtomicBool>::default();
    let starts = Arc::clone(&is_started);
    // Plans, and lets the program start.
    let track = move || {
        let mut backend = Backend::from(in_process);
        let id = first_program(&options, pid, NsPid(pid));
        let first = prepare_first(&options, &mut backend, id, &RecordingNumbers::default())?;
        let mut tracker = ProcessTracker::new(&options, backend, first)?;
        if let Some(delay) = test_number::get("AVTRACE_TEST_PLAN_DELAY_MS") {
            thread::sleep(Duration::from_millis(delay));
        }
        starts.store(true, Ordering::Release);
        tracker.start_first();
        Ok(tracker)
    };
    let pipeline = Pipeline::start(reader, batches, &cut, (), track)?;
    let signals = signals::forward(pid, &cut, is_started)
        .map_err(RunError::system("cannot install signal handlers"))?;
    let ended =
        tracer.run(|| signals.be_alone(end)).map_err(RunError::system("cannot follow the program"));
    signals.be_over();
    let tracker = pipeline.finish()?;
    let Some(ending) = ended? else { return Err(InProcessError::NoMemory.into()) };
    let programs = tracker.end(ProgramEnd::Ended(ending));
    Ok(Outcome { ending, programs, signals: Some(signals) })
}
