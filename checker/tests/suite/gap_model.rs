//! Gaps by their definition (`docs/semantics.md#gaps-of-regions`), over all pairs of events of a whole trace, and with
//! a mistake at will, which a comparison must notice.

use checker::event::{Event, LockId, Op, RegionId, ThreadId, VarId};
use checker::finding::Object;
use checker::gap::{Data, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

/// Mistake of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// Forks and joins make no order.
    NoOrder,
    /// The outermost region has the gap.
    Outermost,
    /// A common lock keeps nobody out.
    NoGuards,
    /// A gap counts as cut by whatever conflicts with its first step.
    CutByOneEnd,
    /// Shared holds conflict.
    SharedConflicts,
    /// Other steps on locks may lie within a section gap.
    NotAdjacent,
    /// A lock that is held over both accesses is not seen.
    NoHold,
    /// Waits are not seen.
    NoWait,
    /// A region that is followed has one iteration.
    NoIterations,
    /// Steps that are made again are not seen.
    NoRepetition,
    /// The last access to the same variable is forgotten as soon as others are.
    NoLatest,
    /// Threads hand on to no other one.
    NoRelays,
}

impl Mistake {
    pub const ALL: [Self; 12] = [
        Self::NoOrder,
        Self::Outermost,
        Self::NoGuards,
        Self::CutByOneEnd,
        Self::SharedConflicts,
        Self::NotAdjacent,
        Self::NoHold,
        Self::NoWait,
        Self::NoIterations,
        Self::NoRepetition,
        Self::NoLatest,
        Self::NoRelays,
    ];
}

/// Number of accesses among which the one before a gap between two variables is looked for.
const RECENT: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Read,
    Commuting,
    Write,
}

/// Kind, region, whether it is followed, both locations.
pub type Key = (Kind, u32, bool, u32, u32);

/// Facts on a gap: crossed, cut, repeated, waited, data, together, other threads, remote regions.
pub type Facts = ([u64; 4], Data, bool, usize, BTreeSet<Option<RegionId>>);

/// Step on an object.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: usize,
    object: Object,
    mode: Mode,
}

#[derive(Clone, Copy, Debug)]
struct Crossing {
    key: Key,
    left: Step,
    returned: Step,
    begin: usize,
}

pub struct Model<'a> {
    events: &'a [Event],
    mistake: Mistake,
    /// For each event its predecessors by program order, forks and joins.
    before: Vec<BTreeSet<usize>>,
}

impl<'a> Model<'a> {
    pub fn new(events: &'a [Event], mistake: Mistake) -> Self {
        let mut before: Vec<BTreeSet<usize>> = Vec::new();
        for (at, event) in events.iter().enumerate() {
            let mut known = BTreeSet::new();
            for (earlier, other) in events[..at].iter().enumerate() {
                let orders = other.thread == event.thread
                    || other.op == Op::Fork(event.thread)
                    || event.op == Op::Join(other.thread);
                let by_program = other.thread == event.thread;
                if by_program || (orders && mistake != Mistake::NoOrder) {
                    known.insert(earlier);
                    known.extend(&before[earlier]);
                }
            }
            before.push(known);
        }
        Self { events, mistake, before }
    }

    fn of(&self, thread: ThreadId, until: usize) -> impl Iterator<Item = (usize, &Event)> {
        let events = self.events[..until].iter().enumerate();
        events.filter(move |(_, event)| event.thread == thread)
    }

    fn conflict(&self, one: Mode, other: Mode, object: Object) -> bool {
        match (one, other) {
            (Mode::Read, Mode::Read) => {
                self.mistake == Mistake::SharedConflicts && matches!(object, Object::Lock(_))
            }
            (Mode::Commuting, Mode::Commuting) => false,
            _ => true,
        }
    }

