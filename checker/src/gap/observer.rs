//! Observation of gaps: events in, gaps out.

use super::code::{ObjectClasses, StepOfCode};
use super::list::{Crossed, Ends, Gaps, Key, Objects, Pairs, Subject};
use super::object::{Accessed, Mode, NewStep, Users};
use super::order::{Known, Order};
use super::thread::{Access, Hold, Left, Thread};
use super::{Gap, Kind, Remote};
use crate::event::{Event, EventNumber, LocationId, LockId, Op, ThreadId, VarId};
use crate::format::NO_LOCATION;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Limit of locks and variables in use at one time; further ones are not observed.
const MAX_OBJECTS: usize = 1 << 18;

/// Observes the gaps of a trace. Takes any events: an event that does not fit is left out.
///
/// Memory is bounded, but for the state of threads that run and the locks they hold. An object beyond a limit
/// is not observed, or listed though it cannot be cut:
/// - 16,384 gaps, and 262,144 locks and variables in use at one time; further ones are not observed;
/// - of each lock or variable the 64 threads that used it last, and 8 regions of each;
/// - of each gap the 16 pairs of thread and objects that crossed it last; for others it is decided by what was known
///   when they were superseded;
/// - 4,096 threads whose order by forks and joins is known, and of each object and thread 8 spans between joins;
/// - 32 variables for each lock that is held, and for all that one thread did under one lock;
/// - of each thread the last accesses to 1,024 variables; for gaps between two variables the last 8 accesses, and only
///   from the time on at which several threads have used both.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    now: EventNumber,
    threads: FxHashMap<ThreadId, Thread>,
    order: Order,
    objects: Objects,
    pairs: Pairs,
    gaps: Gaps,
    code: ObjectClasses,
}

/// Step before a gap, of either kind.
struct Before<'a> {
    event: EventNumber,
    location: LocationId,
    known: &'a Arc<Known>,
}

impl<'a> From<&'a Left> for Before<'a> {
    fn from(left: &'a Left) -> Self {
        Self { event: left.event, location: left.location, known: &left.known }
    }
}

impl<'a> From<&'a Access> for Before<'a> {
    fn from(access: &'a Access) -> Self {
        Self { event: access.event, location: access.location, known: &access.known }
    }
}

impl Observer {
    /// Takes the next event.
    pub fn event(&mut self, event: &Event) {
        let now = self.now;
        self.now += 1;
        let thread = self.threads.entry(event.thread).or_default();
        if let Op::End(_) = event.op
            && let Some(region) = thread.region()
        {
            self.code.run(region, event.thread, self.order.known(event.thread), now);
        }
        thread.before(event, now);
        match event.op {
            Op::Acquire(lock) => self.acquire(event, lock, Mode::Write),
            Op::AcquireShared(lock) => self.acquire(event, lock, Mode::Read),
            Op::Release(lock) => self.release(event, lock, Mode::Write),
            Op::ReleaseShared(lock) => self.release(event, lock, Mode::Read),
            Op::Read(variable) => self.access(event, variable, Mode::Read),
            Op::Write(variable) | Op::Update(variable) | Op::Free(variable) => {
                self.access(event, variable, Mode::Write);
            }
            Op::CommutingUpdate(variable) => self.access(event, variable, Mode::Commuting),
            Op::Begin(region) => {
                self.code.run(region, event.thread, self.order.known(event.thread), now);
            }
            Op::Fork(child) => self.order.fork(event.thread, child, now),
            Op::Join(ended) => {
                self.order.join(event.thread, ended, now);
                self.end_thread(ended);
            }
            Op::Exit => self.end_thread(event.thread),
            Op::Reset(lock) => {
                self.threads.values_mut().for_each(|thread| thread.forget(lock));
                self.end_life(Subject::Lock(lock));
            }
            Op::Alloc(variable) => self.end_life(Subject::Variable(variable)),
            Op::SplitVariable { from, to } => self.split(from, to),
            _ => {}
        }
    }

    /// Notes that events were lost: regions and locks held are forgotten.
    pub fn gap(&mut self) {
        self.threads.values_mut().for_each(Thread::abandon);
    }

