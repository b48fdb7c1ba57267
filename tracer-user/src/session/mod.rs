//! Course of one run: start the program, attach, release it, check or record while it runs, report. Each step is in a
//! file of its own; this one has their order, and the clean-up when a step fails.

mod coverage;
mod cpu_affinity;
mod dynamic_linker;
mod environment;
pub mod listing;
mod main_thread_exit;
mod memory;
pub mod privileges;
pub mod processes;
pub mod program;
mod program_id;
pub mod record;
mod signals;
pub mod spec;
mod traced_program;
mod traps;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use checker::format;
use tracer_ebpf::{PlanNumber, Target};

pub use self::traced_program::ProgramReport;
use self::{
    listing::Listing,
    memory::watchpoints::WatchError,
    processes::ProcessTracker,
    program::ProgramError,
    program_id::ProgramId,
    record::{RecordError, Recorder},
    traced_program::{FinishedProgram, ProgramEnd, TracedProgram},
};
use crate::{
    kernel::{Kernel, KernelError, LoadOptions},
    live::reader::Reader,
    names,
    probes::{
        SelectError,
        memory::{options::Accesses, watch_spec::WatchSpec},
        own_code::OwnCode,
        plan::{Plan, Wanted},
        regions::patterns::Rules,
        sync::lock_rule::LockRule,
    },
    progress::Steps,
    report::{self, Limitation, NotSeen},
    symbolize::{ProcessAddr, Symbolizer},
    sys::{
        self,
        guardian::Guardian,
        ids::NsPid,
        perf, proc,
        tracee::{self, Ending, Held, Launch, Start},
        user,
    },
};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program's name as the user wrote it, and its arguments.
    pub command: Vec<OsString>,
    /// Ranges to watch.
    pub watch: Vec<WatchSpec>,
    /// Rules for the functions that are regions.
    pub rules: Rules,
    /// Functions that acquire and release locks.
    pub locks: Vec<LockRule>,
    /// Capture of memory accesses.
    pub accesses: Accesses,
    /// Probing of the program's own code.
    pub own_code: OwnCode,
    /// Run all threads on one processor.
    pub serialize: bool,
    /// Options of the checker; `None` to check nothing.
    pub checker: Option<checker::Options>,
    /// Record the events in this file.
    pub record: Option<PathBuf>,
    /// Size of the ring buffer in bytes.
    pub buffer_bytes: u32,
    /// Keep root for the program under sudo.
    pub as_root: bool,
    /// Log what the programs in the kernel do.
    pub debug_bpf: bool,
    /// Attach each probe as a perf event, as on kernels without `uprobe_multi`.
    pub perf_probes: bool,
    /// Trace child processes as well.
    pub follow_forks: bool,
}

impl RunOptions {
    /// Returns the options for the plans of its programs.
    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            rules: &self.rules,
            locks: &self.locks,
            accesses: &self.accesses,
            watches: !self.watch.is_empty(),
            own_code: self.own_code,
        }
    }
}

/// Reason for which a run failed. No process or probe is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program cannot be traced.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The trace cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A range cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// A function cannot be a region.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The kernel side does not work.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The environment of this process has a defect.
    #[error(transparent)]
    Environment(#[from] environment::EnvironmentError),
    /// The program could not be started.
    #[error("cannot start `{program}`: {error}{hint}")]
    Start {
        /// The program.
        program: PathBuf,
        /// Reason.
        error: io::Error,
        /// Remedy.
        hint: String,
    },
    /// The program's memory map or files could not be read.
    #[error("cannot read the memory map of the program: {0}")]
    Symbols(#[from] crate::symbolize::Error),
    /// A system call failed that always works.
    #[error("{what}: {error}{}", remedy(error))]
    System {
        /// Attempted step.
        what: &'static str,
        /// Reason.
        error: io::Error,
    },
}

/// Returns the remedy for a lack of resources.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) => {
            " (raise the limits of memory or threads: `ulimit -v`, `ulimit -u`)"
        }
        Some(libc::EMFILE) => " (raise the limit of open files: `ulimit -n`)",
        _ => "",
    }
}

