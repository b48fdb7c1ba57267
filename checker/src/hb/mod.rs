//! The happens-before engine that all checkers share: turns events into dependencies
//! (`docs/semantics.md#dependency`), tracks threads, transactions and locks held, and refuses events that
//! do not fit. Verdicts are elsewhere.

mod clocks;
mod current_event;
mod deferred;
mod last_events;
mod layers;
mod lock;
mod outside;
mod sink;
mod stamp;
mod sync;
mod table;
mod thread;
mod transitions;
mod variable;

pub(crate) use sink::Sink;
pub(crate) use table::{Entry, ThreadTable};
pub(crate) use variable::Variables;

pub use deferred::Timestamp;
pub use stamp::EventStamp;

use crate::error::{EventError, EventErrorKind};
use crate::event::{Event, EventNumber, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::finding::{Action, Counts, Edge, Object, Order, Tx};
use clocks::Clocks;
use lock::Locks;
use rustc_hash::FxHashMap;
use std::hint::select_unpredictable;
use sync::SyncObjects;
use thread::{State, Thread, Threads};

/// A dependency: two events of different threads in conflict, with no event between them that conflicts
/// with both.
pub struct Dependency<'a> {
    /// Earlier event.
    pub source: &'a EventStamp,
    /// Later event: the current one.
    pub sink: &'a EventStamp,
    /// Object on which the two conflict.
    pub object: Object,
    /// Row of the sink's thread.
    pub row: usize,
    table: &'a ThreadTable,
    /// Clocks at the sink, to determine the order; without them the dependency is synchronised.
    clocks: Option<&'a Clocks>,
}

impl Dependency<'_> {
    /// Returns whether the two are accesses to a variable.
    #[inline]
    pub fn is_variable(&self) -> bool {
        matches!(self.object, Object::Variable(_))
    }

    /// Returns the row of the source's thread; `None` if the visitor retains nothing of that thread.
    #[inline]
    pub fn source_row(&self) -> Option<usize> {
        self.table.row(self.source.thread())
    }

    /// Returns the order of the two ends.
    pub fn order(&self) -> Order {
        let Some(clocks) = self.clocks else { return Order::Synchronised };
        let (of, event) = (self.source_row(), self.source.known_with());
        let known = of.is_some_and(|of| clocks.knows(self.row, of, event));
        if known { Order::Synchronised } else { Order::Racy }
    }
}

/// Builds the edge that reports show.
pub fn edge(source: &EventStamp, sink: &EventStamp, object: Object, order: Order) -> Edge {
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

/// Returns the transactions of a witness that had not accessed any variable up to their last event of it,
/// given the ends of its dependencies.
pub(crate) fn transactions_without_data<'a>(ends: impl Iterator<Item = &'a EventStamp>) -> Vec<Tx> {
    let mut seen: FxHashMap<Tx, bool> = FxHashMap::default();
    for end in ends {
        *seen.entry(end.tx()).or_default() |= end.has_data();
    }
    let without = seen.into_iter().filter(|(_, data)| !data).map(|(tx, _)| tx);
    let mut without: Vec<Tx> = without.collect();
    without.sort_unstable_by_key(|tx| tx.begin_event);
    without
}

/// Number of variables whose last writes are remembered.
const WRITTEN: usize = 8;

/// Variables that a thread has written in a hold, the latest first, as far as they are remembered.
pub type WrittenVariables = [Option<VarId>; WRITTEN];

/// Outermost hold of a lock that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedHold {
    /// Event at which it began.
    pub since: EventNumber,
    /// Set if the thread wrote a variable meanwhile that another thread had accessed.
    pub changes: bool,
    /// Variables that the thread wrote meanwhile.
    pub written: WrittenVariables,
}

