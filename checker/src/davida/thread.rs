//! State of one thread, besides its rows in the forest: its open regions, and a bounded memory of what happened in
//! them, from which the facts about a gap are taken.

use super::cuts::Key;
use super::departures::Departures;
use super::followed::Followed;
use super::forest::Node;
use super::locks::Locks;
use super::recent::{Interval, Recent};
use super::released_locks::ReleasedLocks;
use super::second_sections::SecondSections;
use crate::event::{EventNumber, LocationId, LockId, RegionId, VarId};
use crate::finding::{Action, GapEnd, GapKind, Object, Obstacle, OtherLocks, Point, ReleasedLock};
use crate::hb::EventStamp;

/// Limit of variables whose last read after a gap is stored.
const MAX_READS: usize = 16;

#[derive(Clone, Copy)]
pub(super) struct Level {
    pub(super) region: RegionId,
    pub(super) begin: EventStamp,
    /// Slot in the forest; `None` until an event leaves the region, as it reaches no other thread before.
    pub(super) slot: Option<u32>,
}

/// Begin of no region.
const NEVER: EventNumber = EventNumber::MAX;

pub(super) struct Thread {
    /// Open regions, outermost first; regions with a slot come first.
    pub(super) levels: Vec<Level>,
    /// Order of the sections in each of them. Further entries are left over from earlier regions.
    orders: Vec<SectionOrder>,
    /// Begin of the first region without a slot.
    pub(super) first_without_slot: EventNumber,
    /// Set once its current transaction is counted as violating.
    pub(super) violating: bool,
    /// Memory of its transaction.
    pub(super) trail: Trail,
    /// Region that its actions outside all others belong to.
    pub(super) followed: Option<Box<Followed>>,
    pub(super) locks: Locks,
    /// Second sections of cuts of regions that are followed, and of all others: neither takes room from the other.
    pub(super) second_sections: [SecondSections<Key>; 2],
    /// Last event at which the thread depended on another one by waiting for it.
    pub(super) waited: EventNumber,
    /// Last event by which the thread let others go on.
    pub(super) notified: EventNumber,
    /// Last event by which it did anything that concerns others but reading.
    pub(super) acted: EventNumber,
    /// Last event, up to the end of its last region, by which it changed a variable that others had accessed.
    pub(super) last_change: EventNumber,
    /// Region that has just taken a lock again, with the event.
    pub(super) reacquired: Option<(RegionId, LockId, EventNumber)>,
    /// Latest reads of values that other threads had written: variable, event and place.
    looks: Vec<(VarId, EventNumber, LocationId)>,
}

/// Limit of the reads by which waits are recognised.
const MAX_LOOKS: usize = 8;

impl Default for Thread {
    fn default() -> Self {
        Self {
            levels: Vec::new(),
            orders: Vec::new(),
            first_without_slot: NEVER,
            violating: false,
            trail: Trail::default(),
            followed: None,
            locks: Locks::default(),
            second_sections: Default::default(),
            waited: 0,
            notified: 0,
            acted: 0,
            last_change: 0,
            reacquired: None,
            looks: Vec::new(),
        }
    }
}

/// Order in which an execution came to its sections first, by the places where they acquire their locks, each with the
/// event of its last acquire. The first iteration of a loop makes the order, so that a section which comes before an
/// earlier one is of another iteration.
#[derive(Default)]
pub(super) struct SectionOrder {
    sections: Vec<(LocationId, EventNumber)>,
    /// Some of them, one at each place, by their numbers from 1: an execution comes to most sections again.
    recent: [u32; RECENT_SECTIONS],
}

/// Limit of the sections of an execution whose order is known.
const MAX_SECTIONS: usize = 64;

/// Number of sections that are found without a look at all.
const RECENT_SECTIONS: usize = 8;

