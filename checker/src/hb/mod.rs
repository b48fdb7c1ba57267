//! The happens-before engine that all checkers share: it turns events into dependencies (`SPEC.md` §2), keeps the
//! bookkeeping of threads, transactions and locks held, and refuses events that do not fit. Verdicts do not live here.

mod access;
mod clocks;
mod last;
mod lock;
mod now;
mod sync;
mod table;
mod thread;
mod variable;

pub(crate) use access::Access;

use crate::error::{EventError, Misfit};
use crate::event::{Event, EventNumber, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::finding::{Action, Counts, Edge, Object, Order};
use clocks::Clocks;
use lock::Locks;
use now::Now;
use sync::SyncObjects;
use table::{Entry, ThreadTable};
use thread::{Mode, State, Thread, Threads};
use variable::Variables;

/// Two events in conflict of different threads, with nothing between them that conflicts with both.
pub(crate) struct Dependency<'a> {
    pub(crate) source: &'a Access,
    pub(crate) sink: &'a Access,
    pub(crate) object: Object,
    /// The row of the sink's thread.
    pub(crate) row: usize,
    table: &'a ThreadTable,
    /// The clocks at the sink, to ask for the order; without them it is synchronised.
    clocks: Option<&'a Clocks>,
}

impl Dependency<'_> {
    #[inline]
    pub(crate) fn is_variable(&self) -> bool {
        matches!(self.object, Object::Variable(_))
    }

    /// The row of the source's thread; none when the visitor said that nothing it did matters.
    #[inline]
    pub(crate) fn source_row(&self) -> Option<usize> {
        self.table.row(self.source.thread())
    }

    /// How its ends are ordered.
    pub(crate) fn order(&self) -> Order {
        let Some(clocks) = self.clocks else { return Order::Synchronised };
        let (of, event) = (self.source_row(), self.source.event());
        let known = of.is_some_and(|of| clocks.knows(self.row, of, event));
        if known { Order::Synchronised } else { Order::Racy }
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
///
/// A thread goes by its row, a small number that is given to another thread when the thread has ended and the
/// visitor does not need it any more.
pub(crate) trait Visitor {
    /// The first event of the thread in that row.
    fn started(&mut self, row: usize);
    /// Whether a dependency on that event of another thread can matter: a quick look that may err on this side.
    fn cares(&self, row: Option<usize>, source: &Access) -> bool;
    /// A dependency whose sink is the event under way.
    fn dependency(&mut self, dependency: &Dependency<'_>);
    /// A region was opened inside `depth` others.
    fn begin(&mut self, row: usize, now: &Access, region: RegionId, depth: usize);
    /// Regions of the thread were closed; `depth` are still open.
    fn end(&mut self, row: usize, depth: usize);
    /// Whether a dependency on an event of this thread, which has ended with `last`, can still matter, or the order
    /// of its events or those it knows be asked for.
    fn needs(&self, row: usize, last: &Access) -> bool;
    /// The outermost hold of a lock began.
    fn acquired(&mut self, _row: usize, _lock: LockId, _now: &Access) {}
    /// The outermost hold of a lock ended.
    fn released(&mut self, _row: usize, _lock: LockId, _now: &Access) {}
    /// The lock is another one from now on.
    fn reset(&mut self, _lock: LockId) {}
}

/// The state of everything that dependencies rest on.
pub(crate) struct Engine {
    lenient: bool,
    pub(crate) counts: Counts,
    threads: Threads,
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
            threads: Threads::default(),
            clocks: Clocks::default(),
            variables: Variables::default(),
            locks: Locks::default(),
            syncs: SyncObjects::default(),
        }
    }

    /// Brings the states of the objects of some coming events into the cache, all at once, if they are many.
    #[inline]
    pub(crate) fn touch(&self, events: &[Event]) {
        if !self.variables.are_many() {
            return;
        }
        let mut sum = 0_u64;
        for event in events {
            if let Op::Read(variable) | Op::Write(variable) | Op::Update(variable) = event.op {
                sum = sum.wrapping_add(self.variables.touch(variable));
            }
        }
        std::hint::black_box(sum);
    }

    /// The row of a thread, when it has one.
    pub(crate) fn row(&self, thread: ThreadId) -> Option<usize> {
        self.threads.table.row(thread)
    }

    /// Events were lost: regions and locks held are forgotten, what orders events stays.
    pub(crate) fn gap(&mut self) {
        self.counts.gaps += 1;
        for thread in &mut self.threads.rows {
            thread.abandon();
        }
        self.syncs.gap();
    }

    /// Consumes an event and tells the visitor what follows from it.
    #[inline(always)]
    pub(crate) fn step(
        &mut self,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> Result<(), EventError> {
        let number = self.counts.events;
        self.counts.events += 1;
        let access = match event.op {
            Op::Read(variable) => Some((variable, Action::Read)),
            Op::Write(variable) => Some((variable, Action::Write)),
            Op::Update(variable) => Some((variable, Action::Update)),
            _ => None,
        };
        let done = match access {
            Some((variable, action)) => self.access(number, event, variable, action, visitor),
            None => false,
        };
        if done { Ok(()) } else { self.step_with_care(number, event, visitor) }
    }

    /// Consumes an event of any kind, the first of a thread or of an object too.
    #[inline(never)]
    fn step_with_care(
        &mut self,
        number: EventNumber,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> Result<(), EventError> {
        match self.apply(number, event, visitor) {
            Ok(()) => Ok(()),
            Err(reason) => self.misfit(number, event, reason),
        }
    }

    /// A read or a write, by far the most frequent events. Does nothing and returns `false` where more care is
    /// needed.
    #[inline(always)]
    fn access(
        &mut self,
        number: EventNumber,
        event: &Event,
        variable: VarId,
        action: Action,
        visitor: &mut impl Visitor,
    ) -> bool {
        let Self { counts, threads: Threads { table, rows, .. }, clocks, variables, .. } = self;
        let Some(row) = table.row(event.thread) else { return false };
        let Some(thread) = rows.get_mut(row) else { return false };
        if !thread.ready || !variables.has(variable) || number > access::MAX_EVENTS {
            return false;
        }
        let (now, alone) = thread.advance(number, action, event);
        if alone {
            counts.transactions += 1;
            counts.unary_transactions += 1;
        }
        let sink = &thread.now;
        let writes = action != Action::Read;
        let (object, clocks) = (Object::Variable(variable), Some(&*clocks));
        let done = variables.access(variable, now, writes, |source, applies| {
            counts.dependencies += u64::from(applies);
            if applies & visitor.cares(table.row(source.thread()), source) {
                visitor.dependency(&Dependency { source, sink, object, row, table, clocks });
            }
        });
        if !done {
            self.access_with_lists(row, variable, writes, visitor);
        }
        true
    }

    #[inline(never)]
    fn access_with_lists(
        &mut self,
        row: usize,
        variable: VarId,
        writes: bool,
        visitor: &mut impl Visitor,
    ) {
        let Self { counts, threads: Threads { table, rows, .. }, clocks, variables, .. } = self;
        let sink = &rows[row].now;
        let (object, clocks) = (Object::Variable(variable), Some(&*clocks));
        let mut dependencies = 0;
        let dropped = variables.access_with_lists(variable, sink, writes, table, |source| {
            dependencies += 1;
            if visitor.cares(table.row(source.thread()), source) {
                visitor.dependency(&Dependency { source, sink, object, row, table, clocks });
            }
        });
        counts.dependencies += dependencies + dropped;
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

    /// The row of the event's thread, if the thread can act.
    fn admit(&mut self, number: EventNumber, event: &Event) -> Result<usize, Misfit> {
        if number > access::MAX_EVENTS {
            return Err(Misfit::TooManyEvents);
        }
        check_ids(event)?;
        let row = match self.threads.table.get(event.thread) {
            Entry::Row(row) => row,
            Entry::Unseen => self.add(event.thread, None),
            Entry::Ended => return Err(Misfit::ThreadEnded),
            Entry::Joined => return Err(Misfit::ThreadJoined),
        };
        match self.threads.rows[row].state {
            State::Running => Ok(row),
            State::Ended => Err(Misfit::ThreadEnded),
            State::Joined => Err(Misfit::ThreadJoined),
        }
    }

    /// An event of any kind.
    fn apply(
        &mut self,
        number: u64,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> Result<(), Misfit> {
        let row = self.admit(number, event)?;
        let id = event.thread;
        let Self { counts, threads, locks, lenient, .. } = self;
        let Threads { table, rows, .. } = threads;
        let thread = &rows[row];
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
            Op::Exit => Action::Exit,
            Op::End(region) => {
                thread.check_end(region, *lenient || counts.gaps > 0)?;
                Action::End
            }
            Op::Release(lock) => {
                thread.check_held(lock, locks.life(lock), Mode::Exclusive)?;
                Action::Release
            }
            Op::ReleaseShared(lock) => {
                thread.check_held(lock, locks.life(lock), Mode::Shared)?;
                Action::ReleaseShared
            }
            Op::Depart(object) => {
                if !thread.inside.contains(&object) {
                    return Err(Misfit::DepartWithoutArrive(object));
                }
                Action::Depart
            }
            Op::Fork(child) => {
                check_fork(table, rows, id, child)?;
                Action::Fork
            }
            Op::Join(child) => {
                check_join(table, rows, id, child)?;
                Action::Join
            }
        };
        let first = !std::mem::replace(&mut rows[row].ready, true);
        if first {
            counts.threads += 1;
            visitor.started(row);
        }
        if let Op::Read(variable) | Op::Write(variable) | Op::Update(variable) = event.op {
            self.variables.ensure(variable);
            self.access(number, event, variable, action, visitor);
            if first {
                self.forked(row, visitor);
            }
            return Ok(());
        }
        let (now, alone) = rows[row].advance(number, action, event);
        counts.transactions += u64::from(alone);
        let is_begin = matches!(event.op, Op::Begin(_));
        counts.unary_transactions += u64::from(alone && !is_begin);
        let fork = if first { self.forked(row, visitor) } else { Access::NONE };
        let Self { counts, threads, clocks, variables, locks, syncs, .. } = self;
        let Threads { table, rows, .. } = threads;
        let thread = &mut rows[row];

        /// What tells the visitor of a dependency of the event under way.
        macro_rules! report {
            ($source:expr, $object:expr) => {{
                counts.dependencies += 1;
                let (source, object, table) = ($source, $object, &*table);
                let clocks = None;
                visitor.dependency(&Dependency { source, sink: &now, object, row, table, clocks });
            }};
        }

        match event.op {
            Op::Read(_) | Op::Write(_) | Op::Update(_) => {}
            Op::Alloc(variable) | Op::Free(variable) => variables.forget(variable),
            Op::Begin(region) => {
                visitor.begin(row, &now, region, thread.open.len());
                thread.open.push(region);
            }
            Op::End(region) => {
                thread.close(region);
                visitor.end(row, thread.open.len());
            }
            Op::Acquire(lock) => {
                if thread.hold(lock, locks.life(lock), Mode::Exclusive) {
                    visitor.acquired(row, lock, &now);
                    let mut now = Now { event: &now, row, table, clocks };
                    let dropped = locks.acquire(lock, &mut now, |source| {
                        report!(source, Object::Lock(lock));
                    });
                    counts.dependencies += dropped;
                }
            }
            Op::AcquireShared(lock) => {
                if thread.hold(lock, locks.life(lock), Mode::Shared) {
                    visitor.acquired(row, lock, &now);
                    let mut now = Now { event: &now, row, table, clocks };
                    locks.acquire_shared(lock, &mut now, |source| {
                        report!(source, Object::Lock(lock));
                    });
                }
            }
            Op::Release(lock) => {
                if thread.let_go(lock, Mode::Exclusive) {
                    locks.release(lock, &Now { event: &now, row, table, clocks });
                    visitor.released(row, lock, &now);
                }
            }
            Op::ReleaseShared(lock) => {
                if thread.let_go(lock, Mode::Shared) {
                    locks.release_shared(lock, &Now { event: &now, row, table, clocks });
                    visitor.released(row, lock, &now);
                }
            }
            Op::Reset(lock) => {
                locks.forget(lock);
                visitor.reset(lock);
            }
            Op::Signal(object) => syncs.signal(object, &Now { event: &now, row, table, clocks }),
            Op::Wait(object) => {
                let mut now = Now { event: &now, row, table, clocks };
                let dropped = syncs.wait(object, &mut now, |source| {
                    report!(source, Object::Sync(object));
                });
                counts.dependencies += dropped;
            }
            Op::Arrive(object) => {
                if !thread.inside.contains(&object) {
                    thread.inside.push(object);
                }
                syncs.arrive(object, &Now { event: &now, row, table, clocks });
            }
            Op::Depart(object) => {
                thread.inside.retain(|&inside| inside != object);
                let mut now = Now { event: &now, row, table, clocks };
                let dropped = syncs.depart(object, &mut now, |source| {
                    report!(source, Object::Sync(object));
                });
                counts.dependencies += dropped;
            }
            Op::Fork(child) => {
                let child = match table.row(child) {
                    Some(child) => child,
                    None => self.add(child, Some(row)),
                };
                self.threads.rows[child].fork = now;
                self.clocks.learn_all(child, row, number);
            }
            Op::Join(child) => match table.get(child) {
                Entry::Row(child_row) => {
                    let last = rows[child_row].now;
                    if last.is_some() {
                        clocks.learn_all(row, child_row, last.event());
                        // The child's last event may be the fork of this thread, which is a dependency already.
                        if fork.is_none() || fork.event() != last.event() {
                            report!(&last, Object::Thread(child));
                        }
                    }
                    self.retire(child_row, State::Joined, visitor);
                }
                // It has ended, and the visitor said that nothing it did matters.
                Entry::Ended => {
                    counts.dependencies += 1;
                    table.set(child, Entry::Joined);
                }
                Entry::Unseen | Entry::Joined => table.set(child, Entry::Joined),
            },
            Op::Exit => self.retire(row, State::Ended, visitor),
        }
        Ok(())
    }

    /// What can grow with the number of threads: rows, components of clocks, pages of thread ids, and events kept in
    /// lists.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 4] {
        let Self { threads, clocks, variables, locks, syncs, .. } = self;
        let listed = variables.len() + locks.len() + syncs.len();
        [threads.rows.len(), clocks.lanes(), threads.table.pages(), listed]
    }

    /// After the first event of a thread: it depends on the fork, which is returned.
    #[cold]
    fn forked(&mut self, row: usize, visitor: &mut impl Visitor) -> Access {
        let Self { counts, threads: Threads { table, rows, .. }, .. } = self;
        let Thread { id, now, fork, .. } = &rows[row];
        if fork.is_some() {
            counts.dependencies += 1;
            let object = Object::Thread(*id);
            let dependency =
                Dependency { source: fork, sink: now, object, row, table, clocks: None };
            visitor.dependency(&dependency);
        }
        *fork
    }

    /// A row for a thread that has none, with the row of the thread that forked it.
    #[cold]
    fn add(&mut self, thread: ThreadId, parent: Option<usize>) -> usize {
        let row = self.threads.add(thread);
        self.clocks.start(row, parent);
        row
    }

    /// A thread acts no more.
    fn retire(&mut self, row: usize, state: State, visitor: &mut impl Visitor) {
        let Self { threads, clocks, syncs, .. } = self;
        let thread = &mut threads.rows[row];
        let running = thread.state == State::Running;
        thread.state = state;
        thread.ready = false;
        if running {
            for &object in &thread.inside {
                syncs.abandon(object, thread.id);
            }
            thread.abandon();
            let last = thread.now;
            clocks.end(row, last.is_some().then(|| last.event()));
            if last.is_some() {
                visitor.end(row, 0);
            }
            threads.end(row);
        }
        if threads.crowded() {
            threads.sweep(|row, thread| {
                let needed = thread.now.is_some() && visitor.needs(row, &thread.now);
                if !needed {
                    clocks.free(row);
                }
                !needed
            });
        }
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
        Op::End(None) | Op::Exit => 0,
    };
    if object == u32::MAX || event.thread.0 == u32::MAX { Err(Misfit::ReservedId) } else { Ok(()) }
}

fn check_fork(
    table: &ThreadTable,
    rows: &[Thread],
    parent: ThreadId,
    child: ThreadId,
) -> Result<(), Misfit> {
    if parent == child {
        return Err(Misfit::ForkOfSelf);
    }
    match table.get(child) {
        Entry::Unseen => Ok(()),
        Entry::Row(row) if rows[row].state == State::Running => match &rows[row] {
            thread if thread.fork.is_some() => Err(Misfit::ForkedTwice(child)),
            thread if thread.now.is_some() => Err(Misfit::ForkAfterAction(child)),
            _ => Ok(()),
        },
        Entry::Row(_) | Entry::Ended | Entry::Joined => Err(Misfit::ForkAfterAction(child)),
    }
}

fn check_join(
    table: &ThreadTable,
    rows: &[Thread],
    parent: ThreadId,
    child: ThreadId,
) -> Result<(), Misfit> {
    if parent == child {
        return Err(Misfit::JoinOfSelf);
    }
    match table.get(child) {
        Entry::Joined => Err(Misfit::JoinedTwice(child)),
        Entry::Row(row) if rows[row].state == State::Joined => Err(Misfit::JoinedTwice(child)),
        Entry::Row(_) | Entry::Ended | Entry::Unseen => Ok(()),
    }
}
