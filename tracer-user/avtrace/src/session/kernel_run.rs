//! Course of a run with programs in the kernel: start the program, attach, release it, check or record while it runs.

use std::{
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    thread,
};

use abi::Target;
use aya::maps::{MapData, RingBuf};

use super::{
    cpu_affinity,
    error::RunError,
    finished_program::{FinishedProgram, ProgramReport},
    launching::{first_program, hold, start_error},
    options::RunOptions,
    outcome::{Outcome, ended_early, joined},
    processes::ProcessTracker,
    program_end::ProgramEnd,
    signals,
    traced_program::TracedProgram,
};
use crate::progress::Steps;
use capture::{
    backend::Backend,
    kernel::{Copies, Kernel, LoadOptions, reader::Reader},
};
use linux::{
    self,
    cut::Cut,
    guardian::Guardian,
    ids::NsPid,
    perf, proc,
    tracee::{HeldProgram, Start},
};
use report::Limitation;

/// Runs a program and checks it, and what it becomes.
///
/// # Errors
///
/// See [`RunError`].
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
    let Prepared { guardian, events, mut backend, mut first } = prepared?;
    let guardian = Arc::new(guardian);
    first.start_recorder(0);
    if let Some(error) = first.recorder_error() {
        return Err(error.into());
    }
    linux::memory::check_headroom().map_err(memory_error())?;
    let thread_error = RunError::system("cannot start a thread");
    let cut = Cut::default();
    let copies = backend.kernel_mut().map(Kernel::restore_copies).transpose()?;
    let (reader, batches) = match Reader::start(events, &cut) {
        Ok(started) => started,
        Err(error) => return Err(thread_error(error)),
    };
    let (finished, reporting) = crossbeam_channel::unbounded();
    let tracker = ProcessTracker::new(&options, backend, first, finished);
    let tracker = tracker.perturbed().map_err(RunError::system("cannot start a thread"))?;
    let alive = tracker.alive();
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
        .map_err(RunError::system("cannot start a thread"))?;
    let reporting = thread::Builder::new()
        .name("avtrace-reports".to_owned())
        .spawn(move || {
            reporting.iter().map(FinishedProgram::report).collect::<Vec<ProgramReport>>()
        })
        .map_err(RunError::system("cannot start a thread"))?;
    let signals =
        signals::forward(pid, &cut).map_err(RunError::system("cannot install signal handlers"))?;
    let running = held.release().map_err(RunError::system("cannot let the program go"))?;
    let ending = running.await_end().map_err(RunError::system("cannot wait for the program"))?;
    if options.follow_forks {
        signals.await_children(&alive);
    }
    signals.be_over();
    let undecodable = reader.finish();
    let mut limitations = Vec::new();
    if undecodable > 0 {
        limitations.push(Limitation::UndecodableRecords { count: undecodable });
    }
    let unrestored = |(reason, count)| Limitation::UnrestoredChildren { count, reason };
    limitations.extend(copies.into_iter().flat_map(Copies::finish).map(unrestored));
    let tracker = joined(tracker);
    if cut.is_asked() {
        limitations.push(Limitation::CutShort);
    }
    let backend = tracker.end(ProgramEnd::Ended(ending), limitations);
    // The kernel waits for a grace period at each detach: names are looked up meanwhile.
    backend.detach();
    let programs = joined(reporting);
    signals.close();
    Ok(Outcome { ending, programs })
}

/// A program to which all is attached, and that has not started.
struct Prepared {
    guardian: Guardian,
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
    let (pidns_dev, pidns_ino, tgid) =
        proc::pid_namespace(pid).map_err(RunError::system("cannot read the PID namespace"))?;
    let mut kernel = Kernel::load(&LoadOptions {
        target: Target { tgid: tgid.into(), pidns_dev, pidns_ino },
        process: pid,
        buffer_bytes: options.buffer_bytes,
        debug: options.debug_bpf,
        perf_probes: options.perf_probes,
        follow: options.follow_forks,
        is_gated: false,
        accesses: options.accesses.level.probes_instructions(),
        defers_owned: options.defers_owned(),
    })?;
    // Both fork while there is one thread.
    let _ = perf::trial();
    let guardian =
        kernel.start_guardian(None).map_err(RunError::system("cannot start the guardian"))?;
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
    let id = first_program(options, pid, NsPid(tgid));
    let events = kernel.take_events()?;
    let mut backend = Backend::Kernel(Box::new(kernel));
    let first = TracedProgram::prepare(options, &mut backend, id, true, &Steps::on_terminal())?;
    Ok(Prepared { guardian, events, backend, first })
}
