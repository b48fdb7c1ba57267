//! The events that checkers consume: who did what to which object, and where in the code. No parsing and no
//! interning lives here; sources of events give objects dense ids.

use std::fmt;

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// A code location: whatever the source of events tells apart (a call stack, a line of text).
    LocationId, "loc"
);

/// The position of an event in its trace, counted from 0.
pub type EventNumber = u64;

/// One event of a trace (`docs/semantics.md#events`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The thread that did it.
    pub thread: ThreadId,
    /// What it did, to which object.
    pub op: Op,
    /// Where in the code.
    pub location: LocationId,
}

/// An operation and its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Takes a lock exclusively. Only the outermost of a re-entrant lock counts.
    Acquire(LockId),
    /// Lets go of a lock held exclusively.
    Release(LockId),
    /// Takes a reader-writer lock shared.
    AcquireShared(LockId),
    /// Lets go of a reader-writer lock held shared.
    ReleaseShared(LockId),
    /// The lock's memory starts or ends its life (`pthread_mutex_init`, `pthread_mutex_destroy`): earlier releases
    /// order nothing any more, holds are forgotten, and the id stands for a lock never used before.
    Reset(LockId),
    /// Starts a thread.
    Fork(ThreadId),
    /// Has waited for a thread's end.
    Join(ThreadId),
    /// The thread ends. Sources may leave it out: a join says as much. It lets a checker forget threads that nobody
    /// joins.
    Exit,
    /// A post that later waits on the object may be let through by (condition variable, semaphore, once, futex).
    Signal(SyncId),
    /// Was let through by the posts so far.
    Wait(SyncId),
    /// Arrives at a barrier; every arrival of a round precedes every departure of that round.
    Arrive(SyncId),
    /// Departs from a barrier.
    Depart(SyncId),
    /// The variable's memory starts a new life: what came before is forgotten.
    Alloc(VarId),
    /// The variable's memory is given back: what came before is forgotten.
    Free(VarId),
    /// A part of a variable becomes a variable of its own, since something touches only the one or the other: `to`
    /// begins its life with all that `from` has seen. Orders nothing, and is at no place in the code.
    SplitVariable {
        /// What remains of the variable keeps its id.
        from: VarId,
        /// The part; what it stood for before is forgotten.
        to: VarId,
    },
}
