//! The gaps that threads have crossed, each with the threads and objects of its crossings. Whether another thread could
//! have come in is decided at the end, or when an object's memory ends its life.

use super::code::{Crossings, ObjectClasses};
use super::object::{Accessed, Mode, Steps, User, Users};
use super::order::Spans;
use super::thread::Spanning;
use super::{Data, Gap, Kind, Remote};
use crate::event::{LocationId, LockId, RegionId, ThreadId, VarId};
use crate::finding::Object;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Limit of gaps; further ones are not observed.
const MAX_GAPS: usize = 1 << 14;

/// Limit of crossings that are distinguished by thread and objects: the oldest ones are decided when it is reached.
const MAX_CROSSINGS: usize = 16;

/// Limit of pairs of objects of which it is known that threads use them together.
const MAX_PAIRS: usize = 1 << 12;

/// Limit of threads of such a pair.
const MAX_TOGETHER: usize = 64;

/// Lock or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Subject {
    Lock(LockId),
    Variable(VarId),
}

impl From<Subject> for Object {
    fn from(subject: Subject) -> Self {
        match subject {
            Subject::Lock(lock) => Self::Lock(lock),
            Subject::Variable(variable) => Self::Variable(variable),
        }
    }
}

/// Identity of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) region: RegionId,
    pub(super) is_followed: bool,
    pub(super) left: LocationId,
    pub(super) returned: LocationId,
}

impl Key {
    pub(super) const fn new(
        kind: Kind,
        Spanning { region, is_followed, .. }: Spanning,
        left: LocationId,
        returned: LocationId,
    ) -> Self {
        Self { kind, region, is_followed, left, returned }
    }
}

/// Objects of both ends, with the kind of each step.
pub(super) type Ends = [(Subject, Mode); 2];

/// Crossings of a gap by one thread, with the same objects.
#[derive(Clone, Debug)]
struct Crossing {
    thread: ThreadId,
    ends: Ends,
    spans: Spans,
    /// Locks that were held exclusively from one end to the other in all of them.
    guards: Vec<LockId>,
    /// Variables accessed before the gap while the lock was held, and after it.
    data: [Accessed; 2],
}

/// Data on both sides of a gap: a read before it, and an access after it.
type DataAt = (Data, Option<[LocationId; 2]>);

/// Findings on crossings that are decided.
#[derive(Clone, Debug, Default)]
struct Decided {
    other_threads: usize,
    remotes: BTreeMap<Option<RegionId>, LocationId>,
    data: DataAt,
    together: bool,
    objects: Vec<Object>,
}

#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    /// Subjects of the first crossing.
    objects: [Subject; 2],
    crossed: u64,
    cut: u64,
    repeated: u64,
    waited: u64,
    crossings: Vec<Crossing>,
    /// Crossings that are decided, by the classes of their objects.
    past: Vec<(Crossings, DataAt)>,
    decided: Decided,
}

/// Facts on one crossing.
#[derive(Debug)]
pub(super) struct Crossed<'a> {
    pub(super) thread: ThreadId,
    pub(super) ends: Ends,
    pub(super) guards: Vec<LockId>,
    pub(super) is_cut: bool,
    pub(super) is_repeated: bool,
    pub(super) has_waited: bool,
    pub(super) data: Option<&'a Accessed>,
}

/// Objects with what threads did to them.
pub(super) type Objects = FxHashMap<Subject, Users>;

/// Pairs of locks that threads take in one execution of an outermost region.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// Each pair in both directions.
    threads: FxHashMap<LockId, FxHashMap<LockId, FxHashSet<ThreadId>>>,
    count: usize,
}

impl Pairs {
    /// Notes that a thread takes two locks in one execution.
    pub(super) fn add(&mut self, [one, other]: [LockId; 2], thread: ThreadId) {
        let is_known = self.threads.get(&one).is_some_and(|others| others.contains_key(&other));
        if one == other || (!is_known && self.count >= MAX_PAIRS) {
            return;
        }
        self.count += usize::from(!is_known);
        for [from, to] in [[one, other], [other, one]] {
            let threads = self.threads.entry(from).or_default().entry(to).or_default();
            if threads.len() < MAX_TOGETHER {
                threads.insert(thread);
            }
        }
    }

