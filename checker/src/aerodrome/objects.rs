//! Clocks of objects: those of events that later ones can depend on. The caller decides when they are
//! compared and when they learn.

use crate::event::{EventNumber, LockId, SyncId, ThreadId, VarId};
use crate::hb::EventStamp;
use crate::vector::Vector;
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Object and kind of event that a clock belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Write(VarId),
    Reads(VarId),
    CommutingUpdates(VarId),
    Release(LockId),
    SharedReleases(LockId),
    Signals(SyncId),
    Barrier(SyncId),
    Fork(ThreadId),
}

impl Place {
    pub(super) fn is_variable(self) -> bool {
        matches!(self, Self::Write(_) | Self::Reads(_) | Self::CommutingUpdates(_))
    }

    /// Returns whether earlier events of other threads remain sources after a later event.
    fn is_many(self) -> bool {
        !matches!(self, Self::Write(_) | Self::Release(_) | Self::Fork(_))
    }
}

/// Sources in one place.
#[derive(Clone)]
pub(super) enum Sources {
    One(Vector),
    /// Several threads, each with its own clock: the plain version.
    Each(Vec<(ThreadId, Vector)>),
    /// Several threads as two clocks: the join of all; and the join of each without its thread's own
    /// component.
    Joined([Vector; 2]),
}

impl Sources {
    /// Returns whether all threads' clocks are learnt at once.
    pub(super) fn is_many(&self) -> bool {
        matches!(self, Self::Joined(_))
    }

    /// Returns the clock that an event depending on `thread`'s learns, and the clock that its transaction
    /// is checked against.
    pub(super) fn clocks_for(&self, thread: ThreadId) -> (Vector, Vector) {
        match self {
            Self::One(clock) => (clock.clone(), clock.clone()),
            Self::Each(each) => {
                let found = each.iter().find(|(of, _)| *of == thread);
                let clock = found.map_or_else(Vector::default, |(_, clock)| clock.clone());
                (clock.clone(), clock)
            }
            Self::Joined([all, others]) => (all.clone(), others.clone()),
        }
    }

    fn put(&mut self, thread: ThreadId, row: usize, now: &Vector) {
        match self {
            Self::One(clock) => clock.clone_from(now),
            Self::Each(each) => match each.iter_mut().find(|(of, _)| *of == thread) {
                Some((_, clock)) => clock.clone_from(now),
                None => each.push((thread, now.clone())),
            },
            Self::Joined([all, others]) => {
                all.join(now);
                others.join_but(now, row);
            }
        }
    }

    /// Adds the clock to every stored one that satisfies `knows`. If there are two clocks, the first, which
    /// contains the second, decides for both.
    fn learn(&mut self, clock: &Vector, knows: &impl Fn(&Vector) -> bool) {
        match self {
            Self::One(known) => learn(known, clock, knows),
            Self::Each(each) => each.iter_mut().for_each(|(_, known)| learn(known, clock, knows)),
            Self::Joined([all, others]) => {
                if knows(all) {
                    all.join(clock);
                    others.join(clock);
                }
            }
        }
    }

    fn for_each(&mut self, mut visit: impl FnMut(&mut Vector)) {
        match self {
            Self::One(clock) => visit(clock),
            Self::Each(each) => each.iter_mut().for_each(|(_, clock)| visit(clock)),
            Self::Joined(both) => both.iter_mut().for_each(visit),
        }
    }

    fn clocks(&self) -> Vec<Cow<'_, Vector>> {
        match self {
            Self::One(clock) => vec![Cow::Borrowed(clock)],
            Self::Each(each) => each.iter().map(|(_, clock)| Cow::Borrowed(clock)).collect(),
            Self::Joined([all, _]) => vec![Cow::Borrowed(all)],
        }
    }
}

fn learn(known: &mut Vector, clock: &Vector, knows: &impl Fn(&Vector) -> bool) {
    if knows(known) {
        known.join(clock);
    }
}

/// Arrivals at a barrier, grouped by round, and within a round by the departures between them.
#[derive(Default)]
struct Barrier {
    open: u64,
    /// Threads that have arrived and not departed, with their round.
    inside: Vec<(ThreadId, u64)>,
    groups: Vec<Group>,
    /// Set if the last group takes no more arrivals.
    closed: bool,
}

struct Group {
    round: u64,
    first: EventNumber,
    sources: Sources,
}

impl Barrier {
    fn leave(&mut self, thread: ThreadId) -> Option<u64> {
        let index = self.inside.iter().position(|&(inside, _)| inside == thread)?;
        Some(self.inside.swap_remove(index).1)
    }

    fn next_round(&mut self) {
        self.open += 1;
        self.forget_empty_rounds();
    }

    fn forget_empty_rounds(&mut self) {
        let Self { open, inside, groups, .. } = self;
        groups.retain(|group| {
            group.round == *open || inside.iter().any(|&(_, round)| round == group.round)
        });
    }
}

/// Clocks of all objects.
pub(super) struct Objects {
    plain: bool,
    places: FxHashMap<Place, Sources>,
    barriers: FxHashMap<SyncId, Barrier>,
}

impl Objects {
    pub(super) fn new(plain: bool) -> Self {
        Self { plain, places: FxHashMap::default(), barriers: FxHashMap::default() }
    }

    /// Returns empty sources of the kind that fits the place.
    fn none(plain: bool, place: Place) -> Sources {
        match (place.is_many(), plain) {
            (false, _) => Sources::One(Vector::default()),
            (true, true) => Sources::Each(Vec::new()),
            (true, false) => Sources::Joined(Default::default()),
        }
    }