/// Receiver of the effects of each event: `started` and `acquired` come before its dependencies, all other
/// calls after them.
///
/// A thread is identified by its row, a small number that another thread gets once the thread has ended and
/// the visitor does not retain it.
pub trait Visitor {
    /// Notes the first event of the thread in `row`.
    fn started(&mut self, row: usize);
    /// Returns whether a dependency on that event of another thread can be relevant. A quick test, which
    /// may err towards `true`.
    fn is_relevant(&self, row: Option<usize>, source: &EventStamp) -> bool;
    /// Handles a dependency whose sink is the current event.
    fn dependency(&mut self, dependency: &Dependency<'_>);
    /// Notes that a region was opened inside `depth` others.
    fn begin(&mut self, row: usize, now: &EventStamp, region: RegionId, depth: usize);
    /// Notes, before regions of the thread are closed, at which event it last changed a variable that others had
    /// accessed.
    fn last_change(&mut self, _row: usize, _event: EventNumber) {}
    /// Notes that event `number` closed regions of the thread; `depth` are still open. It is an event of another thread
    /// where that joins the thread.
    fn end(&mut self, row: usize, number: EventNumber, depth: usize);
    /// Notes which region the thread's actions outside all others belong to from here on. No event of the thread: it
    /// may come before `started`.
    fn follow(&mut self, _row: usize, _thread: ThreadId, _region: Option<RegionId>) {}
    /// Notes at event `number` that a part of the accesses in executions of the region is left out from here on, or
    /// that all are seen again. No event of a thread.
    fn accesses_rest(&mut self, _region: RegionId, _rest: bool, _number: EventNumber) {}
    /// Notes that a thread is about to end, by itself or because its process does; its regions are still open.
    fn exits(&mut self, _row: usize) {}
    /// Returns whether the state of this ended thread must be retained: a dependency on its events can
    /// still be relevant, or the order of its events or of those it knows can be asked for. `last` is its
    /// last event.
    fn must_retain(&self, row: usize, last: &EventStamp) -> bool;
    /// Notes that the outermost hold of a lock began.
    fn acquired(&mut self, _row: usize, _lock: LockId, _now: &EventStamp) {}
    /// Notes that the outermost hold of a lock ended.
    fn released(&mut self, _row: usize, _lock: LockId, _now: &EventStamp, _hold: EndedHold) {}
    /// Notes that the thread lets others go on: it signals, arrives, or starts a thread.
    fn notified(&mut self, _row: usize, _now: &EventStamp) {}
    /// Notes that the thread has waited for a thread that was not retained, on which no dependency is reported.
    fn waited(&mut self, _row: usize, _now: &EventStamp) {}
    /// Notes that the id stands for a new lock from now on.
    fn reset(&mut self, _lock: LockId) {}
}

/// State from which dependencies are computed.
pub struct Engine {
    lenient: bool,
    pub(crate) counts: Counts,
    threads: Threads,
    clocks: Clocks,
    variables: Variables,
    locks: Locks,
    syncs: SyncObjects,
}

impl Engine {
    /// Creates an engine. A lenient one ignores and counts the events that a strict one refuses.
    #[must_use]
    pub fn new(lenient: bool) -> Self {
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

    /// Returns whether a thread has written a variable that no other thread has accessed since.
    pub(crate) fn is_owned(&self, variable: VarId, thread: ThreadId) -> bool {
        self.variables.is_owned(variable, thread)
    }

    /// Prefetches the states of the objects of `events`, if the tables are larger than a cache.
    #[inline]
    pub fn prefetch(&self, events: &[Event]) {
        if !self.variables.are_many() {
            return;
        }
        let accessed = events.iter().filter_map(|event| match event.op {
            Op::Read(variable)
            | Op::Write(variable)
            | Op::Update(variable)
            | Op::CommutingUpdate(variable) => Some(variable),
            _ => None,
        });
        std::hint::black_box(self.variables.prefetch(accessed));
    }

    /// Returns the counts so far; those of violations are 0.
    #[cfg(feature = "engine")]
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns whether events that do not fit are ignored.
    pub(crate) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Returns the row of a thread, if it has one.
    #[must_use]
    pub fn row(&self, thread: ThreadId) -> Option<usize> {
        self.threads.table.row(thread)
    }

    /// Returns the last event of the thread in that row, if it has acted.
    pub(crate) fn last(&self, row: usize) -> Option<EventStamp> {
        self.threads.rows.get(row).map(|thread| thread.now).filter(EventStamp::is_some)
    }

    /// Notes that events were lost: regions and locks held are forgotten; the order of events remains.
    pub fn gap(&mut self) {
        self.counts.gaps += 1;
        for thread in &mut self.threads.rows {
            thread.abandon();
        }
        self.syncs.gap();
    }

    /// Consumes an event and reports its effects to the visitor.
    ///
    /// # Errors
    /// As [`Checker::event`](crate::Checker::event).
    #[inline(always)]
    pub fn step(&mut self, event: &Event, visitor: &mut impl Visitor) -> Result<(), EventError> {
        let number = self.counts.events;
        self.counts.events += 1;
        let done = match event.op {
            // The kind of access is unpredictable, hence selected without a branch.
            Op::Read(variable) | Op::Write(variable) | Op::Update(variable) => {
                let (reads, updates) =
                    (matches!(event.op, Op::Read(_)), matches!(event.op, Op::Update(_)));
                let writing = select_unpredictable(updates, Action::Update, Action::Write);
                let action = select_unpredictable(reads, Action::Read, writing);
                self.access(number, event, variable, action, visitor)
            }
            Op::CommutingUpdate(variable) => {
                self.commuting_update(number, event, variable, visitor)
            }
            Op::Free(variable) => self.access(number, event, variable, Action::Free, visitor),
            _ => self.step_fast(number, event, visitor),
        };
        if done { Ok(()) } else { self.step_validated(number, event, visitor) }
    }

    /// Consumes an event of any kind, including the first of a thread or of an object, after checking that
    /// it fits.
    #[inline(never)]
    fn step_validated(
        &mut self,
        number: EventNumber,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> Result<(), EventError> {
        match self.apply(number, event, visitor) {
            Ok(()) => Ok(()),
            Err(kind) => self.reject(number, event, kind),
        }
    }

    #[cold]
    fn reject(
        &mut self,
        number: u64,
        event: &Event,
        kind: EventErrorKind,
    ) -> Result<(), EventError> {
        if let EventErrorKind::DepartWithoutArrive(object) = kind {
            self.syncs.depart_without_arrival(object);
        }
        let after_gap = self.counts.gaps > 0 && kind != EventErrorKind::ReservedId;
        if !self.lenient && !after_gap {
            return Err(EventError { number, thread: event.thread, kind });
        }
        self.counts.ignored_events += 1;
        Ok(())
    }

    /// Returns the row of the event's thread, if the thread can act.
    fn admit(&mut self, number: EventNumber, event: &Event) -> Result<usize, EventErrorKind> {
        if number > stamp::MAX_EVENTS {
            return Err(EventErrorKind::TooManyEvents);
        }
        check_ids(event)?;
        let row = match self.threads.table.get(event.thread) {
            Entry::Row(row) => row,
            Entry::Unseen => self.add(event.thread, None),
            Entry::Ended => return Err(EventErrorKind::ThreadEnded),
            Entry::Joined => return Err(EventErrorKind::ThreadJoined),
        };
        match self.threads.rows[row].state {
            State::Running => Ok(row),
            State::Ended => Err(EventErrorKind::ThreadEnded),
            State::Joined => Err(EventErrorKind::ThreadJoined),
        }
    }

    /// Returns the sizes that can grow with the number of threads: rows, components of clocks, pages of
    /// thread ids, and events stored in lists.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 4] {
        let Self { threads, clocks, variables, locks, syncs, .. } = self;
        let listed = variables.len() + locks.len() + syncs.len();
        [threads.rows.len(), clocks.lanes(), threads.table.pages(), listed]
    }

    /// Reports the dependency of a thread's first event on its fork.
    #[cold]
    fn forked(
        &mut self,
        row: usize,
        number: EventNumber,
        event: &Event,
        action: Action,
        visitor: &mut impl Visitor,
    ) {
        let Self { counts, threads: Threads { table, rows, .. }, .. } = self;
        let source = &rows[row].fork;
        if source.is_some() {
            counts.dependencies += 1;
            let sink = &Thread::new(event.thread).advance(number, action, event).0;
            let object = Object::Thread(event.thread);
            visitor.dependency(&Dependency { source, sink, object, row, table, clocks: None });
        }
    }

    /// Adds a row for a thread that has none; `parent` is the row of the thread that forked it.
    #[cold]
    fn add(&mut self, thread: ThreadId, parent: Option<usize>) -> usize {
        let row = self.threads.add(thread);
        self.clocks.start(row, parent);
        row
    }

    /// Marks a thread as ended or joined, and gives back the rows of threads that need not be retained.
    fn retire(
        &mut self,
        row: usize,
        number: EventNumber,
        state: State,
        visitor: &mut impl Visitor,
    ) {
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
            let last_change = thread.last_change;
            if last.is_some() {
                visitor.last_change(row, last_change);
                visitor.end(row, number, 0);
            }
            threads.end(row);
        }
        if threads.should_sweep() {
            threads.sweep(|row, thread| {
                let needed = thread.now.is_some() && visitor.must_retain(row, &thread.now);
                if !needed {
                    clocks.free(row);
                }
                !needed
            });
        }
    }
}

/// Refuses the id `u32::MAX`: it stands for "none" in packed form, and a table of that length could not be
/// allocated.
#[inline]
fn check_ids(event: &Event) -> Result<(), EventErrorKind> {
    let object = match event.op {
        Op::Begin(RegionId(id)) | Op::End(Some(RegionId(id))) => id,
        Op::Follow(Some(RegionId(id))) | Op::Rest(RegionId(id)) | Op::Resume(RegionId(id)) => id,
        Op::Read(VarId(id)) | Op::Write(VarId(id)) | Op::Update(VarId(id)) => id,
        Op::CommutingUpdate(VarId(id)) | Op::Alloc(VarId(id)) | Op::Free(VarId(id)) => id,
        Op::SplitVariable { from: VarId(from), to: VarId(to) } => from.max(to),
        Op::Acquire(LockId(id)) | Op::Release(LockId(id)) => id,
        Op::AcquireShared(LockId(id)) | Op::ReleaseShared(LockId(id)) => id,
        Op::Reset(LockId(id)) => id,
        Op::Fork(ThreadId(id)) | Op::Join(ThreadId(id)) => id,
        Op::Signal(SyncId(id)) | Op::Wait(SyncId(id)) => id,
        Op::Arrive(SyncId(id)) | Op::Depart(SyncId(id)) => id,
        Op::End(None) | Op::Follow(None) | Op::Exit => 0,
    };
    if object == u32::MAX || event.thread.0 == u32::MAX {
        Err(EventErrorKind::ReservedId)
    } else {
        Ok(())
    }
}
