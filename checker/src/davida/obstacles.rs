//! Facts against holding a lock from one step of a gap to the other: other threads could come to a standstill.
//! Collected over the whole run, since one execution may not wait where another one does.

use crate::event::{LocationId, LockId, RegionId, VarId};
use crate::finding::{Action, Cut, Object, Obstacle, Violation};
use rustc_hash::FxHashSet;

/// Limit of the pairs of locks whose order is known.
const MAX_PAIRS: usize = 1 << 14;

/// Number of pairs that are found without a hash.
const RECENT: usize = 1 << 8;

/// Waits of regions, and orders of locks.
#[derive(Clone, Default)]
pub(super) struct Obstacles {
    /// Regions that have waited for other threads, by themselves or in a callee.
    waiting: FxHashSet<RegionId>,
    /// Locks of which the first one was held when the second one was acquired.
    nested: FxHashSet<(LockId, LockId)>,
    /// Some of `nested`, one at each place: most acquires nest as earlier ones did.
    recent: Vec<Option<(LockId, LockId)>>,
    /// Variables that threads have polled until another thread changed them.
    polled: FxHashSet<VarId>,
    /// Places of the reads by which they do.
    polling: FxHashSet<LocationId>,
}

impl Obstacles {
    pub(super) fn waited(&mut self, regions: impl Iterator<Item = RegionId>) {
        self.waiting.extend(regions);
    }

    pub(super) fn polled(&mut self, object: Object, at: LocationId) {
        if let Object::Variable(variable) = object {
            self.polled.insert(variable);
            self.polling.insert(at);
        }
    }

    /// Returns whether an end of a witness is on a variable that threads poll; of an update that may be lost, whether
    /// the region polled the variable itself before.
    pub(super) fn is_polled(&self, violation: &Violation) -> bool {
        let (Some(first), Some(last)) = (violation.edges.first(), violation.edges.last()) else {
            return false;
        };
        let is_polled = |object: Object| matches!(object, Object::Variable(variable) if self.polled.contains(&variable));
        let updates = first.object == last.object && last.sink.action != Action::Read;
        match updates && first.source.action == Action::Read {
            true => is_polled(first.object) && self.polling.contains(&first.source.location),
            false => is_polled(first.object) || is_polled(last.object),
        }
    }

    pub(super) fn acquired(&mut self, lock: LockId, held: impl Iterator<Item = LockId>) {
        for outer in held.filter(|&outer| outer != lock) {
            let place = outer.index().wrapping_mul(31).wrapping_add(lock.index()) % RECENT;
            if self.recent.get(place) != Some(&Some((outer, lock))) {
                self.add_nested(outer, lock, place);
            }
        }
    }

    #[inline(never)]
    fn add_nested(&mut self, outer: LockId, lock: LockId, place: usize) {
        if self.nested.len() < MAX_PAIRS {
            self.nested.insert((outer, lock));
        }
        self.recent.resize(RECENT, None);
        self.recent[place] = Some((outer, lock));
    }

    /// Returns what speaks against holding a lock over the gap of a cut, which the violation shows.
    pub(super) fn of(&self, cut: &Cut, violation: &Violation) -> Option<Obstacle> {
        if cut.obstacle.is_some() {
            return cut.obstacle;
        }
        if self.waiting.contains(&cut.region) {
            return Some(Obstacle::Wait);
        }
        // Candidates for the lock to hold: locks held at the gap's ends, and by the other threads.
        let ends = [&cut.left_end.held, &cut.returned_end.held];
        let others = [&cut.others.entered, &cut.others.left];
        let held = ends.into_iter().chain(others).flatten().flatten().copied();
        let held: Vec<LockId> =
            held.chain(violation.released_locks.iter().map(|split| split.lock)).collect();
        let inverts = |&inner: &LockId| {
            held.iter().any(|&outer| outer != inner && self.leads_to(inner, outer))
        };
        cut.acquired.iter().any(inverts).then_some(Obstacle::LockOrder)
    }

    /// Returns whether a lock is acquired while another one is held, or while one is held that is acquired so.
    fn leads_to(&self, from: LockId, to: LockId) -> bool {
        let (mut seen, mut next) = (FxHashSet::default(), vec![from]);
        while let Some(lock) = next.pop() {
            if lock == to && !seen.is_empty() {
                return true;
            }
            if seen.insert(lock) {
                next.extend(self.nested.iter().filter(|(outer, _)| *outer == lock).map(|of| of.1));
            }
        }
        false
    }
}
