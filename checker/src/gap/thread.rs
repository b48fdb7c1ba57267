//! State of one thread: the regions it is in, the locks it holds, and the last steps after which a gap may begin.

use super::object::{Accessed, Mode};
use super::order::Known;
use crate::event::{Event, EventNumber, LocationId, LockId, Op, RegionId, VarId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

/// Limit of released locks after which a gap may begin; the oldest is forgotten.
const MAX_LEFT: usize = 64;

/// Number of accesses among which the one before a gap is looked for.
const MAX_RECENT: usize = 8;

/// Limit of variables whose last access is known, for gaps with more accesses than [`MAX_RECENT`] in between; all are
/// forgotten when there are more.
const MAX_LATEST: usize = 1 << 10;

/// Limit of steps that are remembered, to recognise repeated steps.
const MAX_MADE: usize = 1 << 14;

/// Limit of steps in an iteration of a region that is followed: as for cuts, another one begins there.
const MAX_ITERATION: usize = 1 << 10;

/// Limit of locks taken in one execution that are noted.
const MAX_TOGETHER: usize = 8;

/// Operation at a place.
type Place = (Discriminant<Op>, LocationId);

/// Execution of a region that spans a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spanning {
    pub(super) region: RegionId,
    pub(super) is_followed: bool,
    begin: EventNumber,
}

/// Step before a gap.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub(super) event: EventNumber,
    pub(super) location: LocationId,
    pub(super) mode: Mode,
    /// Knowledge of the thread about others.
    pub(super) known: Arc<Known>,
    /// Variables accessed while the lock was held.
    pub(super) data: Accessed,
}

/// Access after which a gap may begin.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) variable: VarId,
    pub(super) mode: Mode,
    pub(super) event: EventNumber,
    pub(super) location: LocationId,
    /// Knowledge of the thread about others.
    pub(super) known: Arc<Known>,
}

#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) lock: LockId,
    pub(super) mode: Mode,
    pub(super) since: EventNumber,
    /// Variables accessed since.
    pub(super) data: Accessed,
    /// Gaps that ended with its acquisition, with the lock that was released before each.
    pub(super) ended: Vec<(u32, LockId)>,
}

/// Region that the thread follows.
#[derive(Clone, Debug)]
struct Followed {
    region: RegionId,
    /// First step of the iteration, and the steps made in it.
    since: Option<EventNumber>,
    steps: FxHashSet<Place>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    open: Vec<(RegionId, EventNumber)>,
    followed: Option<Followed>,
    pub(super) held: Vec<Hold>,
    left: FxHashMap<LockId, Left>,
    /// Lock of the last step on a lock, if that was a release.
    pub(super) released_last: Option<LockId>,
    recent: VecDeque<Access>,
    /// Last access to each variable.
    latest: FxHashMap<VarId, Access>,
    /// Last release, and the last one that was followed by an acquisition.
    last_release: Option<EventNumber>,
    reacquired_since: Option<EventNumber>,
    waited: Option<EventNumber>,
    made: FxHashMap<Place, EventNumber>,
    /// Begin of an outermost execution, or of an iteration, and the locks taken in it.
    taken: (EventNumber, Vec<LockId>),
}

impl Thread {
    /// Handles an event before its effects as a step.
    pub(super) fn before(&mut self, event: &Event, now: EventNumber) {
        self.iterate(event, now);
        match event.op {
            Op::Begin(region) => self.open.push((region, now)),
            Op::End(named) => self.end(named),
            Op::Follow(region) => {
                let follow = |region| Followed { region, since: None, steps: FxHashSet::default() };
                self.followed = region.map(follow);
            }
            Op::Wait(_) | Op::Depart(_) | Op::Join(_) => self.waited = Some(now),
            _ => {}
        }
    }

    fn end(&mut self, named: Option<RegionId>) {
        let is_it =
            |(region, _): &(RegionId, EventNumber)| named.is_none_or(|name| name == *region);
        if let Some(index) = self.open.iter().rposition(is_it) {
            self.open.truncate(index);
        }
        // No gap spans from one execution to the next.
        if self.open.is_empty() && self.followed.is_none() {
            self.left.clear();
            self.recent.clear();
            self.latest.clear();
        }
    }

    /// Begins another iteration of a region that is followed where one of its steps is made again (`davida::followed`).
    fn iterate(&mut self, event: &Event, now: EventNumber) {
        let Some(followed) = self.followed.as_mut().filter(|_| self.open.is_empty()) else {
            return;
        };
        match event.op {
            Op::Wait(_) | Op::Depart(_) | Op::Join(_) => {
                followed.since = None;
                followed.steps.clear();
            }
            Op::End(_) | Op::Arrive(_) | Op::Alloc(_) | Op::Free(_) | Op::SplitVariable { .. } => {}
            Op::Reset(_) | Op::Follow(_) | Op::Rest(_) | Op::Resume(_) | Op::Exit => {}
            _ => {
                let step = (discriminant(&event.op), event.location);
                let begin = followed.since;
                let in_section = |hold: &Hold| begin.is_some_and(|begin| begin <= hold.since);
                let is_again = followed.steps.contains(&step) && !self.held.iter().any(in_section);
                if is_again || followed.steps.len() >= MAX_ITERATION {
                    followed.since = None;
                    followed.steps.clear();
                }
                followed.since.get_or_insert(now);
                followed.steps.insert(step);
            }
        }
    }

