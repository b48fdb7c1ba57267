//! Locks of one thread: current holds, and holds that have ended. Bounded: of the ended ones, it retains the latest,
//! and holds that a dependency of a possible witness has met.
//!
//! A witness enters a thread at the sink of a dependency and leaves it at a later event. Of each lock, the first hold
//! that had not ended at the sink decides whether the thread held the lock within that part of the witness: however
//! often it takes the lock later, that comes after. So these holds are retained as long as the dependency is, and a few
//! that follow them.

use crate::event::{EventNumber, LocationId, LockId, VarId};
use crate::format::NO_LOCATION;
use crate::hb::{EndedHold, EventStamp, WrittenVariables};
use rustc_hash::FxHashMap;

/// Number of the latest ended holds that are retained.
const LATEST: usize = 32;

/// Number of ended holds from which on they are looked through.
const MANY: usize = 4 * LATEST;

/// Number of holds that are retained after one that a dependency has met, that one included.
const FOLLOWING: usize = 4;

/// Limit of the ended holds that are retained when they are looked through.
const MAX_ENDED: usize = 16 * LATEST;

/// Hold of a lock, from its outermost acquire to its outermost release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) lock: LockId,
    pub(super) is_shared: bool,
    /// Place of the acquire.
    pub(super) at: LocationId,
    pub(super) acquired: EventNumber,
    /// `EventNumber::MAX` while the lock is held.
    pub(super) released: EventNumber,
    /// Set if it has ended and wrote a variable that others had accessed, as did an earlier one at the same place in
    /// the region.
    pub(super) changes: bool,
    /// Variables that it wrote, if it has ended.
    pub(super) written: WrittenVariables,
}

impl Hold {
    /// Returns whether an event of the thread, or a deferred access after that event, is within the hold.
    pub(super) fn covers(&self, point: &EventStamp) -> bool {
        self.acquired <= point.event() && point.known_with() <= self.released
    }
}

/// Events from the first acquire to the last release of holds that were dropped.
#[derive(Clone, Copy, Default)]
struct Dropped(Option<(EventNumber, EventNumber)>);

impl Dropped {
    fn add(&mut self, Self(other): Self) {
        let Some((from, to)) = other else { return };
        let (first, last) = self.0.unwrap_or((from, to));
        self.0 = Some((first.min(from), last.max(to)));
    }

    fn contains(&self, event: EventNumber) -> bool {
        self.0.is_some_and(|(first, last)| (first..=last).contains(&event))
    }
}

struct Ended {
    hold: Hold,
    /// Holds that ended after it, and before the next one, and were dropped.
    dropped: Dropped,
}

impl Ended {
    /// Returns the events of the hold, and of the holds that were dropped after it.
    fn extent(&self) -> Dropped {
        let mut extent = Dropped(Some((self.hold.acquired, self.hold.released)));
        extent.add(self.dropped);
        extent
    }
}

pub(super) struct Locks {
    held: Vec<Hold>,
    /// Holds that ended before all others and were dropped.
    dropped: Dropped,
    /// Holds that have ended, by release.
    ended: Vec<Ended>,
    /// Number of ended holds at which they are looked through next.
    limit: usize,
    /// Last release of each lock and mode, while ended holds are looked through: retained for its memory.
    last_releases: FxHashMap<(LockId, bool), EventNumber>,
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            dropped: Dropped::default(),
            ended: Vec::new(),
            limit: MANY,
            last_releases: FxHashMap::default(),
        }
    }
}

impl Locks {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn acquired(&mut self, lock: LockId, is_shared: bool, now: &EventStamp) {
        let (acquired, released) = (now.event(), EventNumber::MAX);
        let at = now.location();
        self.held.push(Hold {
            lock,
            is_shared,
            at,
            acquired,
            released,
            changes: false,
            written: WrittenVariables::default(),
        });
    }

    /// Ends a hold. `changes` says, of the place where it began, whether it or an earlier one there changed anything.
    pub(super) fn released(
        &mut self,
        lock: LockId,
        ended: EndedHold,
        now: EventNumber,
        changes: impl FnOnce(LocationId) -> bool,
    ) {
        let is_it = |hold: &Hold| (hold.lock, hold.acquired) == (lock, ended.since);
        let Some(index) = self.held.iter().rposition(is_it) else { return };
        let hold = self.held.remove(index);
        let hold =
            Hold { released: now, changes: changes(hold.at), written: ended.written, ..hold };
        self.ended.push(Ended { hold, dropped: Dropped::default() });
    }

    /// Notes a deferred write in the holds that it was made in and that have ended.
    pub(super) fn insert_deferred_write(&mut self, variable: VarId, write: &EventStamp) {
        let start = self.ended.partition_point(|ended| ended.hold.released < write.event());
        for Ended { hold, .. } in &mut self.ended[start..] {
            if hold.covers(write) && !hold.written.contains(&Some(variable)) {
                hold.written.rotate_right(1);
                hold.written[0] = Some(variable);
            }
        }
    }

