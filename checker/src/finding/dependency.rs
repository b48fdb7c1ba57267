//! Dependencies of witnesses: their two ends, and the transactions that they link.

use crate::event::{EventNumber, LocationId, LockId, RegionId, SyncId, ThreadId, VarId};

/// A transaction: an execution of an outermost region, or a single event outside every region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tx {
    /// Thread that ran it.
    pub thread: ThreadId,
    /// Number among the thread's transactions, from 0.
    pub ordinal: u64,
    /// The region; `None` for a unary transaction.
    pub region: Option<RegionId>,
    /// Event that opened it; for a unary transaction the event itself.
    pub begin_event: EventNumber,
}

/// Operation of an event, without its object. Those of one event are ordered as they stand here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(missing_docs, reason = "the names are those of `Op`")]
#[non_exhaustive]
pub enum Action {
    Start,
    Begin,
    Read,
    Write,
    Update,
    CommutingUpdate,
    Free,
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
    End,
    Exit,
}

impl Action {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 20] = [
        Self::Start,
        Self::Begin,
        Self::Read,
        Self::Write,
        Self::Update,
        Self::CommutingUpdate,
        Self::Free,
        Self::Acquire,
        Self::Release,
        Self::AcquireShared,
        Self::ReleaseShared,
        Self::Fork,
        Self::Join,
        Self::Signal,
        Self::Wait,
        Self::Arrive,
        Self::Depart,
        Self::Alloc,
        Self::End,
        Self::Exit,
    ];
}

/// An end of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Point {
    /// Position in the trace.
    pub event: EventNumber,
    /// Set for a deferred access: it was made after the event at that position, which is another one of its thread.
    #[cfg_attr(feature = "serde", serde(default))]
    pub deferred: bool,
    /// Thread of the event.
    pub thread: ThreadId,
    /// Operation of the event.
    pub action: Action,
    /// Code location.
    pub location: LocationId,
    /// Transaction that the event belongs to.
    pub tx: Tx,
}

impl Point {
    /// Returns the number of the event, unless that is another event.
    #[must_use]
    pub fn own_event(&self) -> Option<EventNumber> {
        (!self.deferred).then_some(self.event)
    }
}

/// The object that a dependency is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Object {
    Variable(VarId),
    Lock(LockId),
    Sync(SyncId),
    Thread(ThreadId),
}

/// Order between the two ends of a dependency (`docs/semantics.md#order`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Order {
    /// Synchronisation orders the two.
    Synchronised,
    /// No synchronisation orders the two accesses: their order is known up to the capture window only.
    Racy,
}

/// A dependency of a witness: `source` happens before `sink`, on `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Edge {
    pub source: Point,
    pub sink: Point,
    pub object: Object,
    pub order: Order,
}