impl SectionOrder {
    #[inline]
    pub(super) fn acquired(&mut self, at: LocationId, event: EventNumber) {
        let recent = &mut self.recent[at.index() % RECENT_SECTIONS];
        let known =
            (*recent as usize).checked_sub(1).and_then(|index| self.sections.get_mut(index));
        if let Some(section) = known.filter(|section| section.0 == at) {
            section.1 = event;
            return;
        }
        let number = self.sections.iter().position(|section| section.0 == at);
        let number = number.unwrap_or(self.sections.len());
        match self.sections.get_mut(number) {
            Some(section) => section.1 = event,
            None if number < MAX_SECTIONS => self.sections.push((at, event)),
            None => return,
        }
        *recent = number as u32 + 1;
    }

    fn clear(&mut self) {
        if !self.sections.is_empty() {
            self.sections.clear();
            self.recent = [0; RECENT_SECTIONS];
        }
    }

    /// Returns whether the execution came to `second` before it came to `first`.
    fn goes_back(&self, first: LocationId, second: LocationId) -> bool {
        let place = |of: LocationId| self.sections.iter().position(|section| section.0 == of);
        place(first).zip(place(second)).is_some_and(|(first, second)| second < first)
    }

    /// Returns whether the execution came to the section `first` again after an event, and then to `second`: this is of
    /// another iteration.
    fn repeats(&self, first: LocationId, second: LocationId, event: EventNumber) -> bool {
        let again = self.sections.iter().any(|&(at, last)| at == first && last > event);
        again && first != second
    }
}

/// Bounded history of an outermost region, or of the followed region.
#[derive(Default)]
pub(super) struct Trail {
    pub(super) released_locks: ReleasedLocks,
    pub(super) departures: Departures,
    /// Regions within it that have ended.
    pub(super) ended: Recent<RegionId>,
    /// Last read of variables that other threads had written since it began.
    reads: Vec<(VarId, EventNumber, LocationId)>,
    /// Executions that are counted as cut: begin, and number of the cut.
    cut: Vec<(EventNumber, u32)>,
    /// Last cut by synchronisation: begin of the region and event at which it was left, and the number of the cut.
    last_cut: Option<(LeftAt, u32)>,
}

/// Limit of executions of one thread that are remembered as cut.
const MAX_CUT: usize = 64;

impl Thread {
    /// Starts a transaction.
    pub(super) fn begin(&mut self) {
        self.violating = false;
        self.trail.clear();
    }

    /// Forgets the second sections that are open, or whose regions are.
    pub(super) fn forget_second_sections(&mut self) {
        self.second_sections.iter_mut().for_each(SecondSections::clear);
    }

    /// Returns whether the event is in the thread's active regions. It is one of the thread.
    #[inline]
    pub(super) fn contains(&self, event: EventNumber) -> bool {
        self.levels.first().is_some_and(|level| level.begin.event() <= event)
    }

    /// Returns the open execution of the region that is followed, if there is one.
    #[inline]
    pub(super) fn followed_level(&self) -> Option<Level> {
        self.followed.as_ref()?.level
    }

    /// Opens a region, without a slot.
    pub(super) fn open(&mut self, region: RegionId, begin: &EventStamp) {
        self.first_without_slot = self.first_without_slot.min(begin.event());
        let depth = self.levels.len();
        match self.orders.get_mut(depth) {
            Some(order) => order.clear(),
            None => self.orders.push(SectionOrder::default()),
        }
        self.levels.push(Level { region, begin: *begin, slot: None });
    }

    /// Notes the begin of a section in the regions that it is part of.
    pub(super) fn section(&mut self, at: LocationId, event: EventNumber) {
        let own = self.orders.iter_mut().take(self.levels.len());
        let followed = self.followed.as_mut().map(|followed| &mut followed.order);
        own.chain(followed).for_each(|order| order.acquired(at, event));
    }

