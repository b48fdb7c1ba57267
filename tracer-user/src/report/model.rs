//! The report as data, in the shape of `avtrace-report/1` (`docs/semantics.md#trace-formats`,
//! `docs/report.schema.json`). No lookup of names and no layout lives here.
//!
//! Field order is the key order of the JSON document. Keys may be added; those of the contract keep their
//! meaning.

use serde::{Deserialize, Serialize};

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "avtrace-report/1";

/// Everything that one run found, and everything that it could not see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The program that wrote the report.
    pub tool: Tool,
    /// The name of the checker, such as `davida`.
    pub algorithm: String,
    /// The happens-before relation that the counts are of.
    pub relation: Relation,
    /// Checked levels of nested regions.
    pub nesting: Nesting,
    /// Checked program or trace.
    pub subject: Subject,
    /// Counts over the whole run.
    pub counts: Counts,
    /// True if the transaction graph is free of cycles; `None` when the algorithm does not decide it.
    pub serializable: Option<bool>,
    /// A cycle of transactions, when there is one that no violation shows.
    pub cycle: Option<Vec<Transaction>>,
    /// The dependencies of that cycle, in its order, where the algorithm keeps them. Program order has none.
    #[serde(default)]
    pub cycle_edges: Vec<Edge>,
    /// Violations, one for each static witness, data evidence first.
    pub violations: Vec<Violation>,
    /// Every instance; present only when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<Instance>>,
    /// The threads that were seen, by id.
    pub threads: Vec<Thread>,
    /// The regions that were seen.
    pub regions: Vec<Region>,
    /// Limitations: events, probes and accesses that avtrace could not see, with reasons.
    pub not_seen: NotSeen,
    /// Costs of the run.
    pub summary: Summary,
    /// Coverage of memory accesses; absent where none was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySeen>,
    /// Cause of a death by `SIGTRAP`; absent for another end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trap: Option<TrapDeath>,
}

impl Report {
    /// Returns whether the run shows that something is not atomic: a violation, or a cycle without one.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        !self.violations.is_empty() || self.serializable == Some(false) || self.cycle.is_some()
    }
}

/// The program that wrote a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Name, `avtrace`.
    pub name: String,
    /// Version, such as `0.1.0`.
    pub version: String,
}

/// The happens-before relation in use (`docs/semantics.md#happens-before`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// All dependencies of `docs/semantics.md#dependency`.
    #[default]
    Full,
    /// The dependencies of variables alone.
    Data,
}

/// Checked levels of nested regions (`docs/semantics.md#transactions-and-regions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nesting {
    /// Only the outermost region of a nest.
    #[default]
    Outermost,
    /// Every region of a nest.
    All,
}

/// Checked program or trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// A recorded trace.
    Trace {
        /// The file, as the user named it.
        path: String,
    },
    /// A program that was launched or attached to.
    Process {
        /// Process id, in the PID namespace of avtrace.
        pid: u32,
        /// Arguments, the program first.
        argv: Vec<String>,
        /// Exit status; `None` when a signal ended it, or it was still running.
        exit_code: Option<i32>,
        /// The number of the signal that ended it.
        signal: Option<i32>,
        /// The process that forked it, when that was traced as well.
        #[serde(default)]
        parent: Option<u32>,
        /// Place among the programs that the process ran, from 1: each has a report of its own.
        #[serde(default = "first")]
        program: u32,
        /// Set if the process replaced it by another program (`execve`).
        #[serde(default)]
        replaced: bool,
    },
}

/// Reports before there was a number were of a process's only program.
const fn first() -> u32 {
    1
}

/// Counts over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Events checked.
    pub events: u64,
    /// Threads that did something.
    pub threads: u64,
    /// Transactions, the unary ones included.
    pub transactions: u64,
    /// Transactions of one event outside every region.
    pub unary_transactions: u64,
    /// Dependencies between threads.
    pub dependencies: u64,
    /// Violation instances.
    pub violations: u64,
    /// Transactions with at least one violation instance.
    pub violating_transactions: u64,
    /// Groups of instances with the same regions and code locations along the witness.
    pub distinct_witnesses: u64,
    /// Events lost before they could be checked, all classes together.
    pub lost_events: u64,
}

