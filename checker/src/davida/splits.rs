//! The locks that an active transaction has let go of and taken again: at most a handful for each thread, the last
//! time of each lock.

use crate::event::{EventNumber, LockId};
use crate::finding::Split;
use crate::hb::Access;

/// How many locks are followed in one transaction; the least recently released gives way.
const FOLLOWED: usize = 16;

struct Followed {
    lock: LockId,
    /// The last release; none when the lock became another one since.
    released: Access,
    /// The last time that the lock was released and taken again.
    split: Option<(Access, Access)>,
}

/// The locks of one thread's transaction.
#[derive(Default)]
pub(super) struct Splits(Vec<Followed>);

impl Splits {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn released(&mut self, lock: LockId, now: &Access) {
        if let Some(followed) = self.0.iter_mut().find(|followed| followed.lock == lock) {
            followed.released = *now;
            return;
        }
        if self.0.len() == FOLLOWED {
            let oldest = (0..FOLLOWED).min_by_key(|&index| self.0[index].released.event());
            self.0.swap_remove(oldest.unwrap_or(0));
        }
        self.0.push(Followed { lock, released: *now, split: None });
    }

    pub(super) fn acquired(&mut self, lock: LockId, now: &Access) {
        let found = self.0.iter_mut().find(|followed| followed.lock == lock);
        if let Some(followed) = found.filter(|followed| followed.released.is_some()) {
            followed.split = Some((followed.released, *now));
        }
    }

    /// The lock is another one from now on, which the transaction has not let go of.
    pub(super) fn forget(&mut self, lock: LockId) {
        if let Some(followed) = self.0.iter_mut().find(|followed| followed.lock == lock) {
            followed.released = Access::NONE;
        }
    }

    /// The locks let go of no earlier than that event and taken again since, by time of release.
    pub(super) fn since(&self, event: EventNumber) -> Vec<Split> {
        let mut splits: Vec<Split> = (self.0.iter())
            .filter_map(|followed| {
                let (released, reacquired) = followed.split.as_ref()?;
                (released.event() >= event).then(|| Split {
                    lock: followed.lock,
                    released: released.point(),
                    reacquired: reacquired.point(),
                })
            })
            .collect();
        splits.sort_by_key(|split| split.released.event);
        splits
    }
}