    /// Returns whether a thread waits for a change: the access repeats a read at the same place, others have changed
    /// the variable since, and the thread did no other work in between.
    pub(super) fn spins(&self, object: Object, sink: &EventStamp) -> bool {
        let is_it = |node: &Node| {
            node.object == object
                && node.source.location() == sink.location()
                && node.source.action() == Action::Read
                && node.source.event() > self.acted
        };
        let followed = self.followed.as_ref().map(|followed| &followed.trail);
        let mut trails = std::iter::once(&self.trail).chain(followed);
        sink.action() == Action::Read && trails.any(|trail| trail.departures.iter().any(is_it))
    }

    /// Notes a read of a value that another thread has written.
    pub(super) fn looked(&mut self, object: Object, sink: &EventStamp) {
        let Object::Variable(variable) = object else { return };
        let (event, at) = (sink.event(), sink.location());
        self.looks.retain(|look| (look.0, look.2) != (variable, at));
        if self.looks.len() == MAX_LOOKS {
            self.looks.remove(0);
        }
        self.looks.push((variable, event, at));
    }

    /// Returns the places of the reads of a variable by which the thread has waited since it did other work.
    pub(super) fn places_of_wait(&self, object: Object) -> impl Iterator<Item = LocationId> {
        let is_it = move |look: &&(VarId, EventNumber, LocationId)| {
            object == Object::Variable(look.0) && look.1 > self.acted
        };
        self.looks.iter().filter(is_it).map(|look| look.2)
    }

    /// Closes the innermost region at event `end`.
    pub(super) fn close(&mut self, end: EventNumber) -> Option<Level> {
        let level = self.levels.pop()?;
        let begin = level.begin.event();
        if begin <= self.first_without_slot {
            self.first_without_slot = NEVER;
        }
        if !self.levels.is_empty() {
            self.trail.ended.push(level.region, begin, end);
            self.trail.cut.retain(|&(cut, _)| cut != begin);
        }
        if let Some(followed) = &mut self.followed {
            followed.trail.ended.push(level.region, begin, end);
        }
        Some(level)
    }

    /// Returns the trails that its events belong to.
    pub(super) fn trails(&mut self) -> impl Iterator<Item = &mut Trail> {
        let followed = self.followed.as_mut().filter(|followed| followed.level.is_some());
        let own = (!self.levels.is_empty()).then_some(&mut self.trail);
        own.into_iter().chain(followed.map(|followed| &mut followed.trail))
    }

    /// Returns the slots of its regions, outermost first.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        self.levels.iter().map_while(|level| level.slot).map(|slot| slot as usize)
    }

    /// Returns the state of the region at that level, or of the followed region: its trail, and the regions around it
    /// and within it.
    pub(super) fn surroundings(&self, level: Option<usize>) -> Option<Surroundings<'_>> {
        let Self { levels, orders, trail, followed, locks, waited, notified, .. } = self;
        let (of, trail, order, outer, inner) = match level {
            Some(level) => {
                let (outer, inner) = (&levels[..level], &levels[level + 1..]);
                (*levels.get(level)?, trail, orders.get(level)?, outer, inner)
            }
            None => {
                let followed = followed.as_ref()?;
                (followed.level?, &followed.trail, &followed.order, &[][..], &levels[..])
            }
        };
        let (waited, notified) = (*waited, *notified);
        Some(Surroundings { of, trail, order, outer, inner, locks, waited, notified })
    }

    /// Returns the trail of the region at that level, or of the followed region.
    pub(super) fn trail_mut(&mut self, level: Option<usize>) -> Option<&mut Trail> {
        match level {
            Some(_) => Some(&mut self.trail),
            None => self.followed.as_mut().map(|followed| &mut followed.trail),
        }
    }
}

/// Moment at which a region was left for another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftAt {
    /// Begin of the region's execution.
    pub(super) begin: EventNumber,
    /// Event by which it was left.
    pub(super) event: EventNumber,
}

