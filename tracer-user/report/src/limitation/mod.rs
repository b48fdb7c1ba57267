//! Limitations of a run or of a trace: everything that could not be seen, with its data and its sentence. The counts
//! that a report has fields for (`NotSeen`) are not among them.

pub(super) mod json;
mod reasons;

use serde::{Deserialize, Serialize};

pub use self::reasons::{
    PartlySeen, RanOnAt, UnseenLibraries, UntracedProcess, UntracedProgram, UnwatchedVariable,
    WithdrawnProbes,
};
use self::reasons::{focused, hot_regions, left_out, over_budget, remapped_code, share, windows};
use super::quantity::{count as quantity, grouped};

/// Limitation of a run or of a trace, with its data. Strings in the data are names or messages of errors.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantNames,
    thiserror::Error,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Limitation {
    // Records and counters.
    /// The kernel's counters of lost events could not be read.
    #[error(
        "how many events were lost is not known, since the kernel's counters could not be read: do not trust this \
         report to be complete"
    )]
    UnknownLosses,
    /// Not one record came from the program.
    #[error(
        "the kernel side saw nothing of the program, not even its end: do not trust this report"
    )]
    NothingRecorded,
    /// Records in no known format.
    #[error("{} could not be decoded", number(*count, "record", "records"))]
    UndecodableRecords {
        /// Number of records.
        count: u64,
    },
    /// Records of processes that are not traced, or of replaced programs.
    #[error("{} of no known program", number(*count, "record was", "records were"))]
    RecordsWithoutProgram {
        /// Number of records.
        count: u64,
    },
    /// Records with a site that no plan has.
    #[error("{} of no known probe", number(*count, "record was", "records were"))]
    RecordsWithoutProbe {
        /// Number of records.
        count: u64,
    },
    /// Hits of watchpoints that the kernel counted, without a record.
    #[error(
        "{} left no record: what was accessed there is missing",
        number(*count, "watchpoint hit", "watchpoint hits")
    )]
    UnrecordedHits {
        /// Number of hits.
        count: u64,
    },
    /// The kernel's counts of watchpoint hits could not be read, so that no missing record shows.
    #[error(
        "whether every watchpoint hit left a record could not be checked, since the kernel's counts of hits could not \
         be read"
    )]
    UncheckedHits,

    /// Threads without a record, since more threads run at once than have memory for records.
    #[error(
        "of {} nothing was recorded: more threads ran at once than inline probes have memory for",
        quantity(*count, "thread")
    )]
    ThreadsWithoutRings {
        /// Number of threads.
        count: u64,
    },
    /// The program has taken from inline probes what these depend on.
    #[error(
        "{reason}: {}{}",
        match error {
            None => "its probes were taken out, and nothing was recorded from then on".to_owned(),
            Some(error) => format!("its probes could not be taken out ({error}), and what they recorded is incomplete"),
        },
        reason.remedy()
    )]
    WithdrawnProbes {
        /// Act of the program.
        reason: WithdrawnProbes,
        /// Error of taking them out; null where they were.
        error: Option<String>,
    },

    // Probes.
    /// Probes whose breakpoints could not be looked for in the program's memory.
    #[error(
        "whether {} {} in the program's memory could not be checked: {error}",
        quantity(*count, "probe"),
        plural(*count, "is", "are")
    )]
    UncheckedProbes {
        /// Number of probes.
        count: u64,
        /// Error of reading the memory.
        error: String,
    },
    /// A program that maps its own code anew, or may do so: breakpoints kill it then.
    #[error("{}", remapped_code(function, product, setting.as_deref()))]
    RemappedCode {
        /// Function that maps the code.
        function: String,
        /// Product that the function belongs to.
        product: String,
        /// Setting that decides whether the function runs, where there is one.
        setting: Option<String>,
    },
    /// Code of Go, whose goroutines and locks are not known.
    #[error(
        "`{module}` has code of Go, none of whose functions is a region by default: goroutines and the locks of Go are \
         not known, so that what is seen there is that of threads; only code in C that it calls is checked as \
         elsewhere, and functions that --atomic names"
    )]
    GoCode {
        /// File name of the module.
        module: String,
    },
    /// No function that acquires a lock was found.
    #[error(
        "no function that takes locks was found: a statically linked program that was stripped hides them, and \
         violations that only locks show are missed"
    )]
    NoLockFunctions,
    /// A stripped program: its functions have no names, by which locks and start functions are recognised.
    #[error(
        "`{program}` was stripped: its functions go by their addresses, and what is recognised by names is not seen \
         (locks that are taken inline, as those of Rust and of C++ libraries; start functions of threads in C++ and \
         Rust): build it with -g, install its debug symbols (Debian has them in packages that end in -dbgsym), or \
         set DEBUGINFOD_URLS"
    )]
    StrippedProgram {
        /// File name of the program.
        program: String,
    },
    /// Debug files were not fetched from the servers.
    #[error("debug files were not fetched from the servers of DEBUGINFOD_URLS: {problem}")]
    DebugServers {
        /// Reason.
        problem: String,
    },
    /// Libraries that take locks and have no regions by default: they are not the program's own.
    #[error("{}", left_out(libraries))]
    LeftOutLibraries {
        /// File names.
        libraries: Vec<String>,
    },
    /// Functions that could be regions by default, beyond the number that are.
    #[error(
        "{} could be regions beside the {limit} most likely ones: --list-regions shows them, and --atomic NAME takes \
         them in",
        number(*count, "more function", "more functions")
    )]
    UnlikelyRegions {
        /// Number of functions.
        count: u64,
        /// Number of functions that are regions.
        limit: u64,
    },
    /// Only regions and functions that a first pass has named were captured.
    #[error("{}", focused(file, *regions, *functions, *left_out, missing))]
    Focused {
        /// File of the first pass.
        file: String,
        /// Number of its regions that were looked at.
        regions: u64,
        /// Number of its functions whose accesses were probed.
        functions: u64,
        /// Number of regions that were left out.
        left_out: u64,
        /// Its regions that the program does not have, or that could not be probed.
        missing: Vec<String>,
    },
    /// Regions that seldom take a lock and were given up while the program ran.
    #[error("{}", hot_regions(functions))]
    HotRegions {
        /// Functions.
        functions: Vec<String>,
    },
    /// A pattern of an option without a match.
    #[error("{option} {pattern}: {problem}")]
    UnmatchedPattern {
        /// Option.
        option: String,
        /// Pattern.
        pattern: String,
        /// Reason.
        problem: String,
    },
    /// Capture of memory accesses ended before the program did.
    #[error("memory accesses were not seen any more: {error}")]
    CaptureEnded {
        /// Error that ended it.
        error: String,
    },
    /// Functions whose probes were detached for a time to stay within the overhead.
    #[error("{}", over_budget(functions))]
    OverBudget {
        /// Functions, the longest detached first.
        functions: Vec<PartlySeen>,
    },

    /// Windows in which the program was watched, to stay within `--budget`.
    #[error("{}", windows(*watched_ms, *elapsed_ms, *count, *budget))]
    Windows {
        /// Time in windows together, in milliseconds.
        watched_ms: u64,
        /// Time of the capture, in milliseconds.
        elapsed_ms: u64,
        /// Number of windows.
        #[serde(rename = "windows")]
        count: u64,
        /// Bound on the costs of capture, in percent of what the program works.
        budget: u64,
    },

    // Watchpoints.
    /// Hardware watchpoints failed their trial.
    #[error(
        "hardware watchpoints cannot be relied on here ({problem}): nothing was watched{}",
        if *nothing_watched { "" } else { " that was not named, and accesses to what was may be missing" }
    )]
    UntrustedWatchpoints {
        /// Result of the trial.
        problem: String,
        /// Set if not even named ranges were watched.
        nothing_watched: bool,
    },
    /// A `--watch` that names no data of this program.
    #[error("--watch {watch}: {reason}{hint}")]
    UnresolvedWatch {
        /// Range as the user wrote it.
        watch: String,
        /// Reason.
        reason: String,
        /// Remedy, or empty.
        hint: String,
    },
    /// A `--watch` needs more watchpoints than there are.
    #[error(
        "{wanted} ranges are to be watched, and the hardware watches {limit} at a time: leave out some `--watch` (a \
         range that crosses an alignment boundary or is longer than 8 bytes counts more than once)"
    )]
    TooManyWatches {
        /// Number of ranges wanted.
        wanted: u64,
        /// Number of ranges that the hardware watches.
        limit: u64,
    },
    /// A variable that the program names was not watched.
    #[error("the shared variable `{variable}` was not watched: {reason}")]
    UnwatchedVariable {
        /// Name of the variable.
        variable: String,
        /// Reason.
        reason: UnwatchedVariable,
    },
    /// Threads without watchpoints, since they started while these were set.
    #[error(
        "{} started while watchpoints were set: not all of {} accesses may have been seen",
        number(*count, "thread", "threads"),
        plural(*count, "its", "their")
    )]
    ThreadsWithoutWatchpoints {
        /// Number of threads.
        count: u64,
    },
    /// A child process without the watchpoints.
    #[error("watchpoints are not set in child processes")]
    UnwatchedChild,

    // Processes.
    /// A process that was not traced.
    #[error("the process was not traced: {reason}")]
    UntracedProcess {
        /// Reason.
        reason: UntracedProcess,
    },
    /// A program that replaced another one and was not traced.
    #[error("the program was not traced: {reason}")]
    UntracedProgram {
        /// Reason.
        reason: UntracedProgram,
    },
    /// More child processes than are listed.
    #[error("{} not traced", number(*count, "more child process was", "more child processes were"))]
    UntracedChildren {
        /// Number of processes.
        count: u64,
    },
    /// A process that could not be held while probes were attached to it.
    #[error(
        "the process ran on when {at} ({error}): what it did in the {milliseconds} ms until the probes were in place \
         was not seen"
    )]
    RanOn {
        /// Moment.
        at: RanOnAt,
        /// Error of holding it.
        error: String,
        /// Time until the probes were attached, in milliseconds.
        milliseconds: u64,
    },
    /// A child whose start may not have been seen, since records were lost then.
    #[error(
        "records were lost when the process was forked: what it did until the probes were in place may not have been \
         seen"
    )]
    UnseenStart,
    /// The main thread ended, and the probes could not be fixed to another one.
    #[error(
        "the main thread ended before the others, and the probes may have gone with it: {error}"
    )]
    UnanchoredProbes {
        /// Error.
        error: String,
    },
    /// The main thread ended, and the kernel removed probes until they were set anew.
    #[error(
        "the main thread ended before the others, and the kernel {}: what happened until they were set anew was not \
         seen",
        match error {
            None => "removed probes then".to_owned(),
            Some(error) => format!("may have removed probes then ({error})"),
        }
    )]
    RemovedProbes {
        /// Error of looking for them; null where they were seen to be missing.
        error: Option<String>,
    },
    /// Child processes in whose memory breakpoints remained.
    #[error(
        "child processes that were not traced and ran more slowly, since the breakpoints of probes could not be removed \
         from their memory: {count} ({reason})"
    )]
    UnrestoredChildren {
        /// Number of processes.
        count: u64,
        /// Reason.
        reason: String,
    },
    /// The program ended in its dynamic linker.
    #[error("the program ended before it reached its entry point")]
    EndedBeforeEntry,
    /// avtrace attached to a process that ran.
    #[error(
        "the program ran when avtrace attached to it: regions that had begun are not checked, and locks that were held \
         are not known"
    )]
    Attached,
    /// Memory of probes is left in the process, which continues.
    #[error(
        "the memory of inline probes stays mapped in the process, and records nothing: a signal handler that has not \
         returned may come back to it, another tracer's breakpoint is where a probe was, or the process may not unmap it"
    )]
    KeptMemory,
    /// Signals have ended the checking before all was checked.
    #[error(
        "signals have ended the checking before all events were checked: what came last is missing, and a defect may be, \
         too"
    )]
    CutShort,
    /// The program had not ended when tracing did.
    #[error("it still ran when the tracing ended")]
    StillRunning,
    /// Signals of avtrace's making that the program handled.
    #[error(
        "the program has handled {count}{} {} that avtrace's breakpoints or watchpoints have caused, and that it does \
         not receive alone: it may have behaved differently",
        if *or_more { " or more" } else { "" },
        if *count == 1 && !or_more { "SIGTRAP" } else { "SIGTRAPs" }
    )]
    HandledTraps {
        /// Number of signals.
        count: u64,
        /// Set if there may have been more.
        or_more: bool,
    },

    // Libraries.
    /// Libraries that are loaded while the program runs are not seen.
    #[error("libraries that are loaded later are not seen: {reason}")]
    UnseenLibraries {
        /// Reason.
        reason: UnseenLibraries,
    },
    /// A library that was loaded while the program ran was not seen.
    #[error("a library that was loaded later is not seen: {error}")]
    UnseenLibrary {
        /// Error.
        error: String,
    },
    /// A library of which several copies were loaded.
    #[error(
        "`{library}` is loaded more than once: what is known of its functions is that of the first copy"
    )]
    RepeatedLibrary {
        /// Name.
        library: String,
    },

    // Events that do not count.
    /// Joins of threads that are not known.
    #[error(
        "{} nothing",
        number(
            *count,
            "join of a thread whose start was not seen orders",
            "joins of threads whose start was not seen order",
        )
    )]
    UnknownJoins {
        /// Number of joins.
        count: u64,
    },
    /// Regions that ended by a non-local exit.
    #[error(
        "regions that were taken to end at a `longjmp` or an exception, which left them: {count}"
    )]
    LeftRegions {
        /// Number of regions.
        count: u64,
    },
    /// Accesses to watched variables by the code of locks.
    #[error(
        "{} to watched variables {} by the code of locks, which are no data: {} not count",
        number(*count, "access", "accesses"),
        plural(*count, "was", "were"),
        plural(*count, "it does", "they do")
    )]
    LockAccesses {
        /// Number of accesses.
        count: u64,
    },
    /// Hits of watchpoints by instructions with a mask.
    #[error(
        "{} not count: a mask decides what {} access{}, and it may be something beside what is watched",
        number(*count, "hit of a watchpoint does", "hits of watchpoints do"),
        plural(*count, "that instruction", "those instructions"),
        plural(*count, "es", "")
    )]
    MaskedAccesses {
        /// Number of hits.
        count: u64,
    },
    /// Hits of watchpoints by the code of libraries.
    #[error(
        "{} by the code of libraries {} not count: it is not the program's, and reads further than the program has \
         asked for; name a library's functions to see what they access",
        number(*count, "hit of a watchpoint", "hits of watchpoints"),
        plural(*count, "does", "do")
    )]
    LibraryAccesses {
        /// Number of hits.
        count: u64,
    },
    /// Accesses to words that synchronise.
    #[error(
        "{} to words that are compared-and-swapped or exchanged {} as synchronisation, not as data",
        number(*count, "access", "accesses"),
        plural(*count, "counts", "count")
    )]
    WordAccesses {
        /// Number of accesses.
        count: u64,
    },
    /// Accesses to memory that was freed.
    #[error(
        "{} to memory that was given back {} not count: {}, or {} after a free",
        number(*count, "access", "accesses"),
        plural(*count, "does", "do"),
        plural(*count, "it is the allocator's", "they are the allocator's"),
        plural(*count, "comes", "come")
    )]
    FreedAccesses {
        /// Number of accesses.
        count: u64,
    },
    /// Accesses to addresses at which no process has memory, which are a mistake of avtrace's.
    #[error(
        "{} not count: no process has memory at {}, so that a probe of avtrace's was mistaken; please report it, with the \
         program",
        number(*count, "access does", "accesses do"),
        plural(*count, "its address", "their addresses")
    )]
    ImpossibleAccesses {
        /// Number of accesses.
        count: u64,
    },
    /// Releases of locks whose acquires were not seen.
    #[error(
        "{} not count, since how {} taken was not seen: a `try_lock` that the compiler put in line cannot be told from \
         any compare-and-exchange",
        number(*count, "release of a lock does", "releases of locks do"),
        plural(*count, "it was", "they were")
    )]
    UnseenAcquires {
        /// Number of releases.
        count: u64,
    },

    /// The recording beside the run failed.
    #[error("the recording ends early: {error}")]
    RecordingFailed {
        /// Error.
        error: String,
    },

    // Recorded traces.
    /// Limitations in a recording that this version cannot read.
    #[error("what the recording could not see is not readable: {error}")]
    UnreadableLimitations {
        /// Error.
        error: String,
    },
    /// A trace that ends early.
    #[error("the trace is incomplete: {reason}")]
    IncompleteTrace {
        /// Reason.
        reason: String,
    },
    /// Source lines of findings that are neither in a recording nor on this machine.
    #[error(
        "{} not on this machine (in `{file}` first), so that fingerprints may differ from those of the run: {}",
        number(*count, "source line is", "source lines are"),
        match left_out {
            0 => "record with --embed-sources".to_owned(),
            more => format!("the recording had no room for {}", quantity(*more, "line")),
        }
    )]
    MissingSources {
        /// Number of lines.
        count: u64,
        /// File of the first one.
        file: String,
        /// Number of lines that a recording with source lines had no room for.
        left_out: u64,
    },
    /// Lines of a trace that are no events.
    #[error(
        "{}",
        match count {
            1 => format!("line {first} is no event and was left out"),
            more => format!(
                "{} are no events and were left out, line {first} first",
                quantity(*more, "line")
            ),
        }
    )]
    SkippedLines {
        /// Number of lines.
        count: u64,
        /// Number of the first line, from 1.
        first: u64,
    },
    /// Events of a trace that do not fit what came before them.
    #[error(
        "{} did not fit what came before {} and {} left out",
        quantity(*count, "event"),
        plural(*count, "it", "them"),
        plural(*count, "was", "were")
    )]
    IgnoredEvents {
        /// Number of events.
        count: u64,
    },
    /// Violations without a witness in the report, since the memory for witnesses was full.
    #[error(
        "{} {} counted without a witness: there are too many cycles, or too long ones",
        quantity(*count, "violation"),
        plural(*count, "is", "are")
    )]
    UnshownViolations {
        /// Number of instances.
        count: u64,
    },
}

impl Limitation {
    /// Returns the identifier of its kind, in snake case. Reports in JSON have it, and it does not change.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Returns the share of the time that the program was watched, as text, and the number of gaps that windows leave
    /// at most.
    pub(super) fn windows(&self) -> Option<(String, u64)> {
        match self {
            Self::Windows { watched_ms, elapsed_ms, count, .. } => {
                Some((share(*watched_ms, *elapsed_ms), *count))
            }
            _ => None,
        }
    }

    /// Returns whether most runs have it and it needs no action: events that do not count, by their nature.
    pub(super) const fn asks_nothing(&self) -> bool {
        matches!(
            self,
            Self::FreedAccesses { .. }
                | Self::LeftRegions { .. }
                | Self::LibraryAccesses { .. }
                | Self::LockAccesses { .. }
                | Self::MaskedAccesses { .. }
                | Self::UnknownJoins { .. }
                | Self::UnseenAcquires { .. }
                | Self::WordAccesses { .. }
        )
    }
}

/// Returns a number without thousands separators, and what it counts.
fn number(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), plural(count, one, many))
}

/// Returns the form for one, or that for another number.
const fn plural<'text>(count: u64, one: &'text str, many: &'text str) -> &'text str {
    if count == 1 { one } else { many }
}
