//! Course of one run: start the program, attach, release it, check or record while it runs, report. Each step is in a
//! file of its own; this one has their order, and the clean-up when a step fails.

mod coverage;
mod cpu_affinity;
mod dynamic_linker;
mod environment;
mod error;
mod finished_program;
mod inline_run;
pub mod listing;
mod live_processes;
mod main_thread_exit;
mod memory;
mod options;
pub mod privileges;
pub mod processes;
pub mod program;
mod program_end;
mod program_id;
pub mod record;
mod signals;
pub mod spec;
mod stops;
mod system_error;
mod traced_program;
mod traps;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    thread,
};

use abi::{PlanNumber, Target};
use aya::maps::{MapData, RingBuf};
use symbolize::Symbolizer;

pub use self::{
    error::RunError,
    finished_program::ProgramReport,
    options::{CaptureBackend, RunOptions},
};
use self::{
    finished_program::FinishedProgram, listing::Listing, processes::ProcessTracker,
    program_end::ProgramEnd, program_id::ProgramId, record::Recorder,
    traced_program::TracedProgram,
};
use crate::{
    backend::Backend,
    debug_files,
    kernel::{Copies, Kernel, LoadOptions},
    live::reader::Reader,
    names,
    probes::plan::Plan,
    progress::Steps,
    report::{self, Limitation, NotSeen},
    sys::{
        self,
        guardian::Guardian,
        ids::NsPid,
        perf, proc,
        tracee::{self, Ending, Held, Launch, Start},
        user,
    },
};

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// End of the program.
    pub ending: Ending,
    /// Each program that was traced, in the order of their ends: more than one when the process replaced its program,
    /// or children were followed.
    pub programs: Vec<ProgramReport>,
}

/// Plans what would be probed in a program, and does not run it: it is started, held before its first instruction
/// with its libraries loaded, and killed there.
///
/// # Errors
///
/// See [`RunError`].
pub fn inspect(options: &RunOptions) -> Result<Listing, RunError> {
    let program = program::find(options.command.first().unwrap_or(&OsString::new()))?;
    environment::check()?;
    let start_error = |error| start_error(options, &program, error);
    match hold(options, &program).map_err(start_error)? {
        Start::Held(held) => {
            let symbolizer = Symbolizer::from_pid_with(held.pid(), debug_files::search())?;
            let steps = Steps::on_terminal();
            steps.step(|| traced_program::reading(&symbolizer));
            let plan = Plan::build(&symbolizer, held.pid(), options.wanted());
            drop(steps);
            match plan.unmatched.first() {
                Some((_, error)) => Err(error.clone().into()),
                None => Ok(Listing { plan, symbolizer }),
            }
        }
        Start::Ended { .. } => {
            Err(start_error(io::Error::other("it ended before it reached its entry point")))
        }
    }
}

/// Returns the user that the program runs as, if that is not root.
fn user(options: &RunOptions) -> Option<user::Identity> {
    if options.as_root { None } else { user::sudo_user() }
}

/// Returns how the program is started.
fn launch(options: &RunOptions, program: &Path) -> Launch {
    Launch {
        program: program.to_owned(),
        arg0: options.command.first().cloned().unwrap_or_default(),
        arguments: options.command.get(1..).unwrap_or_default().to_vec(),
        user: user(options),
    }
}

/// Starts the program and holds it at its entry point.
fn hold(options: &RunOptions, program: &Path) -> io::Result<Start> {
    let start = tracee::launch(launch(options, program))?;
    match start {
        Start::Held(held) => held.run_to(proc::entry_point),
        ended @ Start::Ended { .. } => Ok(ended),
    }
}

fn start_error(options: &RunOptions, program: &Path, error: io::Error) -> RunError {
    let hint = match user(options) {
        Some(user) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!(" for user {}, id called sudo (`--as-root` runs it as root)", user.name())
        }
        _ => String::new(),
    };
    RunError::Start { program: program.to_owned(), error, hint }
}