    /// Returns whether a thread takes both locks in one execution.
    fn has(&self, [one, other]: [LockId; 2], thread: ThreadId) -> bool {
        let threads = self.threads.get(&one).and_then(|others| others.get(&other));
        threads.is_some_and(|threads| threads.contains(&thread))
    }

    /// Returns whether one thread takes the first lock together with a third one, and another thread that one together
    /// with the second.
    fn hands_on(&self, [first, second]: [LockId; 2], [one, other]: [ThreadId; 2]) -> bool {
        let mut thirds = self.threads.get(&first).into_iter().flatten();
        thirds.any(|(&third, threads)| {
            third != second && threads.contains(&one) && self.has([third, second], other)
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    entries: Vec<Entry>,
    by_key: FxHashMap<Key, u32>,
}

impl Gaps {
    /// Notes a crossing. Returns the number of the gap, unless there are too many.
    pub(super) fn cross(
        &mut self,
        key: Key,
        crossed: Crossed<'_>,
        objects: &mut Objects,
        pairs: &Pairs,
        add_to: impl Fn(&mut Spans),
    ) -> Option<u32> {
        let number = match self.by_key.get(&key) {
            Some(&number) => number,
            None if self.entries.len() < MAX_GAPS => {
                self.add(key, crossed.ends.map(|(subject, _)| subject))
            }
            None => return None,
        };
        let entry = &mut self.entries[number as usize];
        entry.crossed += 1;
        entry.cut += u64::from(crossed.is_cut);
        entry.repeated += u64::from(crossed.is_repeated);
        entry.waited += u64::from(crossed.has_waited);
        let Crossed { thread, ends, guards, data, .. } = crossed;
        let is_same = |known: &Crossing| known.thread == thread && known.ends == ends;
        let index = match entry.crossings.iter().position(is_same) {
            Some(index) => {
                entry.crossings[index].guards.retain(|lock| guards.contains(lock));
                index
            }
            None => {
                if entry.crossings.len() >= MAX_CROSSINGS {
                    let oldest = (0..entry.crossings.len())
                        .min_by_key(|&index| entry.crossings[index].spans.last());
                    let oldest = oldest.map(|oldest| entry.crossings.remove(oldest));
                    oldest.iter().for_each(|oldest| entry.decide(oldest, objects, pairs));
                }
                for (subject, _) in ends {
                    let users = objects.entry(subject).or_default();
                    if !users.gaps.contains(&number) {
                        users.gaps.push(number);
                    }
                }
                let (spans, data) = (Spans::default(), Default::default());
                entry.crossings.push(Crossing { thread, ends, spans, guards, data });
                entry.crossings.len() - 1
            }
        };
        let crossing = &mut entry.crossings[index];
        add_to(&mut crossing.spans);
        data.into_iter().for_each(|data| crossing.data[0].merge(data));
        Some(number)
    }

    fn add(&mut self, key: Key, objects: [Subject; 2]) -> u32 {
        let number = self.entries.len() as u32;
        self.by_key.insert(key, number);
        self.entries.push(Entry {
            key,
            objects,
            crossed: 0,
            cut: 0,
            repeated: 0,
            waited: 0,
            crossings: Vec::new(),
            past: Vec::new(),
            decided: Decided::default(),
        });
        number
    }

    /// Notes the variables that a thread accessed after a gap, while it held the lock that it had then.
    pub(super) fn add_data(
        &mut self,
        number: u32,
        thread: ThreadId,
        ends: [Subject; 2],
        data: &Accessed,
    ) {
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        let is_it = |known: &&mut Crossing| {
            known.thread == thread && known.ends.map(|(subject, _)| subject) == ends
        };
        entry.crossings.iter_mut().filter(is_it).for_each(|known| known.data[1].merge(data));
    }

    /// Decides on the crossings with a subject whose life ends.
    pub(super) fn decide(&mut self, subject: Subject, objects: &Objects, pairs: &Pairs) {
        let Some(users) = objects.get(&subject) else { return };
        for &number in &users.gaps {
            let Some(entry) = self.entries.get_mut(number as usize) else { continue };
            let with_it =
                |known: &mut Crossing| known.ends.iter().any(|(known, _)| *known == subject);
            let ended: Vec<Crossing> = entry.crossings.extract_if(.., with_it).collect();
            ended.iter().for_each(|crossing| entry.decide(crossing, objects, pairs));
        }
    }

    /// Returns the gaps that another thread could get into, in the order in which they were first crossed.
    pub(super) fn found(&self, objects: &Objects, pairs: &Pairs, code: &ObjectClasses) -> Vec<Gap> {
        let found = self.entries.iter().filter_map(|entry| {
            let mut decided = entry.decided.clone();
            entry.crossings.iter().for_each(|crossing| decided.add(crossing, objects, pairs));
            let is_by_code = decided.other_threads == 0;
            if is_by_code {
                let now = entry.crossings.iter().filter_map(|crossing| crossing.by_class(objects));
                let all = entry.past.iter().cloned().chain(now);
                all.for_each(|(crossings, data)| decided.add_by_code(&crossings, data, code));
            }
            let Decided { other_threads, remotes, data, together, mut objects } = decided;
            if objects.is_empty() {
                objects.extend(entry.objects.map(Object::from));
                objects.dedup();
            }
            let Key { kind, region, is_followed, left, returned } = entry.key;
            (other_threads > 0).then(|| Gap {
                kind,
                region,
                is_followed,
                left,
                returned,
                objects,
                crossed: entry.crossed,
                cut: entry.cut,
                repeated: entry.repeated,
                waited: entry.waited,
                data: data.0,
                data_at: data.1,
                together,
                other_threads,
                is_by_code,
                remotes: remotes
                    .into_iter()
                    .map(|(region, location)| Remote { region, location })
                    .collect(),
            })
        });
        found.collect()
    }
}

impl Entry {
    /// Decides on crossings by the knowledge of their objects; what code could do to such objects is decided at the
    /// end.
    fn decide(&mut self, crossing: &Crossing, objects: &Objects, pairs: &Pairs) {
        self.decided.add(crossing, objects, pairs);
        let Some((crossings, data)) = crossing.by_class(objects) else { return };
        let is_same = |(known, _): &&mut (Crossings, DataAt)| {
            (known.thread, known.ends) == (crossings.thread, crossings.ends)
        };
        if let Some((known, strongest)) = self.past.iter_mut().find(is_same) {
            known.spans.merge(&crossings.spans);
            known.guards.retain(|guard| crossings.guards.contains(guard));
            *strongest = data.max(*strongest);
            return;
        }
        if self.past.len() >= MAX_CROSSINGS {
            self.past.remove(0);
        }
        self.past.push((crossings, data));
    }
}

impl Crossing {
    /// Returns the crossings by the classes of their objects, with the data on both sides.
    fn by_class(&self, objects: &Objects) -> Option<(Crossings, DataAt)> {
        let class = |subject: Subject| objects.get(&subject)?.class;
        let [(first, left), (second, returned)] = self.ends;
        let ends = [(class(first)?, left), (class(second)?, returned)];
        let guards = self.guards.iter().filter_map(|&lock| class(Subject::Lock(lock))).collect();
        let crossings = Crossings { thread: self.thread, ends, spans: self.spans.clone(), guards };
        Some((crossings, data(self, |_, _, _| true)))
    }
}

impl Decided {
    /// Adds what other threads could do to objects of the same classes.
    fn add_by_code(&mut self, crossings: &Crossings, data: DataAt, code: &ObjectClasses) {
        let (threads, remotes) = code.could_enter(crossings);
        if !threads.is_empty() {
            self.data = data.max(self.data);
        }
        self.other_threads = threads.len().max(self.other_threads);
        for Remote { region, location } in remotes {
            self.remotes.entry(region).or_insert(location);
        }
    }

    /// Adds what other threads could have done in these crossings.
    fn add(&mut self, crossing: &Crossing, objects: &Objects, pairs: &Pairs) {
        let [(first, left), (second, returned)] = crossing.ends;
        let (Some(at_first), Some(at_second)) = (objects.get(&first), objects.get(&second)) else {
            return;
        };
        let is_one = first == second;
        let mut others = 0;
        for user in at_first.users.iter().filter(|user| user.thread != crossing.thread) {
            let ends: &[Mode] = if is_one { &[left, returned] } else { &[left] };
            let mut into: Vec<Remote> = ways(crossing, user, ends).collect();
            let second_user = at_second.of(user.thread);
            let reaches_second = |user: &User| ways(crossing, user, &[returned]).next().is_some();
            if !is_one && !second_user.is_some_and(reaches_second) {
                into.clear();
            }
            if into.is_empty() {
                continue;
            }
            others += 1;
            for Remote { region, location } in into {
                self.remotes.entry(region).or_insert(location);
            }
            let data = second_user.map(|second| {
                let remote = [&user.data, &second.data];
                data(crossing, |side, variable, mode| {
                    remote[side].get(variable).is_some_and(|other| other.conflicts(mode))
                })
            });
            self.data = data.unwrap_or_default().max(self.data);
            if let (Subject::Lock(first), Subject::Lock(second)) = (first, second) {
                self.together |= pairs.has([first, second], user.thread);
            }
        }
        if others == 0 {
            others = self.add_relays(crossing, [at_first, at_second], pairs);
        }
        self.other_threads = others.max(self.other_threads);
        if others > 0 && self.objects.is_empty() {
            self.objects.push(first.into());
            self.objects.extend((!is_one).then_some(Object::from(second)));
        }
    }

    /// Adds the threads that could take the first lock in these crossings and hand on, by a third lock that both take,
    /// to another thread, which could take the second. Returns their number.
    fn add_relays(
        &mut self,
        crossing: &Crossing,
        [at_first, at_second]: [&Users; 2],
        pairs: &Pairs,
    ) -> usize {
        let [(Subject::Lock(first), left), (Subject::Lock(second), returned)] = crossing.ends
        else {
            return 0;
        };
        let is_other = |user: &&User| user.thread != crossing.thread;
        let reaches = |user: &&User| ways(crossing, user, &[returned]).next().is_some();
        let takers: Vec<&User> = at_second.users.iter().filter(is_other).filter(reaches).collect();
        let mut relays = 0;
        for user in at_first.users.iter().filter(is_other) {
            let hands_on = |taker: &&User| {
                taker.thread != user.thread
                    && pairs.hands_on([first, second], [user.thread, taker.thread])
            };
            if !takers.iter().any(hands_on) {
                continue;
            }
            let end = [left];
            let mut ways = ways(crossing, user, &end).peekable();
            relays += usize::from(ways.peek().is_some());
            for Remote { region, location } in ways {
                self.remotes.entry(region).or_insert(location);
            }
        }
        relays
    }
}

/// Returns the steps of a user that could come into a crossing and conflict with these ends.
fn ways<'a>(
    crossing: &'a Crossing,
    user: &'a User,
    ends: &'a [Mode],
) -> impl Iterator<Item = Remote> + 'a {
    let reaches = move |steps: &&Steps| {
        ends.iter().all(|end| end.conflicts(steps.mode))
            && !steps.guards.iter().any(|guard| crossing.guards.contains(guard))
            && steps.spans.reach(&crossing.spans, user.thread, crossing.thread)
    };
    user.steps.iter().filter(reaches).map(|at| at.remote)
}

/// Returns the data that a crossing and another thread have to do with; `meets` decides whether the other thread's
/// accesses, while it held the lock of that end, conflict with such an access.
fn data(crossing: &Crossing, meets: impl Fn(usize, VarId, Mode) -> bool) -> DataAt {
    let of = |is_one: bool, left: Mode, returned: Mode| match (is_one, left, returned) {
        (false, ..) => Data::Different,
        (true, Mode::Read, Mode::Write) => Data::Checked,
        (true, ..) => Data::Same,
    };
    if let [(Subject::Variable(first), left), (Subject::Variable(second), returned)] = crossing.ends
    {
        return (of(first == second, left, returned), None);
    }
    let mut strongest = DataAt::default();
    let [before, after] = &crossing.data;
    for before in before.iter().filter(|of| meets(0, of.variable, of.mode)) {
        for after in after.iter().filter(|of| meets(1, of.variable, of.mode)) {
            let data = of(before.variable == after.variable, before.mode, after.mode);
            let at = before.read.zip(after.changed.or(after.read)).map(<[LocationId; 2]>::from);
            strongest = (data, at).max(strongest);
        }
    }
    strongest
}
