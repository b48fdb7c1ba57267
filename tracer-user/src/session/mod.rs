//! One run: start the program, attach, let it go, check or record while it runs, report. Each step is in a file of its own;
//! this one says in which order, and what is undone when a step fails.

pub mod checking;
pub mod list;
pub mod names;
pub mod privileges;
pub mod program;
pub mod record;
pub mod spec;
pub mod watches;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use checker::{event::EventNumber, format};

use tracer_ebpf::Target;

use self::{
    checking::{Checked, Checking},
    list::Listing,
    names::LiveNames,
    program::ProgramError,
    record::{RecordError, Recorder},
    watches::{WatchError, Watches},
};
use crate::{
    kernel::{Kernel, KernelError, LoadOptions},
    live::{reader::Reader, source::Source},
    probes::{
        locks_spec::LockRule,
        markers::Meaning,
        placement::Cost,
        plan::{Plan, PlannedProbe, SelectError, Site, SiteKind, SkippedProbe},
        select::Rules,
        watch::WatchSpec,
    },
    report::{
        self, LostEvents, Missing, NotSeen, Process, Report, SkippedProbes, Subject, Summary,
    },
    symbolize::{ProcessAddr, Symbolizer},
    sys::{
        perf,
        tracee::{self, Ending, Held, Launch, Start},
        user,
    },
};

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program's name as the user wrote it, and its arguments.
    pub command: Vec<OsString>,
    /// What to watch.
    pub watch: Vec<WatchSpec>,
    /// Which functions are regions.
    pub rules: Rules,
    /// Which functions take locks and let go of them.
    pub locks: Vec<LockRule>,
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
}

/// Why a run failed. Nothing is left behind then: no process, no probe.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program cannot be traced.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The trace cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// What is to be watched cannot be.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// What is to be a region cannot be.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The kernel side does not work.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Something is amiss around this process.
    #[error(transparent)]
    Surroundings(#[from] privileges::SurroundingsError),
    /// The program could not be started.
    #[error("cannot start `{program}`: {error}{hint}")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        error: io::Error,
        /// What to do about it.
        hint: String,
    },
    /// Its memory map or files could not be read.
    #[error("cannot read the memory map of the program: {0}")]
    Symbols(#[from] crate::symbolize::Error),
    /// A system call failed that always works.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

impl RunError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    /// The exit status of avtrace for it (`SPEC.md` §8).
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

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// How the program ended.
    pub ending: Ending,
    /// What was found; no more than counts, and what was not seen, when nothing was checked.
    pub report: Report,
    /// How many events were recorded, when they were to be.
    pub recorded: Option<Result<EventNumber, RecordError>>,
}

/// Plans what would be probed in a program, and does not run it: it is started, held before its first instruction
/// with its libraries loaded, and killed there.
///
/// # Errors
///
/// See [`RunError`].
pub fn inspect(options: &RunOptions) -> Result<Listing, RunError> {
    let program = program::find(options.command.first().unwrap_or(&OsString::new()))?;
    privileges::check_surroundings()?;
    let start_error = |error| start_error(options, &program, error);
    let held = hold(options, &program).map_err(start_error)?;
    match held.run_to(privileges::entry_point).map_err(start_error)? {
        Start::AtEntry(held) => {
            let symbolizer = Symbolizer::from_pid(held.pid())?;
            let plan = Plan::of(&symbolizer, held.pid(), &options.rules, &options.locks)?;
            Ok(Listing { plan, symbolizer })
        }
        Start::Ended(_) => {
            Err(start_error(io::Error::other("it ended before it reached its entry point")))
        }
    }
}

/// For whom the program runs, when that is not for root.
fn user(options: &RunOptions) -> Option<user::Identity> {
    if options.as_root { None } else { user::sudo_user() }
}

/// Starts the program and holds it at its first instruction.
fn hold(options: &RunOptions, program: &Path) -> io::Result<Held> {
    tracee::launch(Launch {
        program: program.to_owned(),
        arg0: options.command.first().cloned().unwrap_or_default(),
        arguments: options.command.get(1..).unwrap_or_default().to_vec(),
        user: user(options),
    })
}

fn start_error(options: &RunOptions, program: &Path, error: io::Error) -> RunError {
    let hint = match user(options) {
        Some(user) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!(" for user {}, who called sudo (`--as-root` runs it as root)", user.name())
        }
        _ => String::new(),
    };
    RunError::Start { program: program.to_owned(), error, hint }
}