    /// Locks that a thread holds before an event, each with its acquisition.
    fn holds(&self, thread: ThreadId, until: usize) -> Vec<(LockId, Mode, usize)> {
        let mut holds: Vec<(LockId, Mode, usize)> = Vec::new();
        for (at, event) in self.of(thread, until) {
            let (lock, mode, acquires) = match event.op {
                Op::Acquire(lock) => (lock, Mode::Write, true),
                Op::AcquireShared(lock) => (lock, Mode::Read, true),
                Op::Release(lock) => (lock, Mode::Write, false),
                Op::ReleaseShared(lock) => (lock, Mode::Read, false),
                _ => continue,
            };
            if acquires && !holds.iter().any(|hold| hold.0 == lock) {
                holds.push((lock, mode, at));
            } else if !acquires {
                holds.retain(|hold| (hold.0, hold.1) != (lock, mode));
            }
        }
        holds
    }

    /// The acquisition or release that an event is, if it fits.
    fn lock_step(&self, at: usize) -> Option<(Step, LockId, bool)> {
        let event = &self.events[at];
        let holds = self.holds(event.thread, at);
        let held = |lock, mode| holds.iter().any(|hold| (hold.0, hold.1) == (lock, mode));
        let (lock, mode, acquires) = match event.op {
            Op::Acquire(lock) => (lock, Mode::Write, true),
            Op::AcquireShared(lock) => (lock, Mode::Read, true),
            Op::Release(lock) if held(lock, Mode::Write) => (lock, Mode::Write, false),
            Op::ReleaseShared(lock) if held(lock, Mode::Read) => (lock, Mode::Read, false),
            _ => return None,
        };
        if acquires && holds.iter().any(|hold| hold.0 == lock) {
            return None;
        }
        Some((Step { at, object: Object::Lock(lock), mode }, lock, acquires))
    }

    fn access(&self, at: usize) -> Option<(Step, VarId)> {
        let (variable, mode) = match self.events[at].op {
            Op::Read(variable) => (variable, Mode::Read),
            Op::Write(variable) | Op::Update(variable) => (variable, Mode::Write),
            Op::CommutingUpdate(variable) => (variable, Mode::Commuting),
            _ => return None,
        };
        Some((Step { at, object: Object::Variable(variable), mode }, variable))
    }

    /// Open regions before an event, outermost first.
    fn open(&self, thread: ThreadId, until: usize) -> Vec<(RegionId, usize)> {
        let mut open: Vec<(RegionId, usize)> = Vec::new();
        for (at, event) in self.of(thread, until) {
            match event.op {
                Op::Begin(region) => open.push((region, at)),
                Op::End(named) => {
                    let is_it =
                        |&(region, _): &(RegionId, usize)| named.is_none_or(|n| n == region);
                    if let Some(index) = open.iter().rposition(is_it) {
                        open.truncate(index);
                    }
                }
                _ => {}
            }
        }
        open
    }

    /// Region that a thread follows at an event, and the begin of its iteration, with that event.
    fn followed(&self, thread: ThreadId, now: usize) -> Option<(RegionId, Option<usize>)> {
        let follows = self.of(thread, now + 1).filter_map(|(at, event)| match event.op {
            Op::Follow(region) => Some((at, region)),
            _ => None,
        });
        let (from, region) = follows.last()?;
        let region = region?;
        let mut steps: Vec<usize> = Vec::new();
        for (at, event) in self.of(thread, now + 1).filter(|(at, _)| *at > from) {
            if !self.open(thread, at).is_empty() {
                continue;
            }
            let same = |&other: &usize| {
                let other = &self.events[other];
                discriminant(&other.op) == discriminant(&event.op)
                    && other.location == event.location
            };
            match event.op {
                Op::Wait(_) | Op::Depart(_) | Op::Join(_) => {
                    if self.mistake != Mistake::NoIterations {
                        steps.clear();
                    }
                }
                Op::End(_) | Op::Arrive(_) | Op::Follow(_) => {}
                Op::Rest(_) | Op::Resume(_) | Op::Exit => {}
                _ => {
                    let begin = steps.first().copied();
                    let is_in_section = (self.holds(thread, at).iter())
                        .any(|hold| begin.is_some_and(|begin| begin <= hold.2));
                    let is_again = steps.iter().any(same) && !is_in_section;
                    if is_again && self.mistake != Mistake::NoIterations {
                        steps.clear();
                    }
                    steps.push(at);
                }
            }
        }
        Some((region, steps.first().copied()))
    }