/// Runs a program and checks it, and what it becomes.
///
/// # Errors
///
/// See [`RunError`].
pub fn run(options: &RunOptions) -> Result<Outcome, RunError> {
    let program = program::find(options.command.first().unwrap_or(&OsString::new()))?;
    environment::check()?;
    match options.capture {
        CaptureBackend::Inline => return inline_run::run(options, &program),
        CaptureBackend::Auto if !privileges::has_capabilities() => {
            let options = RunOptions { capture: CaptureBackend::Inline, ..options.clone() };
            return inline_run::run(&options, &program);
        }
        CaptureBackend::Kernel | CaptureBackend::Auto => privileges::check()?,
    }
    let memory_error = || RunError::system("cannot set memory aside for the run");
    sys::memory::check_headroom().map_err(memory_error())?;
    let start = hold(options, &program).map_err(|error| start_error(options, &program, error))?;
    let held = match start {
        Start::Held(held) => held,
        Start::Ended { pid, ending } => return ended_early(options, pid, ending),
    };
    let pid = held.pid();
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
    sys::memory::check_headroom().map_err(memory_error())?;
    let thread_error = RunError::system("cannot start a thread");
    let copies = backend.kernel_mut().map(Kernel::restore_copies).transpose()?;
    let (reader, batches) = match Reader::start(events) {
        Ok(started) => started,
        Err(error) => return Err(thread_error(error)),
    };
    let (finished, reporting) = crossbeam_channel::unbounded();
    let tracker = ProcessTracker::new(&options, backend, first, finished);
    let alive = tracker.alive();
    let tracker = thread::Builder::new()
        .name("avtrace-checker".to_owned())
        .spawn({
            let in_case = guardian.in_case_of_panic();
            move || {
                // What was attached is detached before this is dropped.
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
        signals::forward(pid).map_err(RunError::system("cannot install signal handlers"))?;
    let running = held.release().map_err(RunError::system("cannot let the program go"))?;
    let ending = running.await_end().map_err(RunError::system("cannot wait for the program"))?;
    if options.follow_forks {
        signals.await_children(&alive);
    }
    signals.close();
    let undecodable = reader.finish();
    let mut limitations = Vec::new();
    if undecodable > 0 {
        limitations.push(Limitation::UndecodableRecords { count: undecodable });
    }
    let unrestored = |(reason, count)| Limitation::UnrestoredChildren { count, reason };
    limitations.extend(copies.into_iter().flat_map(Copies::finish).map(unrestored));
    let backend = joined(tracker).end(ending, limitations);
    // The kernel waits for a grace period at each detach: names are looked up meanwhile.
    backend.detach();
    Ok(Outcome { ending, programs: joined(reporting) })
}

fn joined<T>(thread: thread::JoinHandle<T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Returns the outcome for a program that ran nothing of its own. Where the dynamic linker refused it, the linker has
/// printed the reason; where a signal killed it, the report says so as for any program.
fn ended_early(options: &RunOptions, pid: u32, ending: Ending) -> Result<Outcome, RunError> {
    let limitations = vec![Limitation::EndedBeforeEntry];
    let (id, end) = (first_program(options, pid, NsPid(pid)), ProgramEnd::Ended(ending));
    let context = report::Context {
        not_seen: NotSeen { limitations, ..NotSeen::default() },
        ..report::Context::new(program_end::subject(&id, end))
    };
    let findings = checker::finding::Findings::default();
    let report = report::assemble(&findings, &mut names::NoNames, context);
    let process = program_end::recorded_process(&id, end);
    let recorded = match &options.record {
        Some(path) => {
            let mut recorder = Recorder::create(path)?;
            recorder.process(&process);
            let recorded = recorder.finish(None, &process, &report.not_seen);
            Some(recorded.map(|events| (path.clone(), events)))
        }
        None => None,
    };
    Ok(Outcome { ending, programs: vec![ProgramReport { report, recorded }] })
}

fn first_program(options: &RunOptions, pid: u32, ns_pid: NsPid) -> ProgramId {
    let argv = options.command.iter().map(|argument| argument.to_string_lossy().into_owned());
    ProgramId {
        pid,
        ns_pid,
        parent: None,
        exec_generation: 1,
        argv: argv.collect(),
        plan: PlanNumber(0),
    }
}

/// A program to which all is attached, and that has not started.
struct Prepared {
    guardian: Guardian,
    events: RingBuf<MapData>,
    backend: Backend,
    first: TracedProgram,
}

/// Plans and attaches everything while the program stands at its entry point.
fn prepare(options: &Arc<RunOptions>, held: &Held) -> Result<Prepared, RunError> {
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
        accesses: options.accesses.level.probes_instructions(),
        // Recordings have each event at its place. A child has the addresses of its parent, and other memory.
        defers_owned: options.record.is_none() && !options.follow_forks,
    })?;
    // Both fork while there is one thread.
    let _ = perf::trial();
    let guardian =
        kernel.start_guardian().map_err(RunError::system("cannot start the guardian"))?;
    if !kernel.has_uprobe_multi() {
        // Nothing is left to do when standard error is closed.
        let _ = writeln!(
            io::stderr(),
            "avtrace: warning: probes are attached one by one, without uprobe_multi links (Linux 6.6): each of them \
             takes a tenth of a second to detach, and they slow other programs down meanwhile"
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