    /// Stores an event of the thread in the row, which knows `now`. A write or an exclusive release
    /// replaces all earlier events on its object.
    pub(super) fn put(
        &mut self,
        place: Place,
        thread: ThreadId,
        row: usize,
        event: EventNumber,
        now: &Vector,
    ) {
        match place {
            Place::Write(variable) => {
                self.places.remove(&Place::Reads(variable));
                self.places.remove(&Place::CommutingUpdates(variable));
            }
            Place::Release(lock) => drop(self.places.remove(&Place::SharedReleases(lock))),
            Place::Barrier(object) => return self.arrive(object, thread, row, event, now),
            _ => {}
        }
        let plain = self.plain;
        let sources = self.places.entry(place).or_insert_with(|| Self::none(plain, place));
        sources.put(thread, row, now);
    }

    fn arrive(
        &mut self,
        object: SyncId,
        thread: ThreadId,
        row: usize,
        event: EventNumber,
        now: &Vector,
    ) {
        let barrier = self.barriers.entry(object).or_default();
        barrier.leave(thread);
        let round = barrier.open;
        barrier.inside.push((thread, round));
        let last = barrier.groups.last().map(|group| group.round);
        if last != Some(round) || std::mem::take(&mut barrier.closed) {
            let sources = Self::none(self.plain, Place::Barrier(object));
            barrier.groups.push(Group { round, first: event, sources });
            barrier.closed = false;
        }
        if let Some(group) = barrier.groups.last_mut() {
            group.sources.put(thread, row, now);
        }
    }

    /// Notes that the thread departs from the barrier.
    pub(super) fn depart(&mut self, object: SyncId, thread: ThreadId) {
        let Some(barrier) = self.barriers.get_mut(&object) else { return };
        barrier.closed = true;
        if barrier.leave(thread) == Some(barrier.open) {
            barrier.next_round();
        } else {
            barrier.forget_empty_rounds();
        }
    }

    /// Handles a departure whose arrival was missed.
    pub(super) fn depart_unseen(&mut self, object: SyncId) {
        if let Some(barrier) = self.barriers.get_mut(&object) {
            barrier.next_round();
        }
    }

    /// Notes that a thread that has ended will not depart.
    pub(super) fn leave_barriers(&mut self, thread: ThreadId) {
        for barrier in self.barriers.values_mut() {
            if barrier.leave(thread).is_some() {
                barrier.forget_empty_rounds();
            }
        }
    }

    /// Notes that arrivals or departures were lost: current rounds cannot be distinguished.
    pub(super) fn gap(&mut self) {
        for barrier in self.barriers.values_mut() {
            barrier.inside.clear();
            barrier.next_round();
        }
    }

    /// Forgets a variable, whose memory starts or ends a life.
    pub(super) fn forget_variable(&mut self, variable: VarId) {
        self.places.remove(&Place::Write(variable));
        self.places.remove(&Place::Reads(variable));
        self.places.remove(&Place::CommutingUpdates(variable));
    }

    /// Copies the sources of `from` to `to`, a part of it that becomes a variable.
    pub(super) fn split_variable(&mut self, from: VarId, to: VarId) {
        for place in [Place::Write, Place::Reads, Place::CommutingUpdates] {
            match self.places.get(&place(from)).cloned() {
                Some(sources) => drop(self.places.insert(place(to), sources)),
                None => drop(self.places.remove(&place(to))),
            }
        }
    }

    /// Forgets a lock that was reset.
    pub(super) fn forget_lock(&mut self, lock: LockId) {
        self.places.remove(&Place::Release(lock));
        self.places.remove(&Place::SharedReleases(lock));
    }

    /// Returns the sources that a dependency's source is among, and a number that distinguishes them from
    /// others in the place.
    pub(super) fn sources(&self, place: Place, source: &EventStamp) -> Option<(usize, &Sources)> {
        let Place::Barrier(object) = place else {
            return self.places.get(&place).map(|sources| (0, sources));
        };
        let groups = &self.barriers.get(&object)?.groups;
        let index = groups.partition_point(|group| group.first <= source.event()).checked_sub(1)?;
        groups.get(index).map(|group| (index, &group.sources))
    }

    /// Returns all clocks in a place.
    pub(super) fn clocks(&self, place: Place) -> Vec<Cow<'_, Vector>> {
        match place {
            Place::Barrier(object) => {
                let groups = self.barriers.get(&object).into_iter().flat_map(|b| &b.groups);
                groups.flat_map(|group| group.sources.clocks()).collect()
            }
            _ => self.places.get(&place).map_or_else(Vec::new, Sources::clocks),
        }
    }

    /// Adds the clock to every clock in that place that satisfies `knows`.
    pub(super) fn learn(&mut self, place: Place, clock: &Vector, knows: impl Fn(&Vector) -> bool) {
        if let Place::Barrier(object) = place {
            let groups = self.barriers.get_mut(&object).into_iter().flat_map(|b| &mut b.groups);
            groups.for_each(|group| group.sources.learn(clock, &knows));
        } else if let Some(sources) = self.places.get_mut(&place) {
            sources.learn(clock, &knows);
        }
    }

    /// Visits all clocks.
    pub(super) fn for_each(&mut self, mut visit: impl FnMut(&mut Vector)) {
        let groups = self.barriers.values_mut().flat_map(|barrier| &mut barrier.groups);
        let barriers = groups.map(|group| &mut group.sources);
        for sources in self.places.values_mut().chain(barriers) {
            sources.for_each(&mut visit);
        }
    }
}
