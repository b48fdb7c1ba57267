//! When a thread did what is told late: the moments of its epochs, as far as they can matter still.

use std::collections::VecDeque;

use checker::{
    Davida, Timestamp,
    event::{EventNumber, LocationId, SyncId, ThreadId, VarId},
};
use rustc_hash::FxHashMap;

/// How many moments there can be before it is worth asking which of them matter.
const FEW: usize = 1 << 12;

/// How many moments of one thread are kept at most. Beyond that every other one of the older half is dropped: what is
/// told late then counts as somewhat earlier, which can hide a dependency and makes none up.
const MOST: usize = 1 << 16;

/// An epoch of a thread begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Epoch {
    pub thread: ThreadId,
    /// Its number: they grow, but may leave some out.
    pub epoch: u64,
    /// The stack pointer above which an open region has ended that was not told to; `u64::MAX` when there is none.
    pub lowest: u64,
}

/// An access that is told late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct DeferredAccess {
    pub thread: ThreadId,
    /// The thread's epoch.
    pub epoch: u64,
    /// Its stack pointer.
    pub sp: u64,
    /// The event before which the memory was another variable's.
    pub since: EventNumber,
    pub what: Missed,
    pub location: LocationId,
}

/// What is told late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// A read.
    Read(VarId),
    /// A write.
    Write(VarId),
    /// A store to a word that synchronises.
    Signal(SyncId),
}

struct Moment {
    epoch: u64,
    timestamp: Timestamp,
    lowest: u64,
}

/// The moments of all threads.
#[derive(Default)]
pub struct Moments {
    threads: FxHashMap<ThreadId, VecDeque<Moment>>,
    /// How many there are, and at how many to look for those that do not matter any more.
    count: usize,
    limit: usize,
}

impl Moments {
    /// What the checker knows of the thread now is the begin of its epoch.
    pub fn begins(&mut self, checker: &Davida, &Epoch { thread, epoch, lowest }: &Epoch) {
        let Some(timestamp) = checker.timestamp(thread) else { return };
        let moments = self.threads.entry(thread).or_default();
        moments.push_back(Moment { epoch, timestamp, lowest });
        self.count += 1;
        if moments.len() > MOST {
            let mut number = 0;
            moments.retain(|_| {
                number += 1;
                number % 2 == 1 || number > MOST / 2
            });
        }
        if self.count > self.limit.max(FEW) {
            self.sweep(checker.oldest_active());
        }
    }

    /// Tells the checker of an access, unless it is of a moment that cannot matter, or may have been in a region that
    /// had ended by then.
    pub fn told(&self, checker: &mut Davida, deferred: &DeferredAccess) {
        let Some(moments) = self.threads.get(&deferred.thread) else { return };
        let next = moments.partition_point(|moment| moment.epoch <= deferred.epoch);
        let Some(moment) = next.checked_sub(1).and_then(|last| moments.get(last)) else { return };
        if moment.timestamp.event() < deferred.since || moment.lowest < deferred.sp {
            return;
        }
        let (timestamp, location) = (&moment.timestamp, deferred.location);
        match deferred.what {
            Missed::Read(variable) => {
                checker.insert_deferred_access(timestamp, variable, false, location)
            }
            Missed::Write(variable) => {
                checker.insert_deferred_access(timestamp, variable, true, location)
            }
            Missed::Signal(object) => checker.insert_deferred_signal(timestamp, object, location),
        }
    }

    /// Events were lost: no region is active that anything before could matter to.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn sweep(&mut self, oldest: EventNumber) {
        self.threads.retain(|_, moments| {
            let gone = moments.partition_point(|moment| moment.timestamp.event() < oldest);
            moments.drain(..gone);
            !moments.is_empty()
        });
        self.count = self.threads.values().map(VecDeque::len).sum();
        self.limit = 2 * self.count;
    }
}

#[cfg(test)]
mod tests {
    use checker::{
        Checker as _, Options,
        event::{Event, Op, RegionId},
    };

    use super::*;

    const OWNER: ThreadId = ThreadId(0);
    const OTHER: ThreadId = ThreadId(1);
    const NOWHERE: LocationId = LocationId(0);
    const X: VarId = VarId(0);

    /// A checker, and the moments of its threads: each event begins an epoch of its number and 10 more.
    struct World {
        checker: Davida,
        moments: Moments,
        events: u64,
    }

    impl World {
        fn new() -> Self {
            let checker = Davida::new(Options::default());
            Self { checker, moments: Moments::default(), events: 0 }
        }

        fn event(&mut self, thread: ThreadId, op: Op, lowest: u64) {
            self.checker.event(&Event { thread, op, location: NOWHERE }).expect("well-formed");
            let epoch = 10 + self.events;
            self.events += 1;
            self.moments.begins(&self.checker, &Epoch { thread, epoch, lowest });
        }

        /// The owner opens a region, and reads in an epoch what it had written before; the other thread writes it, and
        /// the owner once more.
        fn is_lost_update(&mut self, access: DeferredAccess) -> bool {
            self.event(OWNER, Op::Write(X), u64::MAX);
            self.event(OWNER, Op::Begin(RegionId(0)), 100);
            self.moments.told(&mut self.checker, &access);
            self.event(OTHER, Op::Write(X), u64::MAX);
            self.event(OWNER, Op::Write(X), 100);
            self.checker.counts().violations > 0
        }
    }

    /// What the owner reads in its region.
    fn read() -> DeferredAccess {
        let (thread, what, location) = (OWNER, Missed::Read(X), NOWHERE);
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
            let late = DeferredAccess { epoch, what: Missed::Signal(object), ..read() };
            world.moments.told(&mut world.checker, &late);
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
        for _ in 0..4 * FEW {
            world.event(OWNER, Op::Begin(RegionId(0)), 100);
            world.event(OWNER, Op::End(None), u64::MAX);
        }
        assert!(world.moments.count <= FEW + 1, "{}", world.moments.count);
        let begin = 10 + world.events;
        world.event(OWNER, Op::Begin(RegionId(0)), 100);
        for _ in 0..2 * MOST {
            world.event(OWNER, Op::Write(X), 100);
        }
        let kept = &world.moments.threads[&OWNER];
        assert!(kept.len() <= MOST + 1 && kept.iter().any(|moment| moment.epoch <= begin + 4));
        world.moments.clear();
        world.moments.told(&mut world.checker, &DeferredAccess { epoch: u64::MAX, ..read() });
    }
}
