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
    /// Which levels of nested regions were checked.
    pub nesting: Nesting,
    /// What was checked.
    pub subject: Subject,
    /// Counts over the whole run.
    pub counts: Counts,
    /// Whether the transaction graph is free of cycles; `None` when the algorithm does not decide it.
    pub serializable: Option<bool>,
    /// A cycle of transactions, when there is one that no violation shows.
    pub cycle: Option<Vec<Transaction>>,
    /// The dependencies of that cycle, in its order, where the algorithm keeps them. Program order has none.
    #[serde(default)]
    pub cycle_edges: Vec<Edge>,
    /// One for each static witness, data evidence first.
    pub violations: Vec<Violation>,
    /// Every instance; present only when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<Instance>>,
    /// The threads that were seen, by id.
    pub threads: Vec<Thread>,
    /// The regions that were seen.
    pub regions: Vec<Region>,
    /// What avtrace could not see, and why.
    pub not_seen: NotSeen,
    /// What the run took.
    pub summary: Summary,
    /// What was seen of memory; absent where nothing was to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySeen>,
    /// Why `SIGTRAP` killed the program; absent where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trap: Option<TrapDeath>,
}

impl Report {
    /// Whether the run shows that something is not atomic: a violation, or a cycle without one.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        !self.violations.is_empty() || self.serializable == Some(false) || self.cycle.is_some()
    }
}

/// The program that wrote a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name, `avtrace`.
    pub name: String,
    /// Its version, such as `0.1.0`.
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

/// Which levels of nested regions are checked (`docs/semantics.md#transactions-and-regions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nesting {
    /// Only the outermost region of a nest.
    #[default]
    Outermost,
    /// Every region of a nest.
    All,
}

/// What was checked.
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
        /// Its process id, in the PID namespace of avtrace.
        pid: u32,
        /// Its arguments, the program first.
        argv: Vec<String>,
        /// Its exit status; `None` when a signal ended it, or it was still running.
        exit_code: Option<i32>,
        /// The number of the signal that ended it.
        signal: Option<i32>,
        /// The process that forked it, when that was traced as well.
        #[serde(default)]
        parent: Option<u32>,
        /// Which of the programs that the process ran this is, from 1: each has a report of its own.
        #[serde(default = "first")]
        program: u32,
        /// Whether the process replaced it by another program (`execve`).
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

/// One transaction: an execution of an outermost region, or a single event outside every region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// The thread that ran it: an id of [`Report::threads`].
    pub thread: u32,
    /// Its number among the thread's transactions, from 0.
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

/// One frame of a code location: inlined calls give several, the innermost first.
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
    /// Whether this is a wrapper that the user did not write, such as `std::lock_guard` or gthr-default.h.
    #[serde(rename = "wrapper")]
    pub is_wrapper: bool,
}

/// What kind of thing an object is.
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
    /// What it is.
    pub kind: ObjectKind,
    /// Its name in the program, such as `account.balance`, where known.
    pub name: Option<String>,
    /// Its process address in hexadecimal, `0x…`, where it has one.
    #[serde(with = "hex_address")]
    pub address: Option<u64>,
}

/// What an event did.
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

/// What a violation rests on (`docs/semantics.md#evidence`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// It holds in the relation of variables alone: the data met.
    Data,
    /// It holds only when locks and other synchronisation count.
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

/// How the order of two events is known (`docs/semantics.md#order`).
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
    /// How many instances share this static witness.
    pub occurrences: u64,
    /// What it rests on.
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
    /// Where the region was opened.
    pub begin: Option<Location>,
    /// The same for people, also without line information.
    pub begin_label: String,
    /// The events that matter, in time order.
    pub steps: Vec<Step>,
    /// Locks that the transaction let go of and took again in between.
    pub splits: Vec<Split>,
    /// What is known of data where it is not the evidence; `None` where it is, and without witness.
    #[serde(default)]
    pub data_seen: Option<DataSeen>,
    /// What would make the region atomic, in plain words.
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
    /// What both are about.
    pub object: Object,
    /// Where the earlier one is.
    pub source: Option<Location>,
    /// Where the later one is.
    pub sink: Option<Location>,
    /// The place of the earlier one for people, also without line information.
    pub source_label: String,
    /// The place of the later one for people, also without line information.
    pub sink_label: String,
    /// What the earlier one did.
    pub source_action: Action,
    /// What the later one did.
    pub sink_action: Action,
    /// The transaction of the earlier one.
    pub source_transaction: Transaction,
    /// The transaction of the later one.
    pub sink_transaction: Transaction,
    /// How their order is known.
    pub order: Order,
}

