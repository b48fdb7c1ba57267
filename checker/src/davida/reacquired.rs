//! Counts of locks that regions release and take again, and of the times that others held them in between. Bounded by a
//! number of pairs of a region and a lock; later ones are not counted.

use crate::event::{LockId, RegionId};
use crate::finding::Reacquired;
use rustc_hash::FxHashMap;

/// Limit of the pairs of a region and a lock.
const MAX_PAIRS: usize = 1 << 12;

/// Number of times, and of those with another hold in between.
#[derive(Clone, Copy, Default)]
struct Times {
    all: u64,
    held_between: u64,
}

/// Counts by region and lock.
#[derive(Clone, Default)]
pub(super) struct ReacquiredLocks(FxHashMap<(RegionId, LockId), Times>);

impl ReacquiredLocks {
    /// Counts a time that a region took a lock again.
    pub(super) fn count(&mut self, region: RegionId, lock: LockId) {
        let is_full = self.0.len() >= MAX_PAIRS;
        match self.0.get_mut(&(region, lock)) {
            Some(times) => times.all += 1,
            None if is_full => {}
            None => drop(self.0.insert((region, lock), Times { all: 1, held_between: 0 })),
        }
    }

    /// Notes that another thread held the lock in between, the last time that was counted.
    pub(super) fn held_between(&mut self, region: RegionId, lock: LockId) {
        if let Some(times) = self.0.get_mut(&(region, lock)) {
            times.held_between += 1;
        }
    }

    /// Returns the counts, by region and lock.
    pub(super) fn into_list(self) -> Vec<Reacquired> {
        let one = |((region, lock), Times { all: times, held_between })| Reacquired {
            region,
            lock,
            times,
            held_between,
        };
        let mut list: Vec<Reacquired> = self.0.into_iter().map(one).collect();
        list.sort_unstable_by_key(|one| (one.region, one.lock));
        list
    }
}