/// Transaction: an execution of an outermost region, or a single event outside every region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// The thread that ran it: an id of [`Report::threads`].
    pub thread: u32,
    /// Number among the thread's transactions, from 0.
    pub ordinal: u64,
    /// The region's name; `None` for a unary transaction.
    pub region: Option<String>,
    /// The event that opened it; for a unary transaction the event itself.
    pub begin_event: u64,
}

/// A place in source code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// The source file, as the debug information names it.
    pub file: String,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The function, demangled.
    pub function: Option<String>,
}

/// Frame of a code location: inlined calls give several, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceFrame {
    /// The function, demangled. Without line information, `function+0xOFFSET`; for a location that is only a
    /// label in a trace, that label.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// The file that the code was loaded from: the program or a shared library.
    pub module: Option<String>,
    /// Set for a wrapper that the user did not write, such as `std::lock_guard` or gthr-default.h.
    #[serde(rename = "wrapper")]
    pub is_wrapper: bool,
}

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ObjectKind {
    Variable,
    Lock,
    Mutex,
    RwLock,
    Spinlock,
    Condvar,
    Semaphore,
    Barrier,
    Latch,
    Once,
    Parker,
    Channel,
    Futex,
    Thread,
    Sync,
}

/// The thing that events are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Kind.
    pub kind: ObjectKind,
    /// Name in the program, such as `account.balance`, where known.
    pub name: Option<String>,
    /// Process address in hexadecimal, `0x…`, where it has one.
    #[serde(with = "hex_address")]
    pub address: Option<u64>,
}

/// Action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of `checker::finding::Action`")]
pub enum Action {
    Start,
    Begin,
    Read,
    Write,
    Update,
    Acquire,
    Release,
    AcquireShared,
    ReleaseShared,
    Fork,
    Join,
    Signal,
    Wait,
    Arrive,
    Depart,
    Alloc,
    Free,
    End,
    Exit,
}

impl From<checker::finding::Action> for Action {
    fn from(action: checker::finding::Action) -> Self {
        use checker::finding::Action as Found;
        match action {
            Found::Begin => Self::Begin,
            Found::End => Self::End,
            Found::Read => Self::Read,
            Found::Write => Self::Write,
            Found::Update => Self::Update,
            Found::Acquire => Self::Acquire,
            Found::Release => Self::Release,
            Found::AcquireShared => Self::AcquireShared,
            Found::ReleaseShared => Self::ReleaseShared,
            Found::Fork => Self::Fork,
            Found::Start => Self::Start,
            Found::Exit => Self::Exit,
            Found::Join => Self::Join,
            Found::Signal => Self::Signal,
            Found::Wait => Self::Wait,
            Found::Arrive => Self::Arrive,
            Found::Depart => Self::Depart,
            Found::Alloc => Self::Alloc,
            Found::Free => Self::Free,
        }
    }
}

/// Evidence of a violation (`docs/semantics.md#evidence`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The violation holds in the relation of variables alone: the data met.
    Data,
    /// The violation holds only when locks and other synchronisation count.
    Sync,
}

impl From<checker::finding::Evidence> for Evidence {
    fn from(evidence: checker::finding::Evidence) -> Self {
        match evidence {
            checker::finding::Evidence::Data => Self::Data,
            checker::finding::Evidence::Sync => Self::Sync,
        }
    }
}

/// Source of the order of two events (`docs/semantics.md#order`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Synchronisation orders them.
    Synchronised,
    /// Nothing orders them: known up to the capture window only.
    Racy,
}

impl From<checker::finding::Order> for Order {
    fn from(order: checker::finding::Order) -> Self {
        match order {
            checker::finding::Order::Synchronised => Self::Synchronised,
            checker::finding::Order::Racy => Self::Racy,
        }
    }
}