/// Why a step is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It opens a transaction of the witness.
    Begin,
    /// An edge starts at it.
    Source,
    /// An edge ends at it.
    Sink,
    /// It lets go of a lock that is taken again later.
    Released,
    /// It takes that lock again.
    Reacquired,
    /// It closes the cycle.
    Closes,
}

/// An event of the witness, with its place in the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its position in the run, from 0.
    pub event: u64,
    /// The thread that did it: an id of [`Report::threads`].
    pub thread: u32,
    /// The region of its transaction; `None` outside every region.
    pub region: Option<String>,
    /// What it did.
    pub action: Action,
    /// To what; `None` for the begin of a region.
    pub object: Option<Object>,
    /// Why it is shown.
    pub roles: Vec<Role>,
    /// Where it is: the innermost frame that the user wrote.
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

/// A lock that the violating transaction let go of and took again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The lock.
    pub lock: Object,
    /// The event that let go of it.
    pub released_event: u64,
    /// The event that took it again.
    pub reacquired_event: u64,
    /// Where it was let go of.
    pub released: Option<Location>,
    /// Where it was taken again.
    pub reacquired: Option<Location>,
    /// Where it was let go of, for people.
    pub released_label: String,
    /// Where it was taken again, for people.
    pub reacquired_label: String,
    /// The transaction of the witness that held the lock in between, at an event of the witness; `None` when no such
    /// hold is known.
    #[serde(default)]
    pub holder: Option<Transaction>,
}

/// One violation instance, by event numbers.
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
    /// Its name, where known.
    pub name: Option<String>,
    /// The operating system's thread id, where known.
    pub tid: Option<u32>,
}

/// A region that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Where it begins in the source.
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
    /// Why, and how many of them each; those with most come first.
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
    /// How many.
    pub count: u64,
}

/// Code that regions call and whose accesses no probe saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnprobedCalls {
    /// How many calls deep functions were probed (`--probe-depth`).
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
    /// Why.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// Probes that were wanted and not placed, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedProbes {
    /// What they would have shown, such as `pthread_mutex_clocklock in libc.so.6`.
    pub what: String,
    /// Why they were not placed.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// Something that could not be found, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The symbol or file.
    pub what: String,
    /// Why it was not found.
    pub reason: String,
}

/// A process that was seen and not traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Its name, where known.
    pub name: Option<String>,
}

/// What a run took. `None` where it does not apply, as for a recorded trace.
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
    /// How often memory was allocated or mapped, where memory accesses are seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations: Option<u64>,
    /// How often it was freed or unmapped, of what was seen allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frees: Option<u64>,
    /// The function that is a region and makes more than half of all events, where these are very many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest: Option<Busiest>,
}

/// A region that makes the most events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busiest {
    /// Its name.
    pub region: String,
    /// Its begins and ends, and what is in it and in no other region inside.
    pub events: u64,
}

/// What was seen of memory accesses that nobody has named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySeen {
    /// Functions whose instructions were probed.
    pub functions: u64,
    /// Their instructions' accesses that are seen by probes on instructions that the kernel emulates.
    pub emulated: u64,
    /// Those that are seen by probes on others.
    pub single_stepped: u64,
    /// Those that are not seen, by the reason.
    pub left_out: Vec<LeftOut>,
    /// Those to the stack and to variables of one thread, which are not shared.
    pub private: u64,
    /// Addresses that watchpoints were on by turns, the longest first.
    pub watched: Vec<WatchedShare>,
}

/// Accesses that are not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Why.
    pub reason: String,
    /// How many instructions have one.
    pub count: u64,
}

/// What was watched for a part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchedShare {
    /// Its name, where known.
    pub name: Option<String>,
    /// Its address.
    #[serde(with = "hex_address")]
    pub address: Option<u64>,
    /// Its length in bytes.
    pub length: u64,
    /// For how much of the run, in percent.
    pub percent: f64,
    /// How often it was accessed meanwhile.
    pub hits: u64,
}

impl MemorySeen {
    /// How many accesses there are that may be shared, in the functions that were probed.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        let left_out: u64 = self.left_out.iter().map(|left_out| left_out.count).sum();
        self.emulated + self.single_stepped + left_out
    }
}

/// Why `SIGTRAP` killed a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrapDeath {
    /// What it came from.
    pub cause: TrapCause,
    /// The address of the breakpoint instruction, or for a debug exception of the next instruction; `None` when it is
    /// not known.
    #[serde(with = "hex_address")]
    pub address: Option<u64>,
    /// That place for people; `None` outside of all files.
    pub location: Option<String>,
    /// The cause in words.
    pub message: String,
    /// What to do about it, where there is something.
    pub help: Option<String>,
}

/// What a `SIGTRAP` came from.
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
    /// Whether avtrace has caused it: the program alone would not have received the signal.
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
