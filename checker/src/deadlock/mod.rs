//! Potential deadlocks: cycles in the order in which threads acquire locks (K. Havelund, "Using Runtime Analysis to
//! Guide Model Checking of Java Programs": GoodLock; with the segments of R. Agarwal, L. Wang and S. D. Stoller,
//! "Detecting Potential Deadlocks with Static Analysis and Runtime Monitoring"), whether a run came to a standstill or
//! not.
//!
//! A thread that holds a lock and acquires another one makes an edge from the one to the other. A cycle of edges is a
//! potential deadlock if
//! - its edges are of different threads and on different locks;
//! - each lock is held in a mode that keeps the next thread out: shared holds let shared acquisitions through, also
//!   where a writer waits, as the C library does by default;
//! - no lock guards it: none is held at two of its acquisitions in modes that exclude each other (a *gate* lock, unless
//!   it is one of the cycle itself);
//! - no two of its acquisitions are ordered by forks, joins, signals or barriers.
//!
//! Every set of threads that can wait for one another's locks in a ring, in any interleaving of the trace's events,
//! is found, also one of readers that upgrade their lock. The reverse does not hold: earlier sections of a lock, or
//! orders that pass through other threads while locks are held, may exclude an interleaving that these conditions
//! allow. Rings with other waits (a join while a lock is held, a condition variable) are not looked for. Only the
//! outermost acquisition of a re-entrant lock counts.
//!
//! ```
//! use checker::deadlock::Observer;
//! use checker::event::{Event, LocationId, LockId, Op, ThreadId};
//!
//! let (a, b) = (LockId(0), LockId(1));
//! let mut observer = Observer::default();
//! for (thread, [first, second]) in [(1, [a, b]), (2, [b, a])] {
//!     let steps = [Op::Acquire(first), Op::Acquire(second), Op::Release(second), Op::Release(first)];
//!     for (line, op) in (0..).zip(steps) {
//!         observer.event(&Event { thread: ThreadId(thread), op, location: LocationId(line) });
//!     }
//! }
//! assert_eq!(observer.deadlocks().found[0].acquisitions.len(), 2);
//! ```

mod cycles;
mod observer;

use crate::event::{EventNumber, LocationId, LockId, RegionId, ThreadId};

pub use observer::Observer;

/// A potential deadlock: each thread holds the lock that the one before it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Deadlock {
    /// Acquisitions at which the threads would wait, in the order of the cycle: each waits for the lock that the next
    /// one holds, and the last for the lock of the first.
    pub acquisitions: Vec<Acquisition>,
    /// Cycles at the same places.
    pub occurrences: u64,
}

/// Acquisition of a lock while others are held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Acquisition {
    /// Thread.
    pub thread: ThreadId,
    /// Innermost region of the acquisition.
    pub region: Option<RegionId>,
    /// Lock that the thread would wait for.
    pub lock: LockId,
    /// Set for an acquisition in shared mode.
    pub is_shared: bool,
    /// Event at which it acquired the lock, in the first cycle.
    pub event: EventNumber,
    /// Location of that event.
    pub location: LocationId,
    /// Lock of the cycle that it holds meanwhile.
    pub holds: HeldLock,
    /// Other locks that it holds meanwhile, in the order of acquisition.
    pub others: Vec<HeldLock>,
}

/// Lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct HeldLock {
    /// Lock.
    pub lock: LockId,
    /// Set for a hold in shared mode.
    pub is_shared: bool,
    /// Location of its acquisition.
    pub location: LocationId,
}

/// Potential deadlocks of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlocks {
    /// Those found, the shortest first.
    pub found: Vec<Deadlock>,
    /// Set if a limit was met: there may be others.
    pub is_incomplete: bool,
}