    /// Treats the lock as never acquired.
    pub(super) fn forget(&mut self, lock: LockId) {
        self.held.retain(|hold| hold.lock != lock);
    }

    /// Returns whether ended holds exceed their limit, so that some should be dropped.
    #[inline]
    pub(super) fn are_many(&self) -> bool {
        self.ended.len() >= self.limit
    }

    /// Drops ended holds. `met` are events of the thread, in their order, at which it met dependencies.
    pub(super) fn drop_ended(&mut self, met: &[EventNumber]) {
        let latest = self.ended.len().saturating_sub(LATEST);
        self.last_releases.clear();
        let (mut following, mut retained) = (0_usize, 0);
        for index in 0..latest {
            let Hold { lock, is_shared, released, .. } = self.ended[index].hold;
            following = following.saturating_sub(1);
            // Holds that had ended by then do not matter, and most had.
            if met.first().is_some_and(|&event| event <= released) {
                let before = self.last_releases.insert((lock, is_shared), released);
                // The first event since the last hold of the lock, and until this one.
                let since =
                    before.map_or(0, |before| met.partition_point(|&event| event <= before));
                if met.get(since).is_some_and(|&event| event <= released) {
                    following = FOLLOWING;
                }
            }
            if following > 0 {
                self.ended.swap(retained, index);
                retained += 1;
            } else {
                let extent = self.ended[index].extent();
                let before = retained.checked_sub(1).map(|last| &mut self.ended[last].dropped);
                before.unwrap_or(&mut self.dropped).add(extent);
            }
        }
        self.ended.drain(retained..latest);
        let excess = self.ended.len().saturating_sub(MAX_ENDED);
        for ended in self.ended.drain(..excess) {
            self.dropped.add(ended.extent());
        }
        self.limit = MANY.max(2 * self.ended.len());
    }

    /// Returns the first hold that fits, of all that had not ended at an event.
    pub(super) fn first_since(
        &self,
        from: &EventStamp,
        fits: impl Fn(&Hold) -> bool,
    ) -> Option<Hold> {
        let start = self.ended.partition_point(|ended| ended.hold.released < from.event());
        let ended = self.ended[start..].iter().map(|ended| &ended.hold);
        let fitting = ended.chain(&self.held).filter(|hold| fits(hold));
        fitting.min_by_key(|hold| hold.acquired).copied()
    }

