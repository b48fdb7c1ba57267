//! Deferred accesses: maps each epoch of the kernel side to the checker timestamp at which it began, so that an access
//! that arrives later is inserted there. Entries older than every active region are dropped.

use std::collections::VecDeque;

use checker::{
    DeferredChecker, Timestamp,
    event::{EventNumber, LocationId, SyncId, ThreadId, VarId},
};
use rustc_hash::FxHashMap;

/// Number of entries below which no sweep is worth its cost.
const SWEEP_THRESHOLD: usize = 1 << 12;

/// Maximal number of entries of one thread. Beyond that every other entry of the older half is dropped: a deferred
/// access then counts as somewhat earlier, which can hide a dependency but never invents one.
const MAX_PER_THREAD: usize = 1 << 16;

/// Begin of a thread's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Epoch {
    pub thread: ThreadId,
    /// Number of the epoch, strictly increasing for a thread, with gaps.
    pub epoch: u64,
    /// Stack pointer above which an open region has ended though its end was not recorded, or `u64::MAX`.
    pub lowest: u64,
}

/// Access that the kernel side reports after the epoch in which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct DeferredAccess {
    pub thread: ThreadId,
    /// Epoch of the thread at the access.
    pub epoch: u64,
    /// Stack pointer at the access.
    pub sp: u64,
    /// First event at which the memory belonged to this variable.
    pub since: EventNumber,
    pub what: DeferredOperation,
    pub location: LocationId,
}

/// Operation of a deferred access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferredOperation {
    /// A read.
    Read(VarId),
    /// A write.
    Write(VarId),
    /// A store to a word that synchronises.
    Signal(SyncId),
}

struct EpochStart {
    epoch: u64,
    timestamp: Timestamp,
    lowest: u64,
}

/// Checker timestamps at which the epochs of all threads began.
#[derive(Default)]
pub struct EpochTimestamps {
    threads: FxHashMap<ThreadId, VecDeque<EpochStart>>,
    /// Number of entries, and the number at which the next sweep is due.
    count: usize,
    limit: usize,
}

impl EpochTimestamps {
    /// Records the thread's present timestamp as the begin of its epoch.
    pub fn open_epoch(
        &mut self,
        checker: &dyn DeferredChecker,
        &Epoch { thread, epoch, lowest }: &Epoch,
    ) {
        let Some(timestamp) = checker.timestamp(thread) else { return };
        let epochs = self.threads.entry(thread).or_default();
        epochs.push_back(EpochStart { epoch, timestamp, lowest });
        self.count += 1;
        if epochs.len() > MAX_PER_THREAD {
            let mut number = 0;
            epochs.retain(|_| {
                number += 1;
                number % 2 == 1 || number > MAX_PER_THREAD / 2
            });
        }
        if self.count > self.limit.max(SWEEP_THRESHOLD) {
            self.sweep(checker.oldest_active());
        }
    }

    /// Inserts a deferred access at the begin of its epoch. Discards it if its epoch is too old to matter, or if it
    /// may have been in a region that had ended by then.
    pub fn insert(&self, checker: &mut dyn DeferredChecker, access: &DeferredAccess) {
        let Some(epochs) = self.threads.get(&access.thread) else { return };
        let next = epochs.partition_point(|start| start.epoch <= access.epoch);
        let Some(start) = next.checked_sub(1).and_then(|last| epochs.get(last)) else {
            return;
        };
        if start.timestamp.event() < access.since || start.lowest < access.sp {
            return;
        }
        let (timestamp, location) = (&start.timestamp, access.location);
        match access.what {
            DeferredOperation::Read(variable) => {
                checker.insert_deferred_access(timestamp, variable, false, location);
            }
            DeferredOperation::Write(variable) => {
                checker.insert_deferred_access(timestamp, variable, true, location);
            }
            DeferredOperation::Signal(object) => {
                checker.insert_deferred_signal(timestamp, object, location);
            }
        }
    }

    /// Drops all entries after a loss of events: no active region is left to which earlier accesses could matter.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn sweep(&mut self, oldest: EventNumber) {
        self.threads.retain(|_, epochs| {
            let gone = epochs.partition_point(|start| start.timestamp.event() < oldest);
            epochs.drain(..gone);
            !epochs.is_empty()
        });
        self.count = self.threads.values().map(VecDeque::len).sum();
        self.limit = 2 * self.count;
    }
}

#[cfg(test)]
mod tests {
    use checker::{
        Checker as _, Davida, Options,
        event::{Event, Op, RegionId},
    };

    use super::*;