impl Trail {
    pub(super) fn clear(&mut self) {
        self.released_locks.clear();
        self.departures.clear();
        self.ended.clear();
        self.reads.clear();
        self.cut.clear();
        self.last_cut = None;
    }

    /// Returns the number of the last cut by synchronisation, if the region was left there.
    pub(super) fn last_cut(&self, left: LeftAt) -> Option<u32> {
        self.last_cut.filter(|(last, _)| *last == left).map(|(_, number)| number)
    }

    pub(super) fn set_last_cut(&mut self, left: LeftAt, number: u32) {
        self.last_cut = Some((left, number));
    }

    /// Returns whether this is the first time that the execution that began then is cut at that place.
    pub(super) fn is_first_cut(&mut self, begin: EventNumber, cut: u32) -> bool {
        if self.cut.contains(&(begin, cut)) {
            return false;
        }
        if self.cut.len() == MAX_CUT {
            self.cut.remove(0);
        }
        self.cut.push((begin, cut));
        true
    }

    /// Notes a read of a variable that depends on another thread's write.
    pub(super) fn read(&mut self, variable: VarId, event: EventNumber, location: LocationId) {
        self.reads.retain(|&(read, ..)| read != variable);
        if self.reads.len() == MAX_READS {
            self.reads.remove(0);
        }
        self.reads.push((variable, event, location));
    }

    /// Returns where the variable was read again after the first dependency, before `until`.
    pub(super) fn read_again(
        &self,
        object: Object,
        sink: EventNumber,
        until: EventNumber,
    ) -> Option<LocationId> {
        let Object::Variable(variable) = object else { return None };
        let again = |&&(read, event, _): &&(VarId, EventNumber, LocationId)| {
            read == variable && sink < event && event < until
        };
        self.reads.iter().find(again).map(|&(.., location)| location)
    }
}

/// A region that is open, with what happened in it.
pub(super) struct Surroundings<'a> {
    pub(super) of: Level,
    pub(super) trail: &'a Trail,
    order: &'a SectionOrder,
    /// Regions around it, outermost first.
    pub(super) outer: &'a [Level],
    /// Regions within it, outermost first.
    inner: &'a [Level],
    pub(super) locks: &'a Locks,
    waited: EventNumber,
    notified: EventNumber,
}