    /// Returns the innermost region of a step.
    pub(super) fn region(&self) -> Option<RegionId> {
        let followed = || self.followed.as_ref().map(|followed| followed.region);
        self.open.last().map(|(region, _)| *region).or_else(followed)
    }

    /// Returns the innermost execution that was under way at that event, and is now.
    pub(super) fn spanning(&self, event: EventNumber) -> Option<Spanning> {
        let open = self.open.iter().rev().find(|(_, begin)| *begin < event);
        if let Some(&(region, begin)) = open {
            return Some(Spanning { region, is_followed: false, begin });
        }
        let Followed { region, since, .. } = self.followed.as_ref()?;
        let begin = since.filter(|&since| since <= event)?;
        Some(Spanning { region: *region, is_followed: true, begin })
    }

    /// Notes a step at its place. Returns whether it was made before in that execution.
    pub(super) fn repeats(&self, event: &Event, spanning: &Spanning) -> bool {
        let place = (discriminant(&event.op), event.location);
        self.made.get(&place).is_some_and(|&last| last >= spanning.begin)
    }

    /// Notes that a step was made.
    pub(super) fn made(&mut self, event: &Event, now: EventNumber) {
        if self.made.len() >= MAX_MADE {
            self.made.clear();
        }
        self.made.insert((discriminant(&event.op), event.location), now);
    }

    /// Returns whether the thread has waited since that event.
    pub(super) fn has_waited_since(&self, event: EventNumber) -> bool {
        self.waited.is_some_and(|waited| waited > event)
    }

    /// Returns the release of a lock after which a gap may begin.
    pub(super) fn left(&self, lock: LockId) -> Option<&Left> {
        self.left.get(&lock)
    }

    /// Returns the locks held exclusively, without one.
    pub(super) fn guards(&self, but: Option<LockId>) -> Vec<LockId> {
        let exclusive = self.held.iter().filter(|hold| hold.mode == Mode::Write);
        exclusive.map(|hold| hold.lock).filter(|&lock| Some(lock) != but).collect()
    }

    /// Returns the locks held exclusively since before that event.
    pub(super) fn guards_since(&self, event: EventNumber) -> Vec<LockId> {
        let holds = self.held.iter().filter(|hold| hold.mode == Mode::Write && hold.since < event);
        holds.map(|hold| hold.lock).collect()
    }

    /// Returns the index of the hold of a lock.
    pub(super) fn hold(&self, lock: LockId) -> Option<usize> {
        self.held.iter().position(|hold| hold.lock == lock)
    }

    /// Notes that a lock is taken. Returns those taken before in the same execution of an outermost region.
    pub(super) fn taken(&mut self, lock: LockId) -> Vec<LockId> {
        let iteration = || self.followed.as_ref().and_then(|followed| followed.since);
        let execution = self.open.first().map(|(_, begin)| *begin).or_else(iteration);
        let Some(execution) = execution else { return Vec::new() };
        if self.taken.0 != execution {
            self.taken = (execution, Vec::new());
        }
        let taken = self.taken.1.clone();
        if !taken.contains(&lock) && taken.len() < MAX_TOGETHER {
            self.taken.1.push(lock);
        }
        taken
    }

    pub(super) fn acquired(&mut self, hold: Hold) {
        self.left.remove(&hold.lock);
        self.released_last = None;
        self.reacquired_since = self.last_release;
        self.held.push(hold);
    }

    pub(super) fn released(&mut self, lock: LockId, left: Left) {
        if self.left.len() >= MAX_LEFT {
            let oldest = self.left.iter().min_by_key(|(_, left)| left.event).map(|(lock, _)| *lock);
            oldest.map(|oldest| self.left.remove(&oldest));
        }
        self.released_last = Some(lock);
        self.last_release = Some(left.event);
        self.left.insert(lock, left);
    }

    /// Returns the recent accesses, the last one first, between which and now no lock was released and another step on
    /// a lock begun: such a gap is that of the lock.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Access> {
        let since = self.reacquired_since;
        self.recent.iter().take_while(move |access| since.is_none_or(|since| since < access.event))
    }

    /// Returns the last access to a variable, if it is [recent](Self::recent) but for its distance.
    pub(super) fn latest(&self, variable: VarId) -> Option<&Access> {
        let since = self.reacquired_since;
        self.latest.get(&variable).filter(|access| since.is_none_or(|since| since < access.event))
    }

    /// Returns whether a lock has been held since before that event.
    pub(super) fn has_held_since(&self, event: EventNumber) -> bool {
        self.held.iter().any(|hold| hold.since < event)
    }

    pub(super) fn accessed(&mut self, access: Access) {
        for hold in &mut self.held {
            hold.data.add(access.variable, access.mode, access.location);
        }
        if self.latest.len() >= MAX_LATEST && !self.latest.contains_key(&access.variable) {
            self.latest.clear();
        }
        self.latest.insert(access.variable, access.clone());
        self.recent.truncate(MAX_RECENT - 1);
        self.recent.push_front(access);
    }

    /// Forgets a lock whose memory is used for something else.
    pub(super) fn forget(&mut self, lock: LockId) {
        self.left.remove(&lock);
        self.held.retain(|hold| hold.lock != lock);
        self.released_last.take_if(|last| *last == lock);
    }

    /// Forgets the current regions and holds, as events were lost.
    pub(super) fn abandon(&mut self) {
        *self = Self { followed: self.followed.take(), ..Self::default() };
        if let Some(followed) = &mut self.followed {
            followed.since = None;
            followed.steps.clear();
        }
    }
}
