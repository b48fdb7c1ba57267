//! Errors for events that cannot be part of a well-formed trace. Errors of reading and parsing are in
//! `format`.

use crate::event::{EventNumber, LockId, RegionId, SyncId, ThreadId};
use thiserror::Error;

/// An event that contradicts the events before it. The checker has not consumed it, but has counted its
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("event {number} of {thread:?}: {kind}")]
pub struct EventError {
    /// Position of the event in the trace, counted from 0.
    pub number: EventNumber,
    /// Thread of the event.
    pub thread: ThreadId,
    /// Contradiction that was found.
    pub kind: EventErrorKind,
}

/// Contradictions between an event and the events before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EventErrorKind {
    /// An `end` while no region is open.
    #[error("end without begin")]
    EndWithoutBegin,
    /// A named `end` while no region of that name is open.
    #[error("end of {0:?}, which is not open")]
    RegionNotOpen(RegionId),
    /// A named `end` while another region is open inside the named one.
    #[error("end of {named:?} while {inner:?} is open inside it")]
    RegionNotInnermost {
        /// The region that the event closes.
        named: RegionId,
        /// The innermost open region.
        inner: RegionId,
    },
    /// A release of a lock that the thread does not hold.
    #[error("release of {0:?}, which the thread does not hold")]
    ReleaseNotHeld(LockId),
    /// A shared release of a lock that the thread does not hold shared.
    #[error("shared release of {0:?}, which the thread does not hold shared")]
    SharedReleaseNotHeld(LockId),
    /// An event of a thread that was joined before.
    #[error("the thread was joined before")]
    ThreadJoined,
    /// An event of a thread that has ended.
    #[error("the thread has ended")]
    ThreadEnded,
    /// A fork of a thread that was forked before.
    #[error("fork of {0:?}, which was forked before")]
    ForkedTwice(ThreadId),
    /// A fork of a thread that has acted before.
    #[error("fork of {0:?}, which has acted before")]
    ForkAfterAction(ThreadId),
    /// A thread that forks itself.
    #[error("the thread forks itself")]
    ForkOfSelf,
    /// A second join of a thread.
    #[error("join of {0:?}, which was joined before")]
    JoinedTwice(ThreadId),
    /// A thread that joins itself.
    #[error("the thread joins itself")]
    JoinOfSelf,
    /// A departure from a barrier without an arrival of that thread.
    #[error("departure from {0:?} without arrival")]
    DepartWithoutArrive(SyncId),
    /// An id of `u32::MAX`, which is reserved.
    #[error("an id of {}, which is reserved", u32::MAX)]
    ReservedId,
    /// More events than a checker can number: 2⁴⁸ − 1.
    #[error("more than 2^48 - 1 events")]
    TooManyEvents,
}