    fn region(&self, at: usize) -> Option<RegionId> {
        let thread = self.events[at].thread;
        let open = self.open(thread, at).last().map(|(region, _)| *region);
        open.or_else(|| self.followed(thread, at).map(|(region, _)| region))
    }

    /// Outermost execution that an event is in.
    fn execution(&self, at: usize) -> Option<usize> {
        let thread = self.events[at].thread;
        let open = self.open(thread, at).first().map(|(_, begin)| *begin);
        open.or_else(|| self.followed(thread, at).and_then(|(_, since)| since))
    }

    fn crossing(&self, kind: Kind, left: Step, returned: Step) -> Option<Crossing> {
        let thread = self.events[returned.at].thread;
        let locations = [left.at, returned.at].map(|at| self.events[at].location.0);
        if locations[0] == locations[1] {
            return None;
        }
        let open = self.open(thread, returned.at);
        let mut spanning = open.iter().filter(|(_, begin)| *begin < left.at);
        let spanning =
            if self.mistake == Mistake::Outermost { spanning.next() } else { spanning.next_back() };
        let (region, is_followed, begin) = match spanning {
            Some(&(region, begin)) => (region, false, begin),
            None => {
                let (region, since) = self.followed(thread, returned.at)?;
                (region, true, since.filter(|&since| since <= left.at)?)
            }
        };
        let key = (kind, region.0, is_followed, locations[0], locations[1]);
        Some(Crossing { key, left, returned, begin })
    }

    fn crossings(&self) -> Vec<Crossing> {
        let mut found = Vec::new();
        for at in 0..self.events.len() {
            let thread = self.events[at].thread;
            let earlier: Vec<usize> = self.of(thread, at).map(|(at, _)| at).collect();
            if let Some((returned, lock, true)) = self.lock_step(at) {
                let steps: Vec<_> = earlier.iter().filter_map(|&at| self.lock_step(at)).collect();
                let same = steps.iter().rfind(|step| step.1 == lock);
                let last = if self.mistake == Mistake::NotAdjacent {
                    steps.iter().rfind(|step| !step.2)
                } else {
                    steps.last()
                };
                let last = last.filter(|step| step.1 != lock);
                for (kind, left) in [(Kind::Lock, same), (Kind::Section, last)] {
                    if let Some(&(left, _, false)) = left {
                        found.extend(self.crossing(kind, left, returned));
                    }
                }
            }
            if let Some((returned, variable)) = self.access(at) {
                let accesses = earlier.iter().rev().filter_map(|&at| self.access(at));
                let accesses: Vec<_> =
                    accesses.take_while(|(step, _)| !self.is_separated(step.at, at)).collect();
                let shared = |variable| self.is_shared(variable, at);
                let is_same = |(_, other): &&(Step, VarId)| *other == variable;
                let nearest = accesses
                    .iter()
                    .take(RECENT)
                    .find(|access| is_same(access) || (shared(variable) && shared(access.1)));
                let same = accesses.iter().find(is_same);
                let same = same.filter(|(same, _)| {
                    self.mistake != Mistake::NoLatest
                        && nearest.is_none_or(|(nearest, _)| nearest.at != same.at)
                });
                let holds = self.holds(thread, at);
                let is_free = |step: &Step| {
                    self.mistake == Mistake::NoHold || !holds.iter().any(|hold| hold.2 < step.at)
                };
                let left = [nearest, same].into_iter().flatten().map(|(step, _)| *step);
                for left in left.filter(is_free) {
                    found.extend(self.crossing(Kind::Access, left, returned));
                }
            }
        }
        found
    }