    /// Returns the gaps so far that another thread could get into, in the order in which they were first crossed.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        self.gaps.found(&self.objects, &self.pairs, &self.code)
    }

    fn end_thread(&mut self, thread: ThreadId) {
        self.threads.remove(&thread);
        self.code.forget(thread);
    }

    fn acquire(&mut self, event: &Event, lock: LockId, mode: Mode) {
        let now = self.now - 1;
        let Some(thread) = self.threads.get(&event.thread) else { return };
        let subject = Subject::Lock(lock);
        if thread.hold(lock).is_some() || self.is_full(subject) {
            return;
        }
        let ended = self.end_gaps(event, lock, mode);
        let Some(thread) = self.threads.get_mut(&event.thread) else { return };
        for other in thread.taken(lock) {
            self.pairs.add([lock, other], event.thread);
        }
        let guards = thread.guards(None);
        thread.made(event, now);
        let data = Accessed::default();
        thread.acquired(Hold { lock, mode, since: now, data, ended });
        self.note(event, subject, mode, &guards);
    }

    /// Notes the gaps that end with the acquisition of a lock. Returns them, each with the lock released before.
    fn end_gaps(&mut self, event: &Event, lock: LockId, mode: Mode) -> Vec<(u32, LockId)> {
        let Some(thread) = self.threads.get(&event.thread) else { return Vec::new() };
        let other = thread.released_last.filter(|&last| last != lock);
        let left = [(Kind::Lock, Some(lock)), (Kind::Section, other)];
        let left = left.into_iter().filter_map(|(kind, lock)| Some((kind, lock?)));
        let left = left.filter_map(|(kind, lock)| Some((kind, lock, thread.left(lock)?.clone())));
        let mut ended = Vec::new();
        for (kind, released, left) in left.collect::<Vec<_>>() {
            let ends = [(Subject::Lock(released), left.mode), (Subject::Lock(lock), mode)];
            let number = self.cross(event, kind, &From::from(&left), ends, Some(&left.data));
            ended.extend(number.map(|number| (number, released)));
        }
        ended
    }

    fn release(&mut self, event: &Event, lock: LockId, mode: Mode) {
        let now = self.now - 1;
        let Some(thread) = self.threads.get_mut(&event.thread) else { return };
        let is_it = |index: &usize| thread.held[*index].mode == mode;
        let Some(index) = thread.hold(lock).filter(is_it) else { return };
        let Hold { data, ended, .. } = thread.held.remove(index);
        for (number, released) in ended {
            let ends = [Subject::Lock(released), Subject::Lock(lock)];
            self.gaps.add_data(number, event.thread, ends, &data);
        }
        if let Some(users) = self.objects.get_mut(&Subject::Lock(lock)) {
            users.add_data(event.thread, &data);
        }
        let (location, known) = (event.location, Arc::clone(self.order.known(event.thread)));
        thread.released(lock, Left { event: now, location, mode, known, data });
    }

    fn access(&mut self, event: &Event, variable: VarId, mode: Mode) {
        let now = self.now - 1;
        let subject = Subject::Variable(variable);
        if self.is_full(subject) {
            return;
        }
        let Some(thread) = self.threads.get(&event.thread) else { return };
        let guards = thread.guards(None);
        self.note(event, subject, mode, &guards);
        let Some(thread) = self.threads.get(&event.thread) else { return };
        let shared = |variable| {
            let users = self.objects.get(&Subject::Variable(variable));
            users.is_some_and(Users::is_shared)
        };
        let is_shared = shared(variable);
        let is_before = |access: &&Access| {
            access.variable == variable || (is_shared && shared(access.variable))
        };
        let is_left = |access: &&Access| {
            let users = self.objects.get(&Subject::Variable(access.variable));
            users.is_some_and(|users| users.born <= access.event)
                && !thread.has_held_since(access.event)
        };
        let nearest = thread.recent().find(is_before);
        let same = thread.latest(variable);
        let same = same.filter(|same| nearest.is_none_or(|nearest| nearest.event != same.event));
        let left = [nearest, same].map(|access| access.filter(is_left).cloned());
        for access in left.into_iter().flatten() {
            let ends = [(Subject::Variable(access.variable), access.mode), (subject, mode)];
            self.cross(event, Kind::Access, &From::from(&access), ends, None);
        }
        if let Some(thread) = self.threads.get_mut(&event.thread) {
            thread.made(event, now);
            let (location, known) = (event.location, Arc::clone(self.order.known(event.thread)));
            thread.accessed(Access { variable, mode, event: now, location, known });
        }
    }

    /// Notes that the event ends a gap after a step, if a region spans it.
    fn cross(
        &mut self,
        event: &Event,
        kind: Kind,
        before: &Before<'_>,
        ends: Ends,
        data: Option<&Accessed>,
    ) -> Option<u32> {
        let &Before { event: at, location: left, known } = before;
        let thread = self.threads.get(&event.thread)?;
        let spanning = thread.spanning(at)?;
        // One call that releases a lock while it waits, or one instruction.
        if left == event.location && left != NO_LOCATION {
            return None;
        }
        let crossed = Crossed {
            thread: event.thread,
            ends,
            guards: thread.guards_since(at),
            is_cut: self.is_cut(event.thread, at, ends),
            is_repeated: thread.repeats(event, &spanning),
            has_waited: thread.has_waited_since(at),
            data,
        };
        let now = self.now - 1;
        let key = Key::new(kind, spanning, left, event.location);
        self.gaps.cross(key, crossed, &mut self.objects, &self.pairs, |spans| {
            spans.add(known, now);
        })
    }

    /// Returns whether another thread has made steps since an event that conflict with both ends.
    fn is_cut(&self, thread: ThreadId, since: EventNumber, ends: Ends) -> bool {
        let [(first, left), (second, returned)] = ends;
        let Some(users) = self.objects.get(&first) else { return false };
        let mut others = users.users.iter().filter(|user| user.thread != thread);
        if first == second {
            return others.any(|user| user.acted_since(since, &[left, returned]));
        }
        let second = self.objects.get(&second);
        others.any(|user| {
            let again = second.and_then(|users| users.of(user.thread));
            user.acted_since(since, &[left])
                && again.is_some_and(|user| user.acted_since(since, &[returned]))
        })
    }

    /// Notes a step on an object.
    fn note(&mut self, event: &Event, subject: Subject, mode: Mode, guards: &[LockId]) {
        let (thread, location, now) = (event.thread, event.location, self.now - 1);
        let region = self.threads.get(&thread).and_then(Thread::region);
        let known = self.order.known(thread);
        let step = NewStep { thread, mode, event: now, region, location, guards };
        let class_of = |lock: &LockId| self.objects.get(&Subject::Lock(*lock))?.class;
        let guarding = guards.iter().filter_map(class_of).collect();
        let users = self.objects.entry(subject);
        let users = users.or_insert_with(|| Users { born: now, ..Users::default() });
        users.class = self.code.class(thread, subject.into(), mode, location, users.class);
        if let Some(class) = users.class {
            let remote = Remote { region, location };
            let is_shared = users.is_used_beside(thread, known);
            let guards = guarding;
            let step = StepOfCode { thread, mode, remote, known, now, guards, is_shared };
            self.code.add(class, step);
        }
        users.add(&step, |spans| spans.add(known, now));
    }

    fn is_full(&self, subject: Subject) -> bool {
        self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(&subject)
    }

    /// Decides on the gaps of an object, and forgets it: its memory holds another object from now on.
    fn end_life(&mut self, subject: Subject) {
        self.gaps.decide(subject, &self.objects, &self.pairs);
        if let Some(users) = self.objects.get_mut(&subject) {
            *users = Users { born: self.now, ..Users::default() };
        }
        if matches!(subject, Subject::Variable(_)) && self.objects.len() >= MAX_OBJECTS / 2 {
            self.objects.remove(&subject);
        }
    }

    fn split(&mut self, from: VarId, to: VarId) {
        self.end_life(Subject::Variable(to));
        if self.is_full(Subject::Variable(to)) {
            return;
        }
        if let Some(users) = self.objects.get(&Subject::Variable(from)) {
            let users = Users { gaps: Vec::new(), class: None, ..users.clone() };
            self.objects.insert(Subject::Variable(to), users);
        }
    }
}
