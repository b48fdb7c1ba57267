//! What checkers report: violations with their witnesses, verdicts and counts, in ids only. Names and source
//! lines are added by whoever knows them.

use crate::event::{EventNumber, LocationId, LockId, RegionId, SyncId, ThreadId, VarId};

/// One transaction: an execution of an outermost region, or a single event outside every region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tx {
    /// The thread that ran it.
    pub thread: ThreadId,
    /// Its number among the thread's transactions, from 0.
    pub ordinal: u64,
    /// The region; `None` for a unary transaction.
    pub region: Option<RegionId>,
    /// The event that opened it; for a unary transaction the event itself.
    pub begin_event: EventNumber,
}

/// What an event did, without its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of `Op`")]
pub enum Action {
    Begin,
    End,
    Read,
    Write,
    Update,
    Acquire,
    Release,
    AcquireShared,
    ReleaseShared,
    Fork,
    Start,
    Exit,
    Join,
    Signal,
    Wait,
    Arrive,
    Depart,
    Alloc,
    Free,
}

/// One end of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// Its position in the trace.
    pub event: EventNumber,
    /// The thread that did it.
    pub thread: ThreadId,
    /// What it did.
    pub action: Action,
    /// Where in the code.
    pub location: LocationId,
    /// The transaction that it belongs to.
    pub tx: Tx,
}

/// The object that a dependency is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Object {
    Variable(VarId),
    Lock(LockId),
    Sync(SyncId),
    Thread(ThreadId),
}

/// How the two ends of a dependency are known to be ordered (`docs/semantics.md#order`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// Synchronisation orders them.
    Synchronised,
    /// Two accesses that no synchronisation orders: known up to the capture window only.
    Racy,
}

/// A dependency of a witness: `source` happens before `sink`, on `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Edge {
    pub source: Point,
    pub sink: Point,
    pub object: Object,
    pub order: Order,
}

/// What a violation rests on (`docs/semantics.md#evidence`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Evidence {
    /// It holds in the relation of variables alone: the data met.
    Data,
    /// It holds only when locks and other synchronisation count.
    Sync,
}

/// A lock that the violating transaction let go of and took again before the cycle closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ReleasedLock {
    pub lock: LockId,
    pub released: Point,
    pub reacquired: Point,
    /// The transaction of the witness that held the lock in between, at an event of the witness; `None` when no
    /// such hold is known. Without one, holding the lock throughout would not have prevented the cycle.
    pub holder: Option<Tx>,
}

/// The part that data had in a violation whose evidence is synchronisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSeen {
    /// Transactions of the witness without any access to a variable until their last event of the witness.
    pub without: Vec<Tx>,
    /// Variables on which transactions of the witness depend on one another, in no cycle.
    pub met: Vec<VarId>,
}

/// An atomicity violation: the first of all instances with the same static witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The region that was not atomic.
    pub region: RegionId,
    /// How many instances share this static witness.
    pub occurrences: u64,
    /// What it rests on.
    pub evidence: Evidence,
    /// `Racy` when an edge of the witness is.
    pub order: Order,
    /// The violating transaction (for a nested region its own begin, and the region's own name).
    pub transaction: Tx,
    /// Where the region was opened.
    pub begin: Point,
    /// The event of the violating transaction that closed the cycle.
    pub trigger_event: EventNumber,
    /// The event of another transaction that it depends on.
    pub source_event: EventNumber,
    /// The cycle: the first and the last are the violating transaction. Empty without witness.
    pub witness: Vec<Tx>,
    /// The dependencies that link it, in order. Empty without witness.
    pub edges: Vec<Edge>,
    /// Locks that the transaction let go of and took again in between.
    pub released_locks: Vec<ReleasedLock>,
    /// What is known of data where it is not the evidence; empty where it is, and without witness.
    pub data: DataSeen,
}

/// One violation instance: (tx, e_b, e_a) of `docs/semantics.md#violations`, by event numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Instance {
    pub begin_event: EventNumber,
    pub trigger_event: EventNumber,
    pub source_event: EventNumber,
}

/// Counts over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events consumed.
    pub events: u64,
    /// Threads that did something.
    pub threads: u64,
    /// Transactions, the unary ones included.
    pub transactions: u64,
    /// Transactions of one event outside every region.
    pub unary_transactions: u64,
    /// Dependencies of the full relation.
    pub dependencies: u64,
    /// Violation instances.
    pub violations: u64,
    /// Transactions with at least one violation instance.
    pub violating_transactions: u64,
    /// Groups of instances with the same static witness.
    pub distinct_witnesses: u64,
    /// Gaps in the stream at which all active regions were abandoned.
    pub gaps: u64,
    /// Events that did not fit (an unmatched release, a second fork) and were left out.
    pub ignored_events: u64,
    /// Violation instances whose witness is not shown, because as many distinct ones as asked for were kept.
    pub unshown_violations: u64,
}

/// The result of a checker over one trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Counts over the whole run.
    pub counts: Counts,
    /// Whether the transaction graph of the events consumed is free of cycles; `None` when the checker does not
    /// decide it.
    pub serializable: Option<bool>,
    /// A cycle of transactions, when there is one that no violation shows: each has a dependency to the next or
    /// comes before it in program order, and the last is the first again.
    pub cycle: Option<Vec<Tx>>,
    /// The dependencies of that cycle, in its order. Program order has none.
    pub cycle_edges: Vec<Edge>,
    /// Violations, data evidence first, then by first occurrence.
    pub violations: Vec<Violation>,
    /// All instances, when they were asked for.
    pub instances: Vec<Instance>,
}