    /// Returns whether a release and then an acquisition lie in between.
    fn is_separated(&self, from: usize, to: usize) -> bool {
        let thread = self.events[from].thread;
        let steps = (from + 1..to).filter(|&at| self.events[at].thread == thread);
        let steps: Vec<bool> =
            steps.filter_map(|at| self.lock_step(at)).map(|(_, _, acquires)| acquires).collect();
        let release = steps.iter().position(|acquires| !acquires);
        release.is_some_and(|release| steps[release..].contains(&true))
    }

    fn is_shared(&self, variable: VarId, now: usize) -> bool {
        let accesses: Vec<(usize, Mode)> = (0..=now)
            .filter_map(|at| self.access(at))
            .filter(|(_, other)| *other == variable)
            .map(|(step, _)| (step.at, step.mode))
            .collect();
        let threads: BTreeSet<ThreadId> =
            accesses.iter().map(|(at, _)| self.events[*at].thread).collect();
        threads.len() > 1 && accesses.iter().any(|(_, mode)| *mode != Mode::Read)
    }

    /// All steps that could come into gaps.
    fn steps(&self) -> Vec<Step> {
        let step = |at| {
            let lock = self.lock_step(at).filter(|(_, _, acquires)| *acquires);
            let access = || self.access(at).map(|(step, _)| step);
            lock.map(|(step, ..)| step).or_else(access)
        };
        (0..self.events.len()).filter_map(step).collect()
    }

    fn guards(&self, at: usize, since_before: usize) -> BTreeSet<LockId> {
        let holds = self.holds(self.events[at].thread, at);
        let holds = holds.into_iter().filter(|hold| hold.1 == Mode::Write && hold.2 < since_before);
        holds.map(|hold| hold.0).collect()
    }

    /// Variables accessed in a hold from an acquisition to its release, if it is released.
    fn data(&self, acquisition: usize) -> BTreeMap<VarId, Mode> {
        let thread = self.events[acquisition].thread;
        let lock = self.lock_step(acquisition).map(|step| step.1);
        let is_release = |at: &usize| {
            self.events[*at].thread == thread
                && self.lock_step(*at).is_some_and(|step| Some(step.1) == lock && !step.2)
        };
        let mut data = BTreeMap::new();
        let Some(release) = (acquisition..self.events.len()).find(is_release) else { return data };
        for at in acquisition..release {
            if self.events[at].thread == thread
                && let Some((step, variable)) = self.access(at)
            {
                let mode = data.entry(variable).or_insert(step.mode);
                *mode = step.mode.max(*mode);
            }
        }
        data
    }

    /// Gaps into which another thread could get.
    pub fn gaps(&self) -> BTreeMap<Key, Facts> {
        let (crossings, steps) = (self.crossings(), self.steps());
        let mut found: BTreeMap<Key, Facts> = BTreeMap::new();
        let mut groups: BTreeMap<_, Vec<Crossing>> = BTreeMap::new();
        for crossing in crossings {
            let thread = self.events[crossing.left.at].thread;
            let ends = [crossing.left, crossing.returned];
            let ends = ends.map(|step| (format!("{:?}", step.object), step.mode));
            groups.entry((crossing.key, thread, ends)).or_default().push(crossing);
            let facts = found.entry(crossing.key).or_default();
            facts.0[0] += 1;
            facts.0[1] += u64::from(self.is_cut(&crossing, &steps));
            facts.0[2] += u64::from(self.is_repeated(&crossing));
            facts.0[3] += u64::from(self.has_waited(&crossing));
        }
        for ((key, thread, _), group) in &groups {
            let facts = found.entry(*key).or_default();
            let mut others = 0;
            let threads: BTreeSet<ThreadId> = self.events.iter().map(|at| at.thread).collect();
            for &other in threads.iter().filter(|other| *other != thread) {
                let regions = self.ways(group, other, &steps);
                if regions.is_empty() {
                    continue;
                }
                others += 1;
                facts.4.extend(regions);
                facts.1 = facts.1.max(self.data_of(group, other, &steps));
                let ends = [group[0].left.object, group[0].returned.object];
                facts.2 |= self.uses_together(ends, other, &steps);
            }
            if others == 0 && self.mistake != Mistake::NoRelays {
                for &other in threads.iter().filter(|other| *other != thread) {
                    let regions = self.relays(group, other, &threads, &steps);
                    others += usize::from(!regions.is_empty());
                    facts.4.extend(regions);
                }
            }
            facts.3 = facts.3.max(others);
        }
        found.retain(|_, facts| facts.3 > 0);
        found
    }