impl Surroundings<'_> {
    /// Returns the facts about a gap within the region.
    pub(super) fn facts(&self, first: &Node, closing: &Node, locks: &[ReleasedLock]) -> Facts {
        let (left, returned) = (first.edge().source, closing.edge().sink);
        let (left_chain, returned_chain) = (self.chain(&first.source), self.chain(&closing.sink));
        let itself = |point: &Point| {
            self.chain_at(point.event, point.event).is_some_and(|chain| chain.is_empty())
        };
        let split = |lock: &&ReleasedLock| itself(&lock.released) && itself(&lock.reacquired);
        let waits = |lock: &ReleasedLock| lock.released.location == lock.reacquired.location;
        let section = self.locks.left(&first.source, returned.event);
        let entered = self.locks.entered(&closing.sink, left.event);
        let is_later = (section.zip(entered)).is_some_and(|(section, entered)| {
            self.order.goes_back(section.at, entered)
                || self.order.repeats(section.at, entered, left.event)
        });
        let read_again = self.trail.read_again(first.object, first.sink.event(), returned.event);
        // The first step itself was made again.
        let is_later = is_later || read_again == Some(left.location);
        let kind = kind(&left, &returned, left_chain.as_deref(), returned_chain.as_deref());
        let written = |object| match (section, object) {
            (Some(section), Object::Variable(variable)) => {
                section.written.contains(&Some(variable))
            }
            _ => false,
        };
        Facts {
            kind: if is_later { GapKind::Iterations } else { kind },
            section_changes: section.is_some_and(|section| section.changes),
            section_writes: section
                .is_some_and(|section| section.written.iter().any(Option::is_some)),
            section_updates: written(first.object),
            section_writes_second: written(closing.object),
            second_section: entered,
            acquired: self.locks.acquired_after(left.event),
            left: self.end(left_chain, &first.source),
            returned: self.end(returned_chain, &closing.sink),
            held_throughout: self.locks.since(left.event),
            split_by_itself: locks.iter().filter(split).map(|lock| lock.lock).collect(),
            waited: (left.event + 1..=returned.event).contains(&self.waited)
                || locks.iter().any(waits),
            notified: (left.event + 1..=returned.event).contains(&self.notified),
            read_again,
            partly_seen: false,
            others: OtherLocks::default(),
        }
    }

    /// Returns the fact against holding a lock from one event to another that is known of this execution.
    pub(super) fn obstacle(&self, left: EventNumber, returned: EventNumber) -> Option<Obstacle> {
        let between = |event| (left + 1..=returned).contains(&event);
        match () {
            () if between(self.waited) => Some(Obstacle::Wait),
            () if between(self.notified) => Some(Obstacle::Notification),
            () => None,
        }
    }

    /// Returns the regions within it that were open at an event, or at a deferred access after the event.
    fn chain(&self, at: &EventStamp) -> Option<Vec<Call>> {
        self.chain_at(at.event(), at.known_with())
    }

    /// Returns the regions within it that were open at an event and until another one, with their begins; `None` if
    /// some may be forgotten.
    fn chain_at(&self, event: EventNumber, until: EventNumber) -> Option<Vec<Call>> {
        let region = self.of.begin.event();
        // The first step of a region that is followed may be the begin of another one.
        let within = |ended: &&Interval<RegionId>| {
            ended.begin > region || self.outer.is_empty() && ended.begin == region
        };
        let ended = self.trail.ended.around(event)?.filter(within);
        let ended = ended.filter(|ended| until <= ended.end);
        let ended = ended.map(|ended| Call { region: ended.value, begin: ended.begin });
        let open = self.inner.iter();
        let open = open.map(|open| Call { region: open.region, begin: open.begin.event() });
        let mut chain: Vec<Call> = ended.chain(open.filter(|open| open.begin <= event)).collect();
        chain.sort_unstable_by_key(|call| call.begin);
        Some(chain)
    }

    fn end(&self, chain: Option<Vec<Call>>, at: &EventStamp) -> GapEnd {
        GapEnd {
            chain: chain.map(|chain| chain.iter().map(|call| call.region).collect()),
            held: self.locks.during(at, at),
        }
    }
}

/// Execution of a region within another.
struct Call {
    region: RegionId,
    begin: EventNumber,
}

/// Facts about a gap.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) kind: GapKind,
    pub(super) section_changes: bool,
    pub(super) section_writes: bool,
    pub(super) section_updates: bool,
    pub(super) section_writes_second: bool,
    pub(super) second_section: Option<LocationId>,
    pub(super) acquired: Vec<LockId>,
    pub(super) left: GapEnd,
    pub(super) returned: GapEnd,
    pub(super) held_throughout: Vec<LockId>,
    pub(super) split_by_itself: Vec<LockId>,
    pub(super) waited: bool,
    pub(super) notified: bool,
    pub(super) read_again: Option<LocationId>,
    pub(super) partly_seen: bool,
    pub(super) others: OtherLocks,
}

fn kind(left: &Point, returned: &Point, from: Option<&[Call]>, to: Option<&[Call]>) -> GapKind {
    let (Some(from), Some(to)) = (from, to) else { return GapKind::Unknown };
    // A step that is made again is a step of another iteration.
    if left.location == returned.location && left.action == returned.action {
        return GapKind::Iterations;
    }
    match (from.first(), to.first()) {
        (None, None) => GapKind::OneActivation,
        (Some(left), Some(returned)) if left.begin == returned.begin => GapKind::OneActivation,
        (Some(left), Some(returned)) if left.region == returned.region => GapKind::Iterations,
        _ => GapKind::Callees,
    }
}