/// An atomicity violation: the first of all instances with the same static witness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// `v1`, `v2`, … in the order of the report.
    pub id: String,
    /// The region that was not atomic.
    pub region: String,
    /// Number of instances that share this static witness.
    pub occurrences: u64,
    /// Evidence.
    pub evidence: Evidence,
    /// `racy` when an edge of the witness is.
    pub order: Order,
    /// The violating transaction.
    pub transaction: Transaction,
    /// The event of the violating transaction that closed the cycle.
    pub trigger_event: u64,
    /// The event of another transaction that it depends on.
    pub source_event: u64,
    /// The cycle: the first and the last are the violating transaction. Empty without witness.
    pub witness: Vec<Transaction>,
    /// The dependencies that link it, in order. Empty without witness.
    pub edges: Vec<Edge>,
    /// Place at which the region was opened.
    pub begin: Option<Location>,
    /// Description of that place, also without line information.
    pub begin_label: String,
    /// The events that matter, in time order.
    pub steps: Vec<Step>,
    /// Locks that the transaction released and acquired again in between.
    pub splits: Vec<Split>,
    /// Known accesses to data where data is not the evidence; `None` where it is, and without witness.
    #[serde(default)]
    pub data_seen: Option<DataSeen>,
    /// Suggested change that would make the region atomic, in plain words.
    pub hint: String,
}

/// The part that data had in a violation whose evidence is synchronisation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSeen {
    /// Transactions of the witness in which no access to a variable was seen before the cycle closed.
    pub without: Vec<Transaction>,
    /// Variables on which transactions of the witness depend on one another, in no cycle.
    pub met: Vec<Object>,
}

/// A dependency: `source` happens before `sink`, on `object`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// The earlier event.
    pub source_event: u64,
    /// The later event.
    pub sink_event: u64,
    /// Object of both events.
    pub object: Object,
    /// Place of the earlier event.
    pub source: Option<Location>,
    /// Place of the later event.
    pub sink: Option<Location>,
    /// The place of the earlier one for people, also without line information.
    pub source_label: String,
    /// The place of the later one for people, also without line information.
    pub sink_label: String,
    /// Action of the earlier event.
    pub source_action: Action,
    /// Action of the later event.
    pub sink_action: Action,
    /// The transaction of the earlier one.
    pub source_transaction: Transaction,
    /// The transaction of the later one.
    pub sink_transaction: Transaction,
    /// Source of their order.
    pub order: Order,
}

/// Reason for which a step is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The step opens a transaction of the witness.
    Begin,
    /// An edge starts at it.
    Source,
    /// An edge ends at it.
    Sink,
    /// The step releases a lock that is acquired again later.
    Released,
    /// The step acquires that lock again.
    Reacquired,
    /// The step closes the cycle.
    Closes,
}

/// An event of the witness, with its place in the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Position in the run, from 0.
    pub event: u64,
    /// The thread that did it: an id of [`Report::threads`].
    pub thread: u32,
    /// The region of its transaction; `None` outside every region.
    pub region: Option<String>,
    /// Action.
    pub action: Action,
    /// To what; `None` for the begin of a region.
    pub object: Option<Object>,
    /// Reasons for which it is shown.
    pub roles: Vec<Role>,
    /// Place: the innermost frame that the user wrote.
    pub location: Option<Location>,
    /// The place for people: `bank.c:45`, `transfer+0x1c (bank)`, or `unknown location`.
    pub label: String,
    /// The wrappers that the place was reached through, the outermost first, such as `std::lock_guard::lock_guard`.
    pub via: Vec<String>,
    /// The source line, without indentation.
    pub source_text: Option<String>,
    /// The values that were observed.
    pub value: Option<Value>,
    /// All frames of the place, innermost first.
    pub frames: Vec<SourceFrame>,
}

/// The observed value of a variable around an access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Before it; for a read, what was read.
    pub before: Option<String>,
    /// After it.
    pub after: Option<String>,
}