    fn is_cut(&self, crossing: &Crossing, steps: &[Step]) -> bool {
        let Crossing { left, returned, .. } = *crossing;
        let within = steps.iter().filter(|step| left.at < step.at && step.at < returned.at);
        let within: Vec<_> = within
            .filter(|step| self.events[step.at].thread != self.events[left.at].thread)
            .collect();
        let meets = |step: &Step, end: Step| {
            step.object == end.object && self.conflict(step.mode, end.mode, step.object)
        };
        within.iter().any(|one| {
            meets(one, left)
                && (self.mistake == Mistake::CutByOneEnd
                    || (left.object == returned.object && meets(one, returned))
                    || (left.object != returned.object
                        && within.iter().any(|two| {
                            self.events[two.at].thread == self.events[one.at].thread
                                && meets(two, returned)
                        })))
        })
    }

    fn is_repeated(&self, crossing: &Crossing) -> bool {
        let now = &self.events[crossing.returned.at];
        let mut earlier = self.of(now.thread, crossing.returned.at);
        self.mistake != Mistake::NoRepetition
            && earlier.any(|(at, event)| {
                let fits =
                    self.lock_step(at).is_some_and(|step| step.2) || self.access(at).is_some();
                at >= crossing.begin
                    && fits
                    && discriminant(&event.op) == discriminant(&now.op)
                    && event.location == now.location
            })
    }

    fn has_waited(&self, crossing: &Crossing) -> bool {
        let thread = self.events[crossing.left.at].thread;
        self.mistake != Mistake::NoWait
            && self.of(thread, crossing.returned.at).any(|(at, event)| {
                at > crossing.left.at
                    && matches!(event.op, Op::Wait(_) | Op::Depart(_) | Op::Join(_))
            })
    }

    /// Regions of the steps with which another thread could get into one of these crossings.
    fn ways(
        &self,
        group: &[Crossing],
        other: ThreadId,
        steps: &[Step],
    ) -> BTreeSet<Option<RegionId>> {
        let Crossing { left, returned, .. } = group[0];
        if left.object == returned.object {
            return self.regions(group, other, left.object, &[left.mode, returned.mode], steps);
        }
        let first = self.regions(group, other, left.object, &[left.mode], steps);
        let second = self.regions(group, other, returned.object, &[returned.mode], steps);
        if second.is_empty() { BTreeSet::new() } else { first }
    }

    fn regions(
        &self,
        group: &[Crossing],
        other: ThreadId,
        object: Object,
        ends: &[Mode],
        steps: &[Step],
    ) -> BTreeSet<Option<RegionId>> {
        let mut by_region: BTreeMap<(Option<RegionId>, Mode), Vec<usize>> = BTreeMap::new();
        for step in steps.iter().filter(|step| step.object == object) {
            let conflicts = ends.iter().all(|&end| self.conflict(end, step.mode, object));
            if self.events[step.at].thread == other && conflicts {
                by_region.entry((self.region(step.at), step.mode)).or_default().push(step.at);
            }
        }
        let common = |sets: Vec<BTreeSet<LockId>>| {
            let first = sets.first().cloned().unwrap_or_default();
            sets.iter().fold(first, |common, set| &common & set)
        };
        let held = group.iter().map(|gap| self.guards(gap.returned.at, gap.left.at)).collect();
        let held = common(held);
        by_region.retain(|_, steps| {
            let guards = common(steps.iter().map(|&step| self.guards(step, step)).collect());
            let is_free = self.mistake == Mistake::NoGuards || held.is_disjoint(&guards);
            let reaches = |step: usize, gap: &Crossing| {
                !self.before[gap.left.at].contains(&step)
                    && !self.before[step].contains(&gap.returned.at)
            };
            is_free && steps.iter().any(|&step| group.iter().any(|gap| reaches(step, gap)))
        });
        by_region.into_keys().map(|(region, _)| region).collect()
    }

