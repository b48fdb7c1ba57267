//! Events that checkers consume: an operation of a thread on an object, at a code location. Parsing and
//! interning are elsewhere; a source of events gives objects dense ids.

use std::fmt;

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into a dense table.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
    };
}

dense_id!(
    /// A thread. An id reused by the operating system is a new `ThreadId`.
    ThreadId, "t"
);
dense_id!(
    /// An atomic region of the code (not one execution of it: that is a transaction).
    RegionId, "region"
);
dense_id!(
    /// A lock, of any kind.
    LockId, "lock"
);
dense_id!(
    /// A variable: an address range in one life of its memory.
    VarId, "var"
);
dense_id!(
    /// A synchronisation object that is not a lock: condition variable, semaphore, barrier, once, futex.
    SyncId, "sync"
);
dense_id!(
    /// A code location, as fine as the source of events distinguishes them (a call stack, a line of text).
    LocationId, "loc"
);

/// The position of an event in its trace, counted from 0.
pub type EventNumber = u64;

/// An event of a trace (`docs/semantics.md#events`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Event {
    /// Thread that performed it.
    pub thread: ThreadId,
    /// Operation, with its object.
    pub op: Op,
    /// Code location.
    pub location: LocationId,
}

/// An operation and its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Op {
    /// Opens an atomic region. Regions nest.
    Begin(RegionId),
    /// Closes the innermost open region; when named, the innermost one of that name.
    End(Option<RegionId>),
    /// Reads a variable.
    Read(VarId),
    /// Writes a variable.
    Write(VarId),
    /// An atomic read-modify-write: one event, a write that also reads.
    Update(VarId),
    /// An atomic update whose result does not depend on the order of others of its kind, and is not used for any other
    /// computation: an addition to a counter. It conflicts with reads, writes and updates, and not with another
    /// commuting update.
    CommutingUpdate(VarId),
    /// Acquires a lock exclusively. Only the outermost acquire of a re-entrant lock counts.
    Acquire(LockId),
    /// Releases a lock held exclusively.
    Release(LockId),
    /// Acquires a reader-writer lock shared.
    AcquireShared(LockId),
    /// Releases a reader-writer lock held shared.
    ReleaseShared(LockId),
    /// Starts or ends the life of the lock's memory (`pthread_mutex_init`, `pthread_mutex_destroy`): earlier releases
    /// order no later event, holds are forgotten, and the id stands for a lock never used before.
    Reset(LockId),
    /// Starts a thread.
    Fork(ThreadId),
    /// Returns from waiting for a thread's end.
    Join(ThreadId),
    /// Names the region that everything belongs to, from here on, that the thread does outside all others: the body of
    /// a thread, or a loop around a wait; `None` for none any more. It makes no transaction, orders nothing and is no
    /// part of any verdict: its executions, which are single iterations, are followed for cuts alone.
    Follow(Option<RegionId>),
    /// From here on a part of the accesses in the region's executions is left out, in all threads: their probes rest.
    /// Not an action of its thread; orders nothing, and belongs to no transaction.
    Rest(RegionId),
    /// The accesses in the region's executions are all seen again.
    Resume(RegionId),
    /// Ends the thread. Optional: a join implies it. It allows a checker to forget threads that are never
    /// joined.
    Exit,
    /// Signals the object (condition variable, semaphore, once, futex); a later wait on it may return
    /// because of this.
    Signal(SyncId),
    /// Returns from a wait on the object, which any signal until now may have ended.
    Wait(SyncId),
    /// Arrives at a barrier; every arrival of a round precedes every departure of that round.
    Arrive(SyncId),
    /// Departs from a barrier.
    Depart(SyncId),
    /// Starts a new life of the variable's memory, or ends the last one: earlier accesses are forgotten.
    Alloc(VarId),
    /// Gives the variable's memory back to its allocator. It conflicts as a write does. An access after it and before
    /// the memory is given out again ([`Alloc`](Self::Alloc)) is a use after the free.
    Free(VarId),
    /// Makes a variable of a part of another one, once an access touches only one of the two: `to` begins its life
    /// with the whole history of `from`. Makes no order, and has no code location.
    SplitVariable {
        /// The variable that is split; the remainder keeps this id.
        from: VarId,
        /// The part; the former history of this id is forgotten.
        to: VarId,
    },
}