/// Runs a program and checks it.
///
/// # Errors
///
/// See [`RunError`].
pub fn run(options: &RunOptions) -> Result<Outcome, RunError> {
    let program = program::find(options.command.first().unwrap_or(&OsString::new()))?;
    privileges::check_surroundings()?;
    privileges::check()?;
    let started = Instant::now();
    let start_error = |error| start_error(options, &program, error);
    let held = hold(options, &program).map_err(start_error)?;
    let pid = held.pid();
    let subject = |ending| subject(pid, &options.command, ending);
    let held = match held.run_to(privileges::entry_point).map_err(start_error)? {
        Start::AtEntry(held) => held,
        Start::Ended(ending) => return ended_early(options, pid, ending),
    };
    let prepared = prepare(options, &held);
    if let Some(ending) = held.ended() {
        return ended_early(options, pid, ending);
    }
    let Prepared { kernel, events, source, target, skipped, summary, mut notes } = prepared?;
    let recorder = start_recorder(options, pid)?;
    let (reader, batches) =
        Reader::start(events).map_err(RunError::system("cannot start a thread"))?;
    let checking = Checking::start(batches, source, kernel, options.checker, recorder, target)
        .map_err(RunError::system("cannot start a thread"))?;
    let signals = privileges::forward_signals(pid)
        .map_err(RunError::system("cannot install signal handlers"))?;
    let running = held.release().map_err(RunError::system("cannot let the program go"))?;
    let ending = running.await_end().map_err(RunError::system("cannot wait for the program"))?;
    signals.close();
    let undecodable = reader.finish();
    let Checked { findings, recorder, source, kernel, notes: later_notes, values } =
        checking.finish();
    let lost = kernel.lost();
    if let Some(unseen) = unseen_hits(&kernel, &source, &lost) {
        notes.push(unseen);
    }
    notes.extend(later_notes);
    if undecodable > 0 {
        notes.push(format!("{undecodable} records could not be decoded"));
    }
    if !source.saw_exit() {
        notes.push(
            "the kernel side saw nothing of the program, not even its end: do not trust this report".to_owned(),
        );
    }
    let not_seen = not_seen(&source, &lost, skipped, notes);
    let context = report::Context {
        not_seen,
        summary: summary.with_elapsed(started.elapsed()),
        nesting: match options.checker.map(|options| options.regions) {
            Some(checker::Regions::All) => report::Nesting::All,
            Some(checker::Regions::Outermost) | None => report::Nesting::Outermost,
        },
        ..report::Context::new(subject(ending))
    };
    let mut names = LiveNames::new(source, values);
    // The kernel waits for a grace period at each detach: names are looked up meanwhile.
    let (report, recorded) = thread::scope(|scope| {
        scope.spawn(|| kernel.detach());
        let report = report::assemble(&findings, &mut names, context);
        let process = recorded_process(pid, &options.command, Some(ending));
        let recorded =
            recorder.map(|recorder| recorder.finish(Some(&mut names), &process, &report.not_seen));
        (report, recorded)
    });
    Ok(Outcome { ending, report, recorded })
}

/// A recording that was there before is gone from here on, so nothing should fail any more that can fail early.
fn start_recorder(options: &RunOptions, pid: u32) -> Result<Option<Recorder>, RecordError> {
    let Some(path) = &options.record else { return Ok(None) };
    let mut recorder = Recorder::create(path)?;
    recorder.process(&recorded_process(pid, &options.command, None));
    Ok(Some(recorder))
}

/// What a recording says of the process.
fn recorded_process(pid: u32, command: &[OsString], ending: Option<Ending>) -> format::Process {
    let (exit_code, signal) = ending.map_or((None, None), exit_code_and_signal);
    format::Process { pid: Some(pid), argv: arguments(command), exit_code, signal }
}

/// The outcome for a program that ran nothing of its own. Where the dynamic linker refused it, that has told the user
/// why.
fn ended_early(options: &RunOptions, pid: u32, ending: Ending) -> Result<Outcome, RunError> {
    let notes = vec!["the program ended before it reached its entry point".to_owned()];
    let context = report::Context {
        not_seen: NotSeen { notes, ..NotSeen::default() },
        ..report::Context::new(subject(pid, &options.command, ending))
    };
    let findings = checker::finding::Findings::default();
    let report = report::assemble(&findings, &mut names::NoNames, context);
    let process = recorded_process(pid, &options.command, Some(ending));
    let recorded = start_recorder(options, pid)?
        .map(|recorder| recorder.finish(None, &process, &report.not_seen));
    Ok(Outcome { ending, report, recorded })
}

