//! Effects of acquires and releases on the state of locks, and the parts of that state that can be dropped.

use super::locks::Hold;
use super::regions::{ActiveRegions, Found};
use super::thread::{Level, Thread, Trail};
use crate::event::{EventNumber, LockId};
use crate::finding::Action;
use crate::hb::{Dependency, EndedHold, EventStamp};

impl ActiveRegions {
    pub(super) fn acquire(&mut self, row: usize, lock: LockId, now: &EventStamp) {
        let follows = self.follows_locks();
        let thread = &mut self.threads[row];
        if follows {
            let is_shared = now.action() == Action::AcquireShared;
            self.found.obstacles.acquired(lock, thread.locks.held());
            thread.locks.acquired(lock, is_shared, now);
            thread.section(now.location(), now.event());
            thread.acted = now.event();
        }
        if self.options.released_locks {
            // The trail of its regions is the first one, if there are any.
            let mut released = None;
            let has_regions = !thread.levels.is_empty();
            for (index, trail) in thread.trails().enumerate() {
                let before = trail.released_locks.acquired(lock, now);
                released = released.or(before.filter(|_| has_regions && index == 0));
            }
            thread.reacquired = released.and_then(|released| {
                let around = |level: &&Level| level.begin.event() <= released;
                let region = thread.levels.iter().rfind(around)?.region;
                self.found.reacquired.count(region, lock);
                Some((region, lock, now.event()))
            });
        }
    }

    pub(super) fn release(&mut self, row: usize, lock: LockId, now: &EventStamp, hold: EndedHold) {
        if self.follows_locks() {
            let Self { threads, found: Found { changing, cuts, .. }, .. } = self;
            let thread = &mut threads[row];
            let region = thread.levels.last().map(|level| level.region);
            let mut section = None;
            thread.locks.released(lock, hold, now.event(), |at| {
                if hold.changes {
                    changing.insert((region, at));
                }
                section = Some((region, at));
                changing.contains(&(region, at))
            });
            for sections in &mut thread.second_sections {
                for key in sections.end(hold.since, &thread.locks, hold.changes) {
                    cuts.note_section(&key, section.filter(|_| !hold.changes));
                }
            }
            thread.acted = now.event();
            if thread.locks.are_many() {
                self.drop_ended_holds(row);
            }
        }
        if self.options.released_locks {
            self.threads[row].trails().for_each(|trail| trail.released_locks.released(lock, now));
        }
    }

    /// Returns whether it is known which locks threads hold.
    fn follows_locks(&self) -> bool {
        self.found.cuts.are_collected() || self.options.released_locks
    }

    /// Notes that an acquire depends on the end of another thread's hold.
    pub(super) fn held_between(&mut self, lock: LockId, dependency: &Dependency<'_>) {
        let &Dependency { source, sink, row, .. } = dependency;
        let mut are_many = false;
        // Once for each time, whichever of others' holds are known to come before it.
        let reacquired =
            self.threads[row].reacquired.filter(|&(_, of, at)| (of, at) == (lock, sink.event()));
        for trail in self.threads[row].trails() {
            are_many |= trail.released_locks.held_between(lock, sink, source);
        }
        if let Some((region, ..)) = reacquired
            && self.threads[row].trail.released_locks.was_held_before(lock, sink)
        {
            self.found.reacquired.held_between(region, lock);
            self.threads[row].reacquired = None;
        }
        if are_many {
            self.drop_splits(row, lock);
        }
    }

    /// Drops times between a release and an acquire of the thread. Times in which others held the lock as the first
    /// thing after a dependency on the thread are retained.
    fn drop_splits(&mut self, row: usize, lock: LockId) {
        let Self { threads, forest, .. } = self;
        let thread = &threads[row];
        let levels = thread.levels.iter().copied().chain(thread.followed_level());
        let slots = levels.filter_map(|level| Some(level.slot? as usize));
        let nodes = slots.flat_map(|slot| forest.nodes(slot));
        let departures = trails(thread).flat_map(|trail| trail.departures.iter());
        let holds = nodes.chain(departures).flat_map(|node| {
            let first = |is_shared: bool| {
                let fits = move |hold: &Hold| (hold.lock, hold.is_shared) == (lock, is_shared);
                threads[node.row()].locks.first_since(&node.sink, fits)
            };
            [first(false), first(true)]
        });
        let needed: Vec<Hold> = holds.flatten().collect();
        for trail in threads[row].trails() {
            trail.released_locks.drop_splits(lock, &needed);
        }
    }

    /// Drops holds of the thread that have ended, but for the first ones since events at which the thread met
    /// dependencies of active regions.
    fn drop_ended_holds(&mut self, row: usize) {
        let Self { threads, forest, .. } = self;
        let mut met: Vec<EventNumber> = forest.reached_first(row).collect();
        // A region reaches its own thread by its begin, also before it has a slot.
        let outermost = threads[row].levels.first().filter(|level| level.slot.is_none());
        met.extend(outermost.map(|level| level.begin.event()));
        for thread in &*threads {
            let departures = trails(thread).flat_map(|trail| trail.departures.iter());
            let to_it = departures.filter(|node| node.row() == row);
            met.extend(to_it.map(|node| node.sink.event()));
        }
        let own = trails(&threads[row]).flat_map(|trail| trail.departures.iter());
        met.extend(own.map(|node| node.source.event()));
        met.sort_unstable();
        threads[row].locks.drop_ended(&met);
    }
}

/// Returns the memories of a thread's open regions.
fn trails(thread: &Thread) -> impl Iterator<Item = &Trail> {
    let own = (!thread.levels.is_empty()).then_some(&thread.trail);
    let followed = thread.followed.as_ref().filter(|followed| followed.level.is_some());
    own.into_iter().chain(followed.map(|followed| &followed.trail))
}