/// Lock that the violating transaction released and acquired again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The lock.
    pub lock: Object,
    /// Event of its release.
    pub released_event: u64,
    /// The event that took it again.
    pub reacquired_event: u64,
    /// Place of the release.
    pub released: Option<Location>,
    /// Place of the second acquire.
    pub reacquired: Option<Location>,
    /// Description of the release's place.
    pub released_label: String,
    /// Description of the second acquire's place.
    pub reacquired_label: String,
    /// The transaction of the witness that held the lock in between, at an event of the witness; `None` when no such
    /// hold is known.
    #[serde(default)]
    pub holder: Option<Transaction>,
}

/// Instance of a violation, by event numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The event that opened the violated region.
    pub begin_event: u64,
    /// The event of that region that closed the cycle.
    pub trigger_event: u64,
    /// The event of another transaction that it depends on.
    pub source_event: u64,
}

/// A thread that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The id that the rest of the report uses.
    pub id: u32,
    /// Name, where known.
    pub name: Option<String>,
    /// The operating system's thread id, where known.
    pub tid: Option<u32>,
}

/// A region that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Name.
    pub name: String,
    /// Place of its begin in the source.
    pub location: Option<Location>,
}

/// Everything that a run could not see. All empty or zero: nothing that avtrace knows of was missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NotSeen {
    /// Events lost, by class.
    pub lost_events: Vec<LostEvents>,
    /// Gaps in the stream, at each of which all active regions were abandoned.
    pub gaps: u64,
    /// Probes that were wanted and not placed.
    pub skipped_probes: Vec<SkippedProbes>,
    /// Code locations of the findings that have no function name.
    pub unresolved_locations: u64,
    /// Files or symbols without usable symbols or debug information.
    pub unresolved_symbols: Vec<Missing>,
    /// Child processes that were not traced.
    pub unfollowed_processes: Vec<Process>,
    /// Watchpoint hits whose accessing instruction could not be decoded.
    pub undecoded_accesses: u64,
    /// Reasons with their numbers of accesses, the most frequent first.
    #[serde(default)]
    pub undecoded_reasons: Vec<UndecodedReason>,
    /// Code that regions call and whose accesses no probe saw; null where accesses were not to be seen by probes.
    #[serde(default)]
    pub unprobed_calls: Option<UnprobedCalls>,
    /// Anything else, one sentence each.
    pub notes: Vec<String>,
}

/// Events of one class that were lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEvents {
    /// The class, such as `lock`, `access`, `region`.
    pub class: String,
    /// Number.
    pub count: u64,
}

/// Code that regions call and whose accesses no probe saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnprobedCalls {
    /// Depth of calls to which functions were probed (`--probe-depth`).
    pub depth: u32,
    /// Functions that are called one call deeper.
    pub deeper_functions: u64,
    /// The first three of them.
    pub deeper_names: Vec<String>,
    /// Calls through pointers.
    pub pointer_calls: u64,
    /// Libraries with functions that are called, the C library aside.
    pub libraries: Vec<String>,
    /// Functions of the C library that are called and access memory of their callers.
    pub c_functions: Vec<String>,
}

/// Watchpoint hits whose accessing instruction could not be decoded for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndecodedReason {
    /// Reason.
    pub reason: String,
    /// Number.
    pub count: u64,
}

/// Probes that were wanted and not placed, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedProbes {
    /// Events that they would have shown, such as `pthread_mutex_clocklock in libc.so.6`.
    pub what: String,
    /// Reason for which they were not placed.
    pub reason: String,
    /// Number.
    pub count: u64,
}

/// Something that could not be found, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The symbol or file.
    pub what: String,
    /// Reason for which it was not found.
    pub reason: String,
}

/// A process that was seen and not traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Name, where known.
    pub name: Option<String>,
}

/// Costs of a run. `None` where a value does not apply, as for a recorded trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Wall-clock time in nanoseconds.
    pub elapsed_ns: Option<u64>,
    /// Probes on instructions that the kernel emulates.
    pub probes_emulated: Option<u64>,
    /// Probes on instructions that the kernel single-steps.
    pub probes_single_stepped: Option<u64>,
    /// Hardware watchpoints, as address ranges.
    pub watchpoints: Option<u64>,
    /// Number of allocations and mappings, where memory accesses are seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations: Option<u64>,
    /// Number of frees and unmappings of memory that was seen allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frees: Option<u64>,
    /// The function that is a region and makes more than half of all events, where these are very many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest: Option<Busiest>,
}