/// Everything that is ready when the program is let go.
struct Prepared {
    kernel: Kernel,
    events: aya::maps::RingBuf<aya::maps::MapData>,
    source: Source,
    target: checking::Target,
    skipped: Vec<SkippedProbe>,
    summary: Summary,
    notes: Vec<String>,
}

/// Plans and attaches everything while the program stands at its entry point.
fn prepare(options: &RunOptions, held: &Held) -> Result<Prepared, RunError> {
    let pid = held.pid();
    let symbolizer = Symbolizer::from_pid(pid)?;
    let mut plan = Plan::of(&symbolizer, pid, &options.rules, &options.locks)?;
    let has_locks = plan.has_locks();
    let mut watches = Watches::resolve(&options.watch, &plan.shared, &symbolizer)?;
    let (pidns_dev, pidns_ino, tgid) = privileges::pid_namespace(pid)
        .map_err(RunError::system("cannot read the PID namespace"))?;
    let mut kernel = Kernel::load(&LoadOptions {
        target: Target { tgid: tgid.into(), pidns_dev, pidns_ino },
        process: pid,
        buffer_bytes: options.buffer_bytes,
        debug: options.debug_bpf,
        perf_probes: options.perf_probes,
    })?;
    let mut notes = Vec::new();
    if !has_locks {
        notes.push(
            "no function that takes locks was found: a statically linked program that was stripped hides them, \
             and violations that only locks show are missed"
                .to_owned(),
        );
    }
    if !kernel.has_uprobe_multi() {
        let seconds = plan.probes.len().div_ceil(9);
        // When nobody reads it there is nobody to tell.
        let _ = writeln!(
            io::stderr(),
            "avtrace: warning: probes are attached one by one, without uprobe_multi links (Linux 6.6): {} of them \
             may take {seconds} s to detach, and slow other programs down meanwhile",
            plan.probes.len()
        );
    }
    if options.debug_bpf {
        privileges::print_log(&mut kernel)?;
    }
    kernel.attach_threads()?;
    let points: Vec<_> = plan.probes.iter().map(|probe| probe.point.clone()).collect();
    let mut failed = vec![false; points.len()];
    let mut skipped = Vec::new();
    for refusal in kernel.attach_probes(points)? {
        failed[refusal.index] = true;
        skipped.push(SkippedProbe {
            what: plan.probes[refusal.index].what.clone(),
            reason: format!("the kernel refuses it: {}", refusal.error),
        });
    }
    let attached: Vec<(usize, &PlannedProbe)> =
        plan.probes.iter().enumerate().filter(|(index, _)| !failed[*index]).collect();
    let count = |cost| attached.iter().filter(|(_, probe)| probe.cost == cost).count() as u64;
    let (emulated, single_stepped) = (count(Cost::Emulated), count(Cost::SingleStepped));
    let mut places: Vec<ProcessAddr> = attached.iter().map(|(_, probe)| probe.address).collect();
    // Self-test of the probes: each must show in the program's memory.
    let are_there = breakpoints(pid, &places);
    for ((index, probe), is_there) in attached.iter().zip(&are_there) {
        if !is_there {
            failed[*index] = true;
            skipped.push(SkippedProbe {
                what: probe.what.clone(),
                reason: "it was attached, and no breakpoint appeared in the program's memory"
                    .to_owned(),
            });
        }
    }
    let mut are_there = are_there.into_iter();
    places.retain(|_| are_there.next() == Some(true));
    plan.without((0..failed.len()).filter(|&index| failed[index]));
    let Plan { sites, skipped: unplanned, .. } = plan;
    skipped.extend(unplanned);
    let is_shared = |site: &Site| matches!(&site.kind, SiteKind::Marker(Meaning::Shared(_)));
    watches.attach(&mut kernel, pid, sites.iter().any(is_shared))?;
    notes.append(&mut watches.notes);
    let summary = Summary {
        probes_emulated: Some(emulated),
        probes_single_stepped: Some(single_stepped),
        watchpoints: Some(watches.ranges.len() as u64),
        ..Summary::default()
    };
    if !watches.ranges.is_empty() && !perf::breakpoints_work() {
        notes.push(
            "hardware watchpoints do not fire on this machine: no access was seen".to_owned(),
        );
    }
    let events = kernel.take_events()?;
    let source = Source::new(sites, symbolizer, watches.ranges, tgid);
    let target = checking::Target { pid, probes: places };
    Ok(Prepared { kernel, events, source, target, skipped, summary, notes })
}

