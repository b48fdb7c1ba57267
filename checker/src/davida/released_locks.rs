//! Locks that an active transaction has released and reacquired. Bounded: at most a few tens of locks for each thread,
//! and of each lock the last time, and a number of times that others held it in between.

use super::forest::Node;
use super::locks::Hold;
use super::thread::Thread;
use crate::event::{EventNumber, LockId};
use crate::finding::{Action, ReleasedLock, Tx};
use crate::hb::EventStamp;

/// Limit of locks followed in one transaction. The least recently released lock is replaced; a lock that others held
/// in between is replaced only if all were.
const MAX_LOCKS: usize = 32;

/// Limit of the times stored of one lock at which others held it in between.
const MAX_TIMES: usize = 32;

/// Number of the latest of these times that are retained in any case.
const LATEST: usize = 4;

/// Time from a release of the transaction to its next acquire.
#[derive(Clone, Copy)]
pub(super) struct Split {
    released: EventStamp,
    reacquired: EventStamp,
}

impl Split {
    /// Returns whether a hold of another thread is within that time, and excludes the hold of the transaction.
    pub(super) fn contains(&self, hold: &Hold) -> bool {
        let is_shared = hold.is_shared && self.reacquired.action() == Action::AcquireShared;
        self.released.event() < hold.acquired
            && hold.released < self.reacquired.event()
            && !is_shared
    }
}

struct FollowedLock {
    lock: LockId,
    /// Last release; `None` if the lock has been reset since.
    released: EventStamp,
    /// Last time that the lock was released and reacquired.
    last: Option<Split>,
    /// Times that it was released and reacquired with another thread's hold in between; the latest is last.
    held: Vec<Split>,
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
            let age = |&index: &usize| {
                let followed: &FollowedLock = &self.0[index];
                (!followed.held.is_empty(), followed.released.event())
            };
            let oldest = (0..MAX_LOCKS).min_by_key(age);
            self.0.swap_remove(oldest.unwrap_or(0));
        }
        self.0.push(FollowedLock { lock, released: *now, last: None, held: Vec::new() });
    }

    /// Notes an acquire. Returns the event of the release before it, if the transaction has made one.
    pub(super) fn acquired(&mut self, lock: LockId, now: &EventStamp) -> Option<EventNumber> {
        let found = self.0.iter_mut().find(|followed| followed.lock == lock);
        let followed = found.filter(|followed| followed.released.is_some())?;
        followed.last = Some(Split { released: followed.released, reacquired: *now });
        Some(followed.released.event())
    }

    /// Notes that the current acquire depends on the end of another thread's hold, `source`. Returns whether times that
    /// others held the lock should be dropped.
    pub(super) fn held_between(
        &mut self,
        lock: LockId,
        now: &EventStamp,
        source: &EventStamp,
    ) -> bool {
        let found = self.0.iter_mut().find(|followed| followed.lock == lock);
        let Some((followed, split)) = found.and_then(|followed| {
            let split = followed.last?;
            Some((followed, split))
        }) else {
            return false;
        };
        let since = |split: &Split| split.reacquired.event();
        let is_known = followed.held.last().map(since) == Some(since(&split));
        if since(&split) == now.event() && split.released.event() < source.event() && !is_known {
            followed.held.push(split);
        }
        followed.held.len() >= MAX_TIMES
    }

    /// Returns whether another thread is known to have held the lock before its acquire at an event, since its release.
    pub(super) fn was_held_before(&self, lock: LockId, now: &EventStamp) -> bool {
        let found = self.0.iter().find(|followed| followed.lock == lock);
        let last = found.and_then(|followed| followed.held.last());
        last.is_some_and(|split| split.reacquired.event() == now.event())
    }

    /// Drops times at which others held a lock, except the `needed` holds and the latest ones.
    pub(super) fn drop_splits(&mut self, lock: LockId, needed: &[Hold]) {
        let Some(followed) = self.0.iter_mut().find(|followed| followed.lock == lock) else {
            return;
        };
        let latest = followed.held.len().saturating_sub(LATEST);
        let mut index = 0;
        followed.held.retain(|split| {
            index += 1;
            index > latest || needed.iter().any(|hold| split.contains(hold))
        });
        let surplus = followed.held.len().saturating_sub(MAX_TIMES / 2);
        followed.held.drain(..surplus);
    }

    /// Notes that the lock was reset: the new one has not been released by the transaction.
    pub(super) fn forget(&mut self, lock: LockId) {
        if let Some(followed) = self.0.iter_mut().find(|followed| followed.lock == lock) {
            followed.released = EventStamp::NONE;
        }
    }

    /// Returns the locks released at or after `event` and reacquired since, by time of release. If a thread of the
    /// witness, whose dependencies are `path`, the closing one first, held a lock in between, that time is returned
    /// rather than the last one.
    pub(super) fn since(
        &self,
        event: EventNumber,
        path: &[&Node],
        threads: &[Thread],
    ) -> Vec<ReleasedLock> {
        let in_time = |split: &&Split| split.released.event() >= event;
        let released = self.0.iter().filter_map(|followed| {
            let lock = followed.lock;
            let mut parts = path.windows(2).rev();
            let held = parts.find_map(|part| {
                let (entered, left) = (&part[1].sink, &part[0].source);
                let as_holder = |hold: &Hold| {
                    let mut splits = followed.held.iter().rev().filter(in_time);
                    let split = splits.find(|split| split.contains(hold))?;
                    Some((split, Some(holder(hold, entered, left)?)))
                };
                let fits = |hold: &Hold| {
                    hold.lock == lock && hold.acquired <= left.event() && as_holder(hold).is_some()
                };
                let locks = &threads.get(part[1].row())?.locks;
                as_holder(&locks.first_since(entered, fits)?)
            });
            let last = || Some((followed.last.as_ref().filter(in_time)?, None));
            let (split, holder) = held.or_else(last)?;
            Some(ReleasedLock {
                lock,
                released: split.released.point(),
                reacquired: split.reacquired.point(),
                holder,
            })
        });
        let mut locks: Vec<ReleasedLock> = released.collect();
        locks.sort_by_key(|lock| lock.released.event);
        locks
    }
}

/// Returns the transaction that held a lock, among the transactions at which a witness enters and leaves a thread.
fn holder(hold: &Hold, entered: &EventStamp, left: &EventStamp) -> Option<Tx> {
    if hold.covers(entered) || entered.tx() == left.tx() {
        Some(entered.tx())
    } else {
        hold.covers(left).then(|| left.tx())
    }
}
