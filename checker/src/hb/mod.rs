//! The happens-before engine that all checkers share: it turns events into dependencies (`SPEC.md` §2), keeps the
//! bookkeeping of threads, transactions and locks held, and refuses events that do not fit. Verdicts do not live here.

mod access;
mod clocks;
mod lock;
mod sync;
mod thread;
mod variable;

pub(crate) use access::Access;

use crate::error::{EventError, Misfit};
use crate::event::{Event, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::finding::{Action, Counts, Edge, Object, Order};
use clocks::Clocks;
use lock::Locks;
use sync::SyncObjects;
use thread::{Mode, Thread};
use variable::Variables;

/// Two events in conflict of different threads, with nothing between them that conflicts with both.
pub(crate) struct Dependency<'a> {
    pub(crate) source: &'a Access,
    pub(crate) sink: &'a Access,
    pub(crate) object: Object,
    /// The clocks at the sink, to ask for the order; without them it is synchronised.
    clocks: Option<&'a Clocks>,
}

impl Dependency<'_> {
    #[inline]
    pub(crate) fn is_variable(&self) -> bool {
        matches!(self.object, Object::Variable(_))
    }

    /// How its ends are ordered.
    pub(crate) fn order(&self) -> Order {
        self.clocks.map_or(Order::Synchronised, |clocks| clocks.order(self.source, self.sink))
    }
}

/// The edge that reports show.
pub(crate) fn edge(source: &Access, sink: &Access, object: Object, order: Order) -> Edge {
    let mut edge = Edge { source: source.point(), sink: sink.point(), object, order };
    if let Object::Thread(thread) = object {
        if edge.source.thread == thread {
            edge.source.action = Action::Exit;
        } else {
            edge.sink.action = Action::Start;
        }
    }
    edge
}

/// What a checker is told of one event: `started` and `acquired` before its dependencies, the rest after them.
pub(crate) trait Visitor {
    /// The first event of a thread.
    fn started(&mut self, thread: ThreadId);
    /// A dependency whose sink is the event under way.
    fn dependency(&mut self, dependency: &Dependency<'_>);
    /// A region was opened inside `depth` others.
    fn begin(&mut self, now: &Access, region: RegionId, depth: usize);
    /// Regions of the thread were closed; `depth` are still open.
    fn end(&mut self, thread: ThreadId, depth: usize);
    /// The outermost hold of a lock began.
    fn acquired(&mut self, _lock: LockId, _now: &Access) {}
    /// The outermost hold of a lock ended.
    fn released(&mut self, _lock: LockId, _now: &Access) {}
    /// The lock is another one from now on.
    fn reset(&mut self, _lock: LockId) {}
}

/// The state of everything that dependencies rest on.
pub(crate) struct Engine {
    lenient: bool,
    pub(crate) counts: Counts,
    threads: Vec<Thread>,
    clocks: Clocks,
    variables: Variables,
    locks: Locks,
    syncs: SyncObjects,
}

impl Engine {
    /// A lenient engine ignores and counts the events that a strict one refuses.
    pub(crate) fn new(lenient: bool) -> Self {
        Self {
            lenient,
            counts: Counts::default(),
            threads: Vec::new(),
            clocks: Clocks::default(),
            variables: Variables::default(),
            locks: Locks::default(),
            syncs: SyncObjects::default(),
        }
    }

    /// Brings the states of the objects of some coming events into the cache, all at once.
    #[inline]
    pub(crate) fn touch(&self, events: &[Event]) {
        let mut sum = 0_u64;
        for event in events {
            if let Op::Read(variable) | Op::Write(variable) | Op::Update(variable) = event.op {
                sum = sum.wrapping_add(self.variables.touch(variable));
            }
        }
        std::hint::black_box(sum);
    }

    /// Events were lost: regions and locks held are forgotten, what orders events stays.
    pub(crate) fn gap(&mut self) {
        self.counts.gaps += 1;
        for thread in &mut self.threads {
            thread.abandon();
        }
        self.syncs.gap();
    }