    /// Returns the locks that are held now and were at an event, by id.
    pub(super) fn since(&self, event: EventNumber) -> Vec<LockId> {
        let held = self.held.iter().filter(|hold| hold.acquired <= event);
        let mut locks: Vec<LockId> = held.map(|hold| hold.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    /// Returns the locks held from one event to another, by id; `None` if some may be forgotten.
    pub(super) fn during(&self, from: &EventStamp, to: &EventStamp) -> Option<Vec<LockId>> {
        let ended = self.ended_since(from.event())?;
        let covers = |hold: &&Hold| hold.covers(from) && to.known_with() <= hold.released;
        let mut locks: Vec<LockId> =
            ended.chain(&self.held).filter(covers).map(|hold| hold.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        Some(locks)
    }

    /// Returns the locks held at two events, in one hold or in holds that begin at one place, by id, unless some may be
    /// forgotten.
    pub(super) fn at_both(&self, from: &EventStamp, to: &EventStamp) -> Option<Vec<LockId>> {
        let around = |point: &EventStamp| {
            let holds = self.ended_since(point.event())?.chain(&self.held);
            Some(holds.filter(|hold| hold.covers(point)).copied().collect::<Vec<Hold>>())
        };
        let (first, second) = (around(from)?, around(to)?);
        let is_one = |one: &Hold, other: &Hold| {
            let is_same_place = one.at == other.at && one.at != NO_LOCATION;
            one.lock == other.lock && (is_same_place || one.acquired == other.acquired)
        };
        let at_first = |hold: &&Hold| first.iter().any(|one| is_one(one, hold));
        let mut locks: Vec<LockId> = second.iter().filter(at_first).map(|hold| hold.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        Some(locks)
    }

    /// Returns the holds that ended at an event or later; `None` if one around it may be forgotten.
    fn ended_since(&self, at: EventNumber) -> Option<impl Iterator<Item = &Hold>> {
        let next = self.ended.partition_point(|ended| ended.hold.released < at);
        // Holds that ended at the point or later and were dropped may have begun before it.
        let mut dropped = self.ended[next.saturating_sub(1)..].iter().map(|ended| &ended.dropped);
        let is_forgotten =
            dropped.any(|dropped| dropped.contains(at)) || next == 0 && self.dropped.contains(at);
        (!is_forgotten).then(|| self.ended[next..].iter().map(|ended| &ended.hold))
    }

    /// Returns the locks that are held now.
    pub(super) fn held(&self) -> impl Iterator<Item = LockId> {
        self.held.iter().map(|hold| hold.lock)
    }

    /// Returns whether a lock is held that was acquired at an event or later.
    pub(super) fn holds_since(&self, event: EventNumber) -> bool {
        self.held.iter().any(|hold| event <= hold.acquired)
    }

    /// Returns whether a lock is held that was acquired before an event.
    pub(super) fn holds_before(&self, event: EventNumber) -> bool {
        self.held.iter().any(|hold| hold.acquired < event)
    }

    /// Returns the locks that were acquired after an event, as far as is known, by id.
    pub(super) fn acquired_after(&self, event: EventNumber) -> Vec<LockId> {
        let all = self.ended.iter().map(|ended| &ended.hold).chain(&self.held);
        let later = all.filter(|hold| event < hold.acquired);
        let mut locks: Vec<LockId> = later.map(|hold| hold.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    /// Returns the outermost hold around a point that ended by an event.
    pub(super) fn left(&self, point: &EventStamp, until: EventNumber) -> Option<Hold> {
        let ended = self.ended_since(point.event())?;
        let around = ended.filter(|hold| hold.covers(point) && hold.released <= until);
        around.min_by_key(|hold| hold.acquired).copied()
    }

    /// Returns the place of the outermost hold around a point that began after an event.
    pub(super) fn entered(&self, point: &EventStamp, after: EventNumber) -> Option<LocationId> {
        let all = self.ended_since(point.event())?.chain(&self.held);
        let begun = all.filter(|hold| hold.covers(point) && after < hold.acquired);
        begun.min_by_key(|hold| hold.acquired).map(|hold| hold.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{LocationId, ThreadId};
    use crate::finding::Action;

    fn ended(since: EventNumber) -> EndedHold {
        EndedHold { since, changes: false, written: WrittenVariables::default() }
    }

    fn at(event: EventNumber) -> EventStamp {
        let mut stamp = EventStamp::NONE;
        stamp.set_tx(ThreadId(0), 0, None, 0);
        stamp.advance(event, Action::Read, LocationId(0))
    }

    /// Holds one lock at the first half of each ten events, and drops holds like a thread that met dependencies then.
    fn locks(rounds: u64, met: &[EventNumber]) -> Locks {
        let mut locks = Locks::default();
        for round in 0..rounds {
            locks.acquired(LockId(0), false, &at(10 * round));
            locks.released(LockId(0), ended(10 * round), 10 * round + 5, |_| false);
            if locks.are_many() {
                locks.drop_ended(met);
            }
        }
        locks
    }

    #[test]
    fn holds_at_dependencies_are_retained_and_others_are_unknown_then() {
        let locks = locks(10_000, &[203, 407]);
        assert!(locks.ended.len() <= MANY, "{}", locks.ended.len());
        let during = |event| locks.during(&at(event), &at(event));
        let held = Some(vec![LockId(0)]);
        // The hold at the one event, the first one after the other, and a few that follow.
        assert_eq!(
            [during(203), during(412), during(422), during(99_992)],
            [(); 4].map(|()| held.clone())
        );
        assert_eq!([during(206), during(416), during(99_997)], [(); 3].map(|()| Some(vec![])));
        assert_eq!([during(152), during(156), during(282), during(50_003)], [(); 4].map(|()| None));
        let first = |event| locks.first_since(&at(event), |_| true).map(|hold| hold.acquired);
        assert_eq!((first(203), first(407)), (Some(200), Some(410)));
    }

    #[test]
    fn memory_does_not_grow_with_the_locks() {
        let mut locks = Locks::default();
        for round in 0..10_000 {
            locks.acquired(LockId(round as u32), false, &at(10 * round));
            locks.released(LockId(round as u32), ended(10 * round), 10 * round + 5, |_| false);
            if locks.are_many() {
                // Of each lock the first hold since then is this one.
                locks.drop_ended(&[2]);
            }
        }
        assert!(locks.ended.len() <= 2 * MAX_ENDED, "{}", locks.ended.len());
        assert_eq!(locks.during(&at(2), &at(2)), None);
    }

    #[test]
    fn a_deferred_access_after_a_release_is_not_within_the_hold() {
        let locks = locks(1, &[]);
        let released = at(5);
        let later = released.deferred(Action::Read, LocationId(0));
        assert_eq!(locks.during(&released, &released), Some(vec![LockId(0)]));
        assert_eq!(locks.during(&later, &later), Some(vec![]));
    }
}