/// Which of these places in a thread's memory have a breakpoint instruction; all of them where the memory cannot be
/// read, which says nothing about them.
fn breakpoints(thread: u32, places: &[ProcessAddr]) -> Vec<bool> {
    use std::os::unix::fs::FileExt as _;
    const INT3: u8 = 0xcc;
    let Ok(memory) = std::fs::File::open(format!("/proc/{thread}/mem")) else {
        return vec![true; places.len()];
    };
    let is_there = |&ProcessAddr(address): &ProcessAddr| {
        let mut byte = [0];
        memory.read_exact_at(&mut byte, address).is_ok() && byte[0] == INT3
    };
    places.iter().map(is_there).collect()
}

/// Self-test of the watchpoints: each hit has left a record, or was counted as lost.
fn unseen_hits(
    kernel: &Kernel,
    source: &Source,
    lost: &[(tracer_ebpf::Class, u64)],
) -> Option<String> {
    // After `execve` the addresses are those of another program.
    if source.omissions().replaced {
        return None;
    }
    let lost = lost.iter().find(|(class, _)| *class == tracer_ebpf::Class::Access);
    let seen = source.hits() + lost.map_or(0, |(_, count)| *count);
    let unseen = kernel.hits()?.checked_sub(seen).filter(|&unseen| unseen > 0)?;
    Some(format!("{unseen} watchpoint hits left no record: what was accessed there is missing"))
}

fn subject(pid: u32, command: &[OsString], ending: Ending) -> Subject {
    let (exit_code, signal) = exit_code_and_signal(ending);
    Subject::Process { pid, argv: arguments(command), exit_code, signal }
}

fn exit_code_and_signal(ending: Ending) -> (Option<i32>, Option<i32>) {
    match ending {
        Ending::Exited(status) => (Some(status), None),
        Ending::Killed(signal) => (None, Some(signal)),
    }
}

fn arguments(command: &[OsString]) -> Vec<String> {
    command.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

fn not_seen(
    source: &Source,
    lost: &[(tracer_ebpf::Class, u64)],
    skipped: Vec<SkippedProbe>,
    mut notes: Vec<String>,
) -> NotSeen {
    let omissions = source.omissions();
    let mut skipped_probes: Vec<SkippedProbes> = Vec::new();
    for SkippedProbe { what, reason } in skipped {
        match skipped_probes.iter_mut().find(|known| known.what == what && known.reason == reason) {
            Some(known) => known.count += 1,
            None => skipped_probes.push(SkippedProbes { what, reason, count: 1 }),
        }
    }
    if omissions.replaced {
        notes.push(
            "the program replaced itself (execve): what it did after that was not traced"
                .to_owned(),
        );
    }
    if omissions.unknown_joins > 0 {
        let joins = omissions.unknown_joins;
        notes.push(format!("{joins} joins of threads whose start was not seen order nothing"));
    }
    if omissions.left_regions > 0 {
        notes.push(format!(
            "regions that were taken to end at a `longjmp` or an exception, which left them: {}",
            omissions.left_regions
        ));
    }
    if source.unseen_holds() > 0 {
        notes.push(format!(
            "{} releases of locks do not count, since how they were taken was not seen: a `try_lock` that the \
             compiler put in line cannot be told from any compare-and-exchange",
            source.unseen_holds()
        ));
    }
    if omissions.foreign_records > 0 {
        notes.push(format!("{} records were of no known probe", omissions.foreign_records));
    }
    let listed = omissions.child_processes.len() as u64;
    if omissions.child_process_count > listed {
        let more = omissions.child_process_count - listed;
        notes.push(format!("{more} more child processes were not traced"));
    }
    NotSeen {
        lost_events: lost
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|&(class, count)| LostEvents { class: format!("{class:?}").to_lowercase(), count })
            .collect(),
        skipped_probes,
        unfollowed_processes: omissions
            .child_processes
            .iter()
            .map(|child| Process { pid: child.pid, name: Some(child.name.clone()) })
            .collect(),
        unresolved_symbols: source
            .symbolizer
            .modules()
            .filter_map(|module| {
                let error = module.file().err()?;
                Some(Missing { what: module.name(), reason: error.to_string() })
            })
            .collect(),
        undecoded_accesses: omissions.undecoded_accesses,
        notes,
        ..NotSeen::default()
    }
}