/// A region that makes the most events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busiest {
    /// Name.
    pub region: String,
    /// Number of its begins and ends, and of the events in it and in no other region inside.
    pub events: u64,
}

/// Coverage of memory accesses that nobody has named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySeen {
    /// Functions whose instructions were probed.
    pub functions: u64,
    /// Their instructions' accesses that are seen by probes on instructions that the kernel emulates.
    pub emulated: u64,
    /// Accesses that are seen by probes on other instructions.
    pub single_stepped: u64,
    /// Accesses that are not seen, by the reason.
    pub left_out: Vec<LeftOut>,
    /// Accesses to the stack and to variables of one thread, which are not shared.
    pub private: u64,
    /// Addresses that watchpoints were on by turns, the longest first.
    pub watched: Vec<WatchedShare>,
}

/// Accesses that are not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Reason.
    pub reason: String,
    /// Number of instructions with this reason.
    pub count: u64,
}

/// Memory that was watched for a part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchedShare {
    /// Name, where known.
    pub name: Option<String>,
    /// Address.
    #[serde(with = "hex_address")]
    pub address: Option<u64>,
    /// Length in bytes.
    pub length: u64,
    /// For how much of the run, in percent.
    pub percent: f64,
    /// Number of accesses meanwhile.
    pub hits: u64,
}

impl MemorySeen {
    /// Returns the number of accesses that may be shared, in the functions that were probed.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        let left_out: u64 = self.left_out.iter().map(|left_out| left_out.count).sum();
        self.emulated + self.single_stepped + left_out
    }
}

/// Death by `SIGTRAP`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrapDeath {
    /// Cause.
    pub cause: TrapCause,
    /// The address of the breakpoint instruction, or for a debug exception of the next instruction; `None` when it is
    /// not known.
    #[serde(with = "hex_address")]
    pub address: Option<u64>,
    /// Description of that place; `None` outside of all files.
    pub location: Option<String>,
    /// The cause in words.
    pub message: String,
    /// Remedy, where there is one.
    pub help: Option<String>,
}

/// Cause of a `SIGTRAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrapCause {
    /// A breakpoint of avtrace in code that the program has copied elsewhere.
    CopiedCode,
    /// A breakpoint of avtrace at its place, where the program has mapped other memory since.
    RemappedCode,
    /// A breakpoint instruction that the program has made, or an altered copy of code with a breakpoint of avtrace.
    Breakpoint,
    /// A debug exception that the processor raised without naming its cause.
    DebugException,
    /// The program itself, or another process that has sent the signal.
    Program,
    /// Not known.
    Unknown,
}

impl TrapCause {
    /// Returns whether avtrace has caused it: the program alone would not have received the signal.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::CopiedCode | Self::RemappedCode | Self::DebugException)
    }

    /// The cause in a few words.
    #[must_use]
    pub const fn in_short(self) -> &'static str {
        match self {
            Self::CopiedCode => "a breakpoint of avtrace in code that it had copied",
            Self::RemappedCode => "a breakpoint of avtrace in code that it had mapped anew",
            Self::Breakpoint => "a breakpoint instruction outside of its files",
            Self::DebugException => "a debug exception without a cause",
            Self::Program => "its own doing",
            Self::Unknown => "the cause is not known",
        }
    }
}

/// Addresses as `0x…` strings: JSON numbers lose bits in many readers.
mod hex_address {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
    pub fn serialize<S: Serializer>(address: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match address {
            Some(address) => to.collect_str(&format_args!("{address:#x}")),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        text.strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map(Some)
            .ok_or_else(|| {
                D::Error::custom(format_args!("`{text}` is not an address of the form 0x…"))
            })
    }
}
