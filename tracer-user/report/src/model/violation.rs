//! A violation in a report: its witness step by step, its edges, and the objects and places in them.

pub use checker::finding::{Action, Evidence, Instance, Order};
pub use checker::format::ObjectKind;
use serde::{Deserialize, Serialize};

use super::{Class, HuntedDefect, hex_address};

/// Transaction: an execution of an outermost region, or a single event outside every region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Transaction {
    /// The thread that ran it: an id of [`Report::threads`](super::Report::threads).
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Location {
    /// The source file, as the debug information names it.
    pub file: String,
    /// The line, from 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub line: Option<u32>,
    /// The column, from 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub column: Option<u32>,
    /// The function, demangled.
    pub function: Option<String>,
}

/// Frame of a code location: inlined calls give several, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceFrame {
    /// The function, demangled. Without line information, `function+0xOFFSET`; for a location that is only a
    /// label in a trace, that label.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line, from 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub line: Option<u32>,
    /// The column, from 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub column: Option<u32>,
    /// The file that the code was loaded from: the program or a shared library.
    pub module: Option<String>,
    /// Set for a wrapper that the user did not write, such as `std::lock_guard` or gthr-default.h.
    #[serde(rename = "wrapper")]
    pub is_wrapper: bool,
    /// Line of the function's name in its definition, from 1, where that is in the same file. Not in the report.
    #[serde(skip)]
    pub declared: Option<u32>,
}

/// The thing that events are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Object {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Name in the program, such as `account.balance`, where known.
    pub name: Option<String>,
    /// Process address in hexadecimal, `0x…`, where it has one.
    #[serde(with = "hex_address")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<String>", regex(pattern = "^0x[0-9a-f]{1,16}$"))
    )]
    pub address: Option<u64>,
    /// Class of an object without a name, such as `mutex of queue.c:17`: the place of its first use, or the object
    /// around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

impl Object {
    /// An object of which only the kind is known.
    #[must_use]
    pub const fn unnamed(kind: ObjectKind) -> Self {
        Self { kind, name: None, address: None, class: None }
    }

    /// The object with its class, if that is what distinguishes it: it has no name, and is more than `a mutex`.
    #[must_use]
    pub fn classified(self, class: impl FnOnce() -> Option<String>) -> Self {
        if self.name.is_some() {
            return self;
        }
        Self { class: class().filter(|class| !class.starts_with("a ")), ..self }
    }
}

/// An atomicity violation: the first of all instances with the same static witness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Violation {
    /// `v1`, `v2`, … in the order of the report.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^v[1-9][0-9]*$")))]
    pub id: String,
    /// The region that was not atomic.
    pub region: String,
    /// Number of instances that share this static witness.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub occurrences: u64,
    /// Strength of the evidence.
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
    #[cfg_attr(feature = "schema", schemars(extend("anyOf" = [{"maxItems": 0}, {"minItems": 3}])))]
    pub witness: Vec<Transaction>,
    /// The dependencies that link it, in order. Empty without witness.
    pub edges: Vec<Edge>,
    /// Place at which the region was opened.
    pub begin: Option<Location>,
    /// Description of that place, also without line information.
    pub begin_label: String,
    /// The events that matter, in time order.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub steps: Vec<Step>,
    /// Locks that the transaction released and acquired again in between.
    pub splits: Vec<Split>,
    /// Known accesses to data where data is not the evidence; `None` where it is, and without witness.
    pub data_seen: Option<DataSeen>,
    /// Suggested change that would make the region atomic, in plain words.
    pub hint: String,
}

impl Violation {
    /// Calls a function with the id of each thread, wherever it stands.
    pub fn for_each_thread(&mut self, mut of: impl FnMut(&mut u32)) {
        of(&mut self.transaction.thread);
        self.witness.iter_mut().for_each(|transaction| of(&mut transaction.thread));
        for edge in &mut self.edges {
            of(&mut edge.source_transaction.thread);
            of(&mut edge.sink_transaction.thread);
        }
        self.steps.iter_mut().for_each(|step| of(&mut step.thread));
        let holders = self.splits.iter_mut().filter_map(|split| split.holder.as_mut());
        holders.for_each(|transaction| of(&mut transaction.thread));
        let without = self.data_seen.iter_mut().flat_map(|seen| &mut seen.without);
        without.for_each(|transaction| of(&mut transaction.thread));
    }
}

/// The part that data had in a violation whose evidence is synchronisation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DataSeen {
    /// Transactions of the witness in which no access to a variable was seen before the cycle closed.
    pub without: Vec<Transaction>,
    /// Variables on which transactions of the witness depend on one another, in no cycle.
    pub met: Vec<Object>,
}

/// A dependency: `source` happens before `sink`, on `object`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// A region in which the program died.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenRegion {
    /// The region's name.
    pub region: String,
    /// Likelihood of a bug: always `possible`.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "possible")))]
    pub class: Class,
    /// The thread that ended in it.
    pub thread: u32,
    /// Place of the region's begin.
    pub begin: Option<Location>,
    /// Dependency of another thread on an access of the region.
    pub edge: Edge,
    /// End of the program in a run of a hunt, as a clause; absent in other reports, which have one end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
    /// Runs of a hunt that showed it; absent in other reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunted: Option<HuntedDefect>,
}

impl OpenRegion {
    /// Calls `of` with the number of each thread that is part of it.
    pub fn for_each_thread(&mut self, mut of: impl FnMut(&mut u32)) {
        of(&mut self.thread);
        of(&mut self.edge.source_transaction.thread);
        of(&mut self.edge.sink_transaction.thread);
    }
}

/// Reason for which a step is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// Position in the run, from 0.
    pub event: u64,
    /// The thread that did it: an id of [`Report::threads`](super::Report::threads).
    pub thread: u32,
    /// The region of its transaction; `None` outside every region.
    pub region: Option<String>,
    /// Innermost function that is a region among those that the step is in, as far as they were recorded; absent where
    /// it is `region`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub innermost: Option<String>,
    /// Operation of the event.
    pub action: Action,
    /// Object of the operation; `None` for the begin of a region.
    pub object: Option<Object>,
    /// Reasons for which the step is shown.
    #[cfg_attr(feature = "schema", schemars(length(min = 1), extend("uniqueItems" = true)))]
    pub roles: Vec<Role>,
    /// Place of the innermost frame that the user wrote.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Value {
    /// Value before the access; of a read, the value that was read.
    pub before: Option<String>,
    /// Value after the access.
    pub after: Option<String>,
}

/// Lock that the violating transaction released and acquired again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Split {
    /// Lock that was released and acquired again.
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
    pub holder: Option<Transaction>,
}