    const OWNER: ThreadId = ThreadId(0);
    const OTHER: ThreadId = ThreadId(1);
    const NOWHERE: LocationId = LocationId(0);
    const X: VarId = VarId(0);

    /// A checker and the epochs of its threads: event n begins epoch n + 10.
    struct World {
        checker: Davida,
        epochs: EpochTimestamps,
        events: u64,
    }

    impl World {
        fn new() -> Self {
            let checker = Davida::new(Options::default());
            Self { checker, epochs: EpochTimestamps::default(), events: 0 }
        }

        fn event(&mut self, thread: ThreadId, op: Op, lowest: u64) {
            self.checker.event(&Event { thread, op, location: NOWHERE }).expect("well-formed");
            let epoch = 10 + self.events;
            self.events += 1;
            self.epochs.open_epoch(&self.checker, &Epoch { thread, epoch, lowest });
        }

        /// Opens a region in which the owner reads, in some epoch, its own earlier write; then the other thread
        /// writes, and the owner once more.
        fn is_lost_update(&mut self, late: DeferredAccess) -> bool {
            self.event(OWNER, Op::Write(X), u64::MAX);
            self.event(OWNER, Op::Begin(RegionId(0)), 100);
            self.epochs.insert(&mut self.checker, &late);
            self.event(OTHER, Op::Write(X), u64::MAX);
            self.event(OWNER, Op::Write(X), 100);
            self.checker.counts().violations > 0
        }
    }

    /// Returns a read by the owner in its region.
    fn read() -> DeferredAccess {
        let (thread, what, location) = (OWNER, DeferredOperation::Read(X), NOWHERE);
        DeferredAccess { thread, epoch: 11, sp: 80, since: 0, what, location }
    }

    #[test]
    fn what_is_told_late_counts_at_its_moment() {
        assert!(World::new().is_lost_update(read()));
        assert!(
            World::new().is_lost_update(DeferredAccess { epoch: 15, ..read() }),
            "of the latest before"
        );
        assert!(
            !World::new().is_lost_update(DeferredAccess { epoch: 10, ..read() }),
            "before the region"
        );
        assert!(
            !World::new().is_lost_update(DeferredAccess { epoch: 9, ..read() }),
            "before all that is known"
        );
    }

    #[test]
    fn a_signal_that_is_told_late_orders_from_its_moment_on() {
        let object = SyncId(0);
        let is_split = |epoch| {
            let mut world = World::new();
            world.event(OWNER, Op::Wait(object), u64::MAX);
            world.event(OWNER, Op::Begin(RegionId(0)), 100);
            world.event(OWNER, Op::Write(X), 100);
            let late = DeferredAccess { epoch, what: DeferredOperation::Signal(object), ..read() };
            world.epochs.insert(&mut world.checker, &late);
            world.event(OTHER, Op::Wait(object), u64::MAX);
            world.event(OTHER, Op::Signal(object), u64::MAX);
            world.event(OWNER, Op::Wait(object), 100);
            world.checker.counts().violations > 0
        };
        assert!(is_split(12) && is_split(11));
        assert!(!is_split(10), "before the region");
    }

    #[test]
    fn what_may_have_been_otherwise_does_not_count() {
        assert!(
            !World::new().is_lost_update(DeferredAccess { sp: 101, ..read() }),
            "the region's frame was gone"
        );
        assert!(World::new().is_lost_update(DeferredAccess { since: 1, ..read() }));
        assert!(
            !World::new().is_lost_update(DeferredAccess { since: 2, ..read() }),
            "it was other memory"
        );
        assert!(!World::new().is_lost_update(DeferredAccess { thread: OTHER, ..read() }));
    }

    #[test]
    fn moments_before_all_active_regions_are_forgotten() {
        let mut world = World::new();
        for _ in 0..4 * SWEEP_THRESHOLD {
            world.event(OWNER, Op::Begin(RegionId(0)), 100);
            world.event(OWNER, Op::End(None), u64::MAX);
        }
        assert!(world.epochs.count <= SWEEP_THRESHOLD + 1, "{}", world.epochs.count);
        let begin = 10 + world.events;
        world.event(OWNER, Op::Begin(RegionId(0)), 100);
        for _ in 0..2 * MAX_PER_THREAD {
            world.event(OWNER, Op::Write(X), 100);
        }
        let kept = &world.epochs.threads[&OWNER];
        assert!(
            kept.len() <= MAX_PER_THREAD + 1
                && kept.iter().any(|epoch_start| epoch_start.epoch <= begin + 4)
        );
        world.epochs.clear();
        world.epochs.insert(&mut world.checker, &DeferredAccess { epoch: u64::MAX, ..read() });
    }
}
