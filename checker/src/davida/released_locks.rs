//! Locks that an active transaction has released and reacquired. Bounded: at most a handful of locks for
//! each thread, and of each lock the last time and the last few times that another thread held it in
//! between.

use crate::event::{EventNumber, LockId, ThreadId};
use crate::finding::{Edge, Point, ReleasedLock, Tx};
use crate::hb::EventStamp;

/// Limit of locks followed in one transaction; the least recently released one is replaced.
const MAX_LOCKS: usize = 16;

/// Limit of times stored of one lock at which another thread held it in between.
const MAX_HOLDS: usize = 4;

/// A hold of a lock that has ended, from its outermost acquire to its outermost release.
#[derive(Clone, Copy)]
pub(super) struct Hold {
    pub(super) thread: ThreadId,
    pub(super) acquired: EventNumber,
    pub(super) released: EventNumber,
}

impl Hold {
    fn covers(&self, point: &Point) -> bool {
        point.thread == self.thread && (self.acquired..=self.released).contains(&point.event)
    }
}

struct FollowedLock {
    lock: LockId,
    /// Last release; none if the lock has been reset since.
    released: EventStamp,
    /// Last time that the lock was released and reacquired.
    last: Option<(EventStamp, EventStamp)>,
    /// Times that it was released and reacquired with another thread's hold in between; the latest is last.
    held: Vec<(EventStamp, EventStamp, Hold)>,
}

/// Locks of one thread's transaction.
#[derive(Default)]
pub(super) struct ReleasedLocks(Vec<FollowedLock>);

impl ReleasedLocks {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn released(&mut self, lock: LockId, now: &EventStamp) {
        if let Some(followed) = self.0.iter_mut().find(|followed| followed.lock == lock) {
            followed.released = *now;
            return;
        }
        if self.0.len() == MAX_LOCKS {
            let oldest = (0..MAX_LOCKS).min_by_key(|&index| self.0[index].released.event());
            self.0.swap_remove(oldest.unwrap_or(0));
        }
        self.0.push(FollowedLock { lock, released: *now, last: None, held: Vec::new() });
    }

    pub(super) fn acquired(&mut self, lock: LockId, now: &EventStamp) {
        let found = self.0.iter_mut().find(|followed| followed.lock == lock);
        if let Some(followed) = found.filter(|followed| followed.released.is_some()) {
            followed.last = Some((followed.released, *now));
        }
    }

    /// Notes that the current acquire depends on the end of another thread's `hold`.
    pub(super) fn held_between(&mut self, lock: LockId, now: &EventStamp, hold: Hold) {
        let Some(followed) = self.0.iter_mut().find(|followed| followed.lock == lock) else {
            return;
        };
        let Some((released, reacquired)) = followed.last else { return };
        if reacquired.event() == now.event() && released.event() < hold.released {
            if followed.held.len() == MAX_HOLDS {
                followed.held.remove(0);
            }
            followed.held.push((released, reacquired, hold));
        }
    }

    /// Notes that the lock was reset: the new one has not been released by the transaction.
    pub(super) fn forget(&mut self, lock: LockId) {
        if let Some(followed) = self.0.iter_mut().find(|followed| followed.lock == lock) {
            followed.released = EventStamp::NONE;
        }
    }

    /// Returns the locks released at or after `event` and reacquired since, by time of release. If another
    /// thread held a lock in between at an event of the witness, that time is returned rather than the last
    /// one.
    pub(super) fn since(&self, event: EventNumber, witness: &[Edge]) -> Vec<ReleasedLock> {
        let points = || witness.iter().flat_map(|edge| [&edge.source, &edge.sink]);
        let holder = |hold: &Hold| -> Option<Tx> {
            points().find(|point| hold.covers(point)).map(|point| point.tx)
        };
        let mut locks: Vec<ReleasedLock> = (self.0.iter())
            .filter_map(|followed| {
                let in_time = |released: &EventStamp| released.event() >= event;
                let held = followed.held.iter().rev().filter(|(released, ..)| in_time(released));
                let held = held.filter_map(|(released, reacquired, hold)| {
                    holder(hold).map(|holder| (released, reacquired, Some(holder)))
                });
                let last = followed.last.as_ref().filter(|(released, _)| in_time(released));
                let last = last.map(|(released, reacquired)| (released, reacquired, None));
                let (released, reacquired, holder) = held.chain(last).next()?;
                Some(ReleasedLock {
                    lock: followed.lock,
                    released: released.point(),
                    reacquired: reacquired.point(),
                    holder,
                })
            })
            .collect();
        locks.sort_by_key(|lock| lock.released.event);
        locks
    }
}