    /// Consumes an event and tells the visitor what follows from it.
    #[inline]
    pub(crate) fn step(
        &mut self,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> Result<(), EventError> {
        let number = self.counts.events;
        self.counts.events += 1;
        match self.apply(number, event, visitor) {
            Ok(()) => Ok(()),
            Err(reason) => self.misfit(number, event, reason),
        }
    }

    #[cold]
    fn misfit(&mut self, number: u64, event: &Event, reason: Misfit) -> Result<(), EventError> {
        if let Misfit::DepartWithoutArrive(object) = reason {
            self.syncs.depart_unseen(object);
        }
        let after_gap = self.counts.gaps > 0 && reason != Misfit::ReservedId;
        if !self.lenient && !after_gap {
            return Err(EventError { number, thread: event.thread, reason });
        }
        self.counts.ignored_events += 1;
        Ok(())
    }

    #[inline]
    fn apply(
        &mut self,
        number: u64,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> Result<(), Misfit> {
        if number > access::MAX_EVENTS {
            return Err(Misfit::TooManyEvents);
        }
        let Self { counts, threads, clocks, variables, locks, syncs, .. } = self;
        let id = event.thread;
        check_ids(event)?;
        if id.index() >= threads.len() {
            threads.resize_with(id.index() + 1, Thread::default);
            clocks.grow(threads.len());
        }
        let Some(thread) = threads.get_mut(id.index()) else { return Err(Misfit::ReservedId) };
        if thread.joined {
            return Err(Misfit::ThreadJoined);
        }
        let action = match event.op {
            Op::Read(_) => Action::Read,
            Op::Write(_) => Action::Write,
            Op::Update(_) => Action::Update,
            Op::Alloc(_) => Action::Alloc,
            // Nothing depends on a reset, so that no report shows what it is remembered as.
            Op::Free(_) | Op::Reset(_) => Action::Free,
            Op::Begin(_) => Action::Begin,
            Op::Acquire(_) => Action::Acquire,
            Op::AcquireShared(_) => Action::AcquireShared,
            Op::Signal(_) => Action::Signal,
            Op::Wait(_) => Action::Wait,
            Op::Arrive(_) => Action::Arrive,
            Op::End(region) => {
                thread.check_end(region, self.lenient || counts.gaps > 0)?;
                Action::End
            }
            Op::Release(lock) => {
                thread.check_held(lock, Mode::Exclusive)?;
                Action::Release
            }
            Op::ReleaseShared(lock) => {
                thread.check_held(lock, Mode::Shared)?;
                Action::ReleaseShared
            }
            Op::Depart(object) => {
                if !syncs.is_inside(object, id) {
                    return Err(Misfit::DepartWithoutArrive(object));
                }
                Action::Depart
            }
            Op::Fork(child) => {
                check_fork(threads, id, child)?;
                Action::Fork
            }
            Op::Join(child) => {
                check_join(threads, id, child)?;
                Action::Join
            }
        };
        let thread = &mut threads[id.index()];

        let first = thread.now.is_none();
        let fork = if first { thread.fork } else { Access::NONE };
        if thread.open.is_empty() {
            let region = if let Op::Begin(region) = event.op { Some(region) } else { None };
            counts.transactions += 1;
            counts.unary_transactions += u64::from(region.is_none());
            thread.now.set_tx(id, thread.transactions, region, number);
            thread.transactions += 1;
        }
        thread.now.set_event(number, action, event.location);
        let now = thread.now;
        if first {
            counts.threads += 1;
            visitor.started(id);
            if fork.is_some() {
                counts.dependencies += 1;
                let object = Object::Thread(id);
                let dependency = Dependency { source: &fork, sink: &now, object, clocks: None };
                visitor.dependency(&dependency);
            }
        }

        /// What tells the visitor of a dependency of the event under way.
        macro_rules! report {
            ($object:expr, $clocks:expr) => {
                |source: &Access| {
                    counts.dependencies += 1;
                    let (object, clocks) = ($object, $clocks);
                    visitor.dependency(&Dependency { source, sink: &now, object, clocks });
                }
            };
        }

        match event.op {
            Op::Read(variable) => {
                variables.read(variable, &now, report!(Object::Variable(variable), Some(&*clocks)));
            }
            Op::Write(variable) | Op::Update(variable) => {
                variables.write(
                    variable,
                    &now,
                    report!(Object::Variable(variable), Some(&*clocks)),
                );
            }
            Op::Alloc(variable) | Op::Free(variable) => variables.forget(variable),
            Op::Begin(region) => {
                visitor.begin(&now, region, thread.open.len());
                thread.open.push(region);
            }
            Op::End(region) => {
                thread.close(region);
                visitor.end(id, thread.open.len());
            }
            Op::Acquire(lock) => {
                if thread.hold(lock, Mode::Exclusive) {
                    visitor.acquired(lock, &now);
                    locks.acquire(lock, &now, clocks, report!(Object::Lock(lock), None));
                }
            }
            Op::AcquireShared(lock) => {
                if thread.hold(lock, Mode::Shared) {
                    visitor.acquired(lock, &now);
                    locks.acquire_shared(lock, &now, clocks, report!(Object::Lock(lock), None));
                }
            }
            Op::Release(lock) => {
                if thread.let_go(lock, Mode::Exclusive) {
                    locks.release(lock, &now, clocks);
                    visitor.released(lock, &now);
                }
            }
            Op::ReleaseShared(lock) => {
                if thread.let_go(lock, Mode::Shared) {
                    locks.release_shared(lock, &now, clocks);
                    visitor.released(lock, &now);
                }
            }
            Op::Reset(lock) => {
                locks.forget(lock);
                for thread in threads.iter_mut() {
                    thread.forget(lock);
                }
                visitor.reset(lock);
            }
            Op::Signal(object) => syncs.signal(object, &now, clocks),
            Op::Wait(object) => {
                syncs.wait(object, &now, clocks, report!(Object::Sync(object), None));
            }
            Op::Arrive(object) => syncs.arrive(object, &now, clocks),
            Op::Depart(object) => {
                syncs.depart(object, &now, clocks, report!(Object::Sync(object), None));
            }
            Op::Fork(child) => {
                if child.index() >= threads.len() {
                    threads.resize_with(child.index() + 1, Thread::default);
                    clocks.grow(threads.len());
                }
                threads[child.index()].fork = now;
                clocks.learn_all(child, &now);
            }
            Op::Join(child) => {
                if child.index() >= threads.len() {
                    threads.resize_with(child.index() + 1, Thread::default);
                    clocks.grow(threads.len());
                }
                let joined = &mut threads[child.index()];
                joined.abandon();
                joined.joined = true;
                let last = joined.now;
                if last.is_some() {
                    clocks.learn_all(id, &last);
                    // The child's last event may be the fork of this thread, which is a dependency already.
                    if fork.is_none() || fork.event() != last.event() {
                        report!(Object::Thread(child), None)(&last);
                    }
                    visitor.end(child, 0);
                }
            }
        }
        Ok(())
    }
}

/// `u32::MAX` stands for "none" in packed form, and a table that long could not be had.
#[inline]
fn check_ids(event: &Event) -> Result<(), Misfit> {
    let object = match event.op {
        Op::Begin(RegionId(id)) | Op::End(Some(RegionId(id))) => id,
        Op::Read(VarId(id)) | Op::Write(VarId(id)) | Op::Update(VarId(id)) => id,
        Op::Alloc(VarId(id)) | Op::Free(VarId(id)) => id,
        Op::Acquire(LockId(id)) | Op::Release(LockId(id)) => id,
        Op::AcquireShared(LockId(id)) | Op::ReleaseShared(LockId(id)) => id,
        Op::Reset(LockId(id)) => id,
        Op::Fork(ThreadId(id)) | Op::Join(ThreadId(id)) => id,
        Op::Signal(SyncId(id)) | Op::Wait(SyncId(id)) => id,
        Op::Arrive(SyncId(id)) | Op::Depart(SyncId(id)) => id,
        Op::End(None) => 0,
    };
    if object == u32::MAX || event.thread.0 == u32::MAX { Err(Misfit::ReservedId) } else { Ok(()) }
}

fn check_fork(threads: &[Thread], parent: ThreadId, child: ThreadId) -> Result<(), Misfit> {
    if parent == child {
        return Err(Misfit::ForkOfSelf);
    }
    match threads.get(child.index()) {
        Some(thread) if thread.fork.is_some() => Err(Misfit::ForkedTwice(child)),
        Some(thread) if thread.now.is_some() || thread.joined => {
            Err(Misfit::ForkAfterAction(child))
        }
        _ => Ok(()),
    }
}

fn check_join(threads: &[Thread], parent: ThreadId, child: ThreadId) -> Result<(), Misfit> {
    if parent == child {
        return Err(Misfit::JoinOfSelf);
    }
    match threads.get(child.index()) {
        Some(thread) if thread.joined => Err(Misfit::JoinedTwice(child)),
        _ => Ok(()),
    }
}