impl RunError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    /// Returns the exit status of avtrace (`docs/semantics.md#exit-status`).
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Program(_) => 3,
            Self::Watch(error) => error.exit_status(),
            Self::Select(_) => 2,
            _ => 1,
        }
    }
}

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
            let symbolizer = Symbolizer::from_pid(held.pid())?;
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

/// Starts the program and holds it at its entry point.
fn hold(options: &RunOptions, program: &Path) -> io::Result<Start> {
    let start = tracee::launch(Launch {
        program: program.to_owned(),
        arg0: options.command.first().cloned().unwrap_or_default(),
        arguments: options.command.get(1..).unwrap_or_default().to_vec(),
        user: user(options),
    })?;
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
    privileges::check()?;
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
    let (guardian, mut kernel, mut first) = prepared?;
    let guardian = Arc::new(guardian);
    first.start_recorder(0);
    if let Some(error) = first.recorder_error() {
        return Err(error.into());
    }
    let events = kernel.take_events()?;
    sys::memory::check_headroom().map_err(memory_error())?;
    let thread_error = RunError::system("cannot start a thread");
    let copies = kernel.restore_copies()?;
    let (reader, batches) = match Reader::start(events) {
        Ok(started) => started,
        Err(error) => return Err(thread_error(error)),
    };
    let (finished, reporting) = crossbeam_channel::unbounded();
    let tracker = ProcessTracker::new(&options, kernel, first, finished);
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
    limitations.extend(copies.finish().into_iter().map(unrestored));
    let kernel = joined(tracker).end(ending, limitations);
    // The kernel waits for a grace period at each detach: names are looked up meanwhile.
    kernel.detach();
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
        ..report::Context::new(traced_program::subject(&id, end))
    };
    let findings = checker::finding::Findings::default();
    let report = report::assemble(&findings, &mut names::NoNames, context);
    let (exit_code, signal) = traced_program::exit_code_and_signal(end);
    let process = format::Process { pid: Some(pid), argv: id.argv, exit_code, signal };
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

/// Plans and attaches everything while the program stands at its entry point.
fn prepare(
    options: &Arc<RunOptions>,
    held: &Held,
) -> Result<(Guardian, Kernel, TracedProgram), RunError> {
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
    let program = TracedProgram::prepare(options, &mut kernel, id, true, &Steps::on_terminal())?;
    Ok((guardian, kernel, program))
}

/// Returns for each of these places in a thread's memory whether it has a breakpoint instruction.
///
/// # Errors
///
/// When the memory cannot be read, which says nothing about them.
fn breakpoints(thread: u32, places: &[ProcessAddr]) -> io::Result<Vec<bool>> {
    use std::os::unix::fs::FileExt as _;
    const INT3: u8 = 0xcc;
    let memory = proc::memory(thread)?;
    let is_there = |&ProcessAddr(address): &ProcessAddr| {
        let mut byte = [0];
        match memory.read_at(&mut byte, address) {
            Ok(1) => Ok(byte[0] == INT3),
            // The memory of a process that has ended is empty (`fs/proc/base.c`, `mem_rw`).
            Ok(_) => Err(io::Error::other("the process has ended")),
            // Nothing is mapped there.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
            Err(error) => Err(error),
        }
    };
    places.iter().map(is_there).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_are_there_or_not_or_unknown() {
        let bytes = [0xcc_u8, 0x90];
        let at = |byte: &u8| ProcessAddr(std::ptr::from_ref(byte).addr() as u64);
        let places = [at(&bytes[0]), at(&bytes[1]), ProcessAddr(16)];
        let found = breakpoints(std::process::id(), &places).expect("this process's memory");
        assert_eq!(found, [true, false, false]);
        assert!(breakpoints(u32::MAX, &places).is_err(), "no such process");
        let mut ended = std::process::Command::new("true").spawn().expect("it starts");
        let until_end = |pid: u32| proc::Stat::of_process(pid).map(|stat| stat.state);
        while until_end(ended.id()).is_ok_and(|state| state != proc::State::Ended) {
            thread::yield_now();
        }
        assert!(breakpoints(ended.id(), &places).is_err(), "not reaped yet");
        ended.wait().expect("its end");
    }
}