    fn data_of(&self, group: &[Crossing], other: ThreadId, steps: &[Step]) -> Data {
        let Crossing { left, returned, .. } = group[0];
        let of = |same: bool, left, returned| match (same, left, returned) {
            (false, ..) => Data::Different,
            (true, Mode::Read, Mode::Write) => Data::Checked,
            (true, ..) => Data::Same,
        };
        if matches!(left.object, Object::Variable(_)) {
            return of(left.object == returned.object, left.mode, returned.mode);
        }
        let mut sides: [BTreeMap<VarId, Mode>; 2] = Default::default();
        let add = |side: &mut BTreeMap<VarId, Mode>, data: BTreeMap<VarId, Mode>| {
            for (variable, mode) in data {
                let strongest = side.entry(variable).or_insert(mode);
                *strongest = mode.max(*strongest);
            }
        };
        for gap in group {
            let thread = self.events[gap.left.at].thread;
            let holds = self.holds(thread, gap.left.at);
            let hold = holds.iter().find(|hold| Object::Lock(hold.0) == gap.left.object);
            hold.into_iter().for_each(|hold| add(&mut sides[0], self.data(hold.2)));
            add(&mut sides[1], self.data(gap.returned.at));
        }
        let remote = [left.object, returned.object].map(|object| {
            let mut data = BTreeMap::new();
            let its = steps.iter().filter(|step| step.object == object);
            for step in its.filter(|step| self.events[step.at].thread == other) {
                add(&mut data, self.data(step.at));
            }
            data
        });
        let meets = |side: usize, variable: VarId, mode: Mode| {
            let other = remote[side].get(&variable);
            other.is_some_and(|&other| self.conflict(other, mode, Object::Variable(variable)))
        };
        let mut strongest = Data::Unseen;
        for (&one, &before) in &sides[0] {
            for (&two, &after) in &sides[1] {
                if meets(0, one, before) && meets(1, two, after) {
                    strongest = strongest.max(of(one == two, before, after));
                }
            }
        }
        strongest
    }

    /// Regions of the steps with which a thread could take the first lock, if it hands on to one that could take the
    /// second.
    fn relays(
        &self,
        group: &[Crossing],
        thread: ThreadId,
        threads: &BTreeSet<ThreadId>,
        steps: &[Step],
    ) -> BTreeSet<Option<RegionId>> {
        let Crossing { left, returned, .. } = group[0];
        let crossing = self.events[left.at].thread;
        let thirds: BTreeSet<Object> = steps.iter().map(|step| step.object).collect();
        let hands_on = |taker: ThreadId| {
            thirds.iter().any(|&third| {
                self.uses_together([left.object, third], thread, steps)
                    && self.uses_together([third, returned.object], taker, steps)
            })
        };
        let takes = |&taker: &ThreadId| {
            let regions = || self.regions(group, taker, returned.object, &[returned.mode], steps);
            taker != crossing && taker != thread && hands_on(taker) && !regions().is_empty()
        };
        if left.object == returned.object || !threads.iter().any(takes) {
            return BTreeSet::new();
        }
        self.regions(group, thread, left.object, &[left.mode], steps)
    }

    /// Returns whether a thread takes both locks in one outermost execution.
    fn uses_together(&self, [one, two]: [Object; 2], other: ThreadId, steps: &[Step]) -> bool {
        let executions = |object: Object| -> BTreeSet<usize> {
            let its = steps.iter().filter(|step| {
                step.object == object
                    && matches!(object, Object::Lock(_))
                    && self.events[step.at].thread == other
            });
            its.filter_map(|step| self.execution(step.at)).collect()
        };
        one != two && !executions(one).is_disjoint(&executions(two))
    }
}
