//! Course of a run with programs in the kernel: start the program, attach, release it, check or record while it runs.

use std::{
    io::{self, Write as _},
    path::Path,
    sync::Arc,
};

use aya::maps::{MapData, RingBuf};

use super::{
    cpu_affinity,
    error::RunError,
    launching::{first_program, hold, start_error},
    loaded_kernel::{LoadedKernel, unrestored},
    options::RunOptions,
    outcome::{Outcome, ended_early},
    pipeline::{Pipeline, prepare_first},
    processes::ProcessTracker,
    program_end::ProgramEnd,
    recording_numbers::RecordingNumbers,
    signals,
    traced_program::TracedProgram,
};
use capture::{backend::Backend, kernel::reader::Reader};
use linux::{
    self,
    cut::Cut,
    guardian::Guardian,
    tracee::{HeldProgram, Start},
};

/// Runs a program and checks it, and what it becomes.
pub(super) fn run(options: &RunOptions, program: &Path) -> Result<Outcome, RunError> {
    let memory_error = || RunError::system("cannot set memory aside for the run");
    linux::memory::check_headroom().map_err(memory_error())?;
    let start = hold(options, program).map_err(|error| start_error(options, program, error))?;
    let held = match start {
        Start::Held(held) => held,
        Start::Ended { pid, ending } => return ended_early(options, pid, ending),
    };
    let pid = held.pid();
    // The program has been started, with the limit that avtrace was started with. Where it cannot be raised, attaching
    // may find that there is no room, and what exceeds it is reported as not seen. A program that is started after a
    // failure here, to be traced in another way, has the limit as it was.
    let _raised = linux::descriptors::RaisedLimit::new();
    let options = Arc::new(options.clone());
    let prepared = prepare(&options, &held);
    if let Some(ending) = held.ended() {
        return ended_early(&options, pid, ending);
    }
    // The guardian outlives all that may stop the program.
    let Prepared { guardian, events, mut backend, first } = prepared?;
    linux::memory::check_headroom().map_err(memory_error())?;
    let cut = Cut::default();
    // A thread, which may not be there if the other back end is to start the program.
    let copies = backend.restore_copies()?;
    let read = Reader::start(events, &cut);
    let (reader, batches) = read.map_err(RunError::system("cannot start a thread"))?;
    let tracker = ProcessTracker::new(&options, backend, first)?;
    let alive = tracker.alive();
    let in_case = guardian.in_case_of_panic();
    let pipeline = Pipeline::start(reader, batches, &cut, in_case, || Ok(tracker))?;
    let signals = signals::forward(pid, &cut, Arc::new(true.into()))
        .map_err(RunError::system("cannot install signal handlers"))?;
    let running = held.release().map_err(RunError::system("cannot let the program go"))?;
    let ending = running.await_end().map_err(RunError::system("cannot wait for the program"))?;
    if options.follow_forks {
        signals.await_children(&alive);
    }
    signals.be_over();
    let mut tracker = pipeline.finish()?;
    tracker.limit(copies.into_iter().flat_map(unrestored));
    let programs = tracker.end(ProgramEnd::Ended(ending));
    Ok(Outcome { ending, programs, signals: Some(signals) })
}

/// A program to which all is attached, and that has not started.
struct Prepared {
    guardian: Arc<Guardian>,
    events: RingBuf<MapData>,
    backend: Backend,
    first: TracedProgram,
}

/// Plans and attaches everything while the program stands at its entry point.
fn prepare(options: &Arc<RunOptions>, held: &HeldProgram) -> Result<Prepared, RunError> {
    let pid = held.pid();
    if options.serialize {
        cpu_affinity::on_one_processor(pid)
            .map_err(RunError::system("cannot bind the program to one processor"))?;
    }
    let LoadedKernel { mut kernel, guardian, ns_pid } = LoadedKernel::load(options, false, pid)?;
    if !kernel.has_uprobe_multi() {
        // Nothing is left to do when standard error is closed.
        let _ = writeln!(
            io::stderr(),
            "avtrace: warning: probes are attached one by one, without uprobe_multi links (Linux 6.6): after the end \
             a process in the background detaches them, each in up to a tenth of a second, and they slow down other \
             programs that use the same files meanwhile"
        );
    }
    if options.debug_bpf {
        kernel.print_log()?;
    }
    kernel.attach_threads()?;
    if options.follow_forks {
        kernel.follow_children()?;
    }
    let id = first_program(options, pid, ns_pid);
    let events = kernel.take_events()?;
    let mut backend = Backend::from(kernel);
    let first = prepare_first(options, &mut backend, id, &RecordingNumbers::default())?;
    Ok(Prepared { guardian, events, backend, first })
}
