//! The optimised version: clocks know active transactions only, and are shared by the places that have the same one.

use super::barrier::Barrier;
use super::cells::{Cell, Cells, EMPTY};
use super::list::List;
use super::{Detections, Place, Version};
use crate::check::{Options, Relation};
use crate::event::{Event, EventNumber, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::finding::Action;
use crate::hb::{Dependency, EndedHold, EventStamp, Visitor};
use rustc_hash::FxHashMap;

/// Number of variables from which on they are prefetched: fewer are in the cache.
const UNCACHED: usize = 1 << 13;

/// Clocks of what later accesses to a variable can depend on.
#[derive(Default)]
struct Variable {
    write: Cell,
    reads: List,
    commuting_updates: List,
}

/// Clocks of what later acquires of a lock can depend on.
#[derive(Default)]
struct Lock {
    release: Cell,
    shared_releases: List,
}

#[derive(Default)]
struct Thread {
    clock: Cell,
    /// Begin of its active transaction; `None` outside transactions.
    begin: EventStamp,
}

/// State of the optimised version.
#[derive(Default)]
pub(super) struct Active {
    data_only: bool,
    cells: Cells,
    threads: Vec<Thread>,
    variables: Vec<Variable>,
    locks: Vec<Lock>,
    signals: FxHashMap<SyncId, List>,
    barriers: FxHashMap<SyncId, Barrier<List>>,
    forks: FxHashMap<ThreadId, Cell>,
    /// Group of sources that the current event has learnt from, if those were several at once.
    gathered: Option<usize>,
    /// The clocks of those, while they are handled.
    sources: Vec<Cell>,
    detections: Detections,
}

/// Returns the entry of a table, which grows.
#[inline]
fn entry<T: Default>(table: &mut Vec<T>, index: usize) -> &mut T {
    if index >= table.len() {
        table.resize_with(index + 1, T::default);
    }
    &mut table[index]
}

impl Variable {
    fn clear(&mut self, cells: &mut Cells) {
        cells.release(std::mem::take(&mut self.write));
        self.reads.clear(cells);
        self.commuting_updates.clear(cells);
    }
}

impl Lock {
    fn clear(&mut self, cells: &mut Cells) {
        cells.release(std::mem::take(&mut self.release));
        self.shared_releases.clear(cells);
    }
}

impl Active {
    pub(super) fn new(options: &Options) -> Self {
        Self { data_only: options.relation == Relation::Data, ..Self::default() }
    }

    /// Detects a cycle if the clock knows the active transaction of the thread in the row; returns whether to stop.
    #[inline]
    fn check(&mut self, clock: Cell, row: usize, number: EventNumber) -> bool {
        if self.cells.knows(clock, row) {
            self.detections.add(&self.threads[row].begin, number);
            return self.detections.stopped();
        }
        false
    }

    #[inline]
    fn learn(&mut self, clock: Cell, row: usize) {
        let thread = &mut self.threads[row];
        thread.clock = self.cells.learn(thread.clock, clock);
    }

    #[inline]
    fn put(&mut self, place: Place, thread: ThreadId, row: usize, event: EventNumber) {
        if self.data_only && !place.is_variable() || self.detections.stopped() {
            return;
        }
        let Self { cells, variables, locks, signals, barriers, forks, .. } = self;
        let clock = self.threads[row].clock;
        match place {
            Place::Write(variable) => {
                let clock = cells.share(clock);
                let variable = entry(variables, variable.index());
                cells.release(std::mem::replace(&mut variable.write, clock));
                variable.reads.clear(cells);
                variable.commuting_updates.clear(cells);
            }
            Place::Reads(variable) => {
                let variable = entry(variables, variable.index());
                variable.reads.put(cells, row, clock);
            }
            Place::CommutingUpdates(variable) => {
                let variable = entry(variables, variable.index());
                variable.commuting_updates.put(cells, row, clock);
            }
            Place::Release(lock) => {
                let clock = cells.share(clock);
                let lock = entry(locks, lock.index());
                cells.release(std::mem::replace(&mut lock.release, clock));
                lock.shared_releases.clear(cells);
            }
            Place::SharedReleases(lock) => {
                entry(locks, lock.index()).shared_releases.put(cells, row, clock);
            }
            Place::Signals(object) => {
                signals.entry(object).or_default().put(cells, row, clock);
            }
            Place::Barrier(object) => {
                let barrier = barriers.entry(object).or_default();
                if let Some(group) = barrier.arrive(thread, event) {
                    group.put(cells, row, clock);
                }
            }
            Place::Fork(child) => {
                let clock = cells.share(clock);
                let before = forks.insert(child, clock);
                cells.release(before.unwrap_or(EMPTY));
            }
        }
    }

    fn forget_variable(&mut self, variable: VarId) {
        if let Some(variable) = self.variables.get_mut(variable.index()) {
            variable.clear(&mut self.cells);
        }
    }

    fn split_variable(&mut self, from: VarId, to: VarId) {
        if from == to {
            return;
        }
        self.forget_variable(to);
        let Self { cells, variables, .. } = self;
        let Some(Variable { write, reads, commuting_updates }) = variables.get(from.index()) else {
            return;
        };
        let part = Variable {
            write: cells.share(*write),
            reads: reads.share(cells),
            commuting_updates: commuting_updates.share(cells),
        };
        *entry(variables, to.index()) = part;
    }

    /// Changes a barrier, and forgets the groups that nobody can depend on any more.
    fn change(&mut self, object: SyncId, change: impl FnOnce(&mut Barrier<List>)) {
        let Some(barrier) = self.barriers.get_mut(&object) else { return };
        change(barrier);
        for mut list in barrier.take_left() {
            list.clear(&mut self.cells);
        }
    }

    fn change_all(&mut self, change: impl Fn(&mut Barrier<List>)) {
        let objects: Vec<SyncId> = self.barriers.keys().copied().collect();
        objects.into_iter().for_each(|object| self.change(object, &change));
    }

    /// Ends the active transaction of the thread in the row at event `number`: every clock that knows its begin learns
    /// its knowledge.
    fn end_transaction(&mut self, row: usize, number: EventNumber) {
        if self.detections.stopped() || self.threads[row].begin.is_none() {
            return;
        }
        let clock = self.threads[row].clock;
        for other in 0..self.threads.len() {
            let known = other != row && self.cells.knows(self.threads[other].clock, row);
            if known && self.check(clock, other, number) {
                return;
            }
        }
        self.cells.end(clock, row);
        self.threads[row].begin = EventStamp::NONE;
    }

    /// Returns the clocks in a place, and a number that distinguishes them from others there.
    fn list(&self, place: Place, source: &EventStamp) -> Option<(usize, &List)> {
        let variable = |variable: VarId| self.variables.get(variable.index());
        let list = match place {
            Place::Reads(of) => variable(of).map(|variable| &variable.reads),
            Place::CommutingUpdates(of) => variable(of).map(|variable| &variable.commuting_updates),
            Place::SharedReleases(lock) => {
                self.locks.get(lock.index()).map(|lock| &lock.shared_releases)
            }
            Place::Signals(object) => self.signals.get(&object),
            Place::Barrier(object) => return self.barriers.get(&object)?.group(source.event()),
            Place::Write(_) | Place::Release(_) | Place::Fork(_) => None,
        };
        list.map(|list| (0, list))
    }

    /// Handles dependencies on a place where events of several threads are sources, at the first of them.
    fn gather(&mut self, place: Place, source: &EventStamp, row: usize, number: EventNumber) {
        let mut sources = std::mem::take(&mut self.sources);
        let Some((part, list)) = self.list(place, source) else { return };
        if self.gathered == Some(part) {
            self.sources = sources;
            return;
        }
        let others = list.iter().filter(|&(of, _)| of != row);
        sources.extend(others.map(|(_, cell)| cell));
        self.gathered = Some(part);
        let closing = sources.iter().copied().find(|&clock| self.cells.knows(clock, row));
        if !closing.is_some_and(|clock| self.check(clock, row, number)) {
            sources.iter().for_each(|&clock| self.learn(clock, row));
        }
        sources.clear();
        self.sources = sources;
    }
}

impl Version for Active {
    fn seen(&self) -> &Detections {
        &self.detections
    }

    fn detections(&mut self) -> &mut Detections {
        &mut self.detections
    }

    fn forget(&mut self) {
        let detections = std::mem::take(&mut self.detections);
        *self = Self { data_only: self.data_only, detections, ..Self::default() };
    }

    fn prefetch(&self, events: &[Event]) {
        if self.variables.len() < UNCACHED {
            return;
        }
        let mut sum = 0_u32;
        for event in events {
            if let Op::Read(variable) | Op::Write(variable) = event.op
                && let Some(variable) = self.variables.get(variable.index())
            {
                sum = sum.wrapping_add(variable.write);
            }
        }
        std::hint::black_box(sum);
    }

    fn start_event(&mut self) {
        self.gathered = None;
    }

    #[inline]
    fn remember(&mut self, event: &Event, number: EventNumber, row: Option<usize>) {
        match event.op {
            Op::Alloc(variable) => self.forget_variable(variable),
            Op::SplitVariable { from, to } => self.split_variable(from, to),
            Op::Depart(object) => self.change(object, |barrier| barrier.depart(event.thread)),
            Op::Exit => self.change_all(|barrier| barrier.leave(event.thread)),
            Op::Join(child) => self.change_all(|barrier| barrier.leave(child)),
            _ => {}
        }
        if let (Some(place), Some(row)) = (Place::of(event.op), row) {
            self.put(place, event.thread, row, number);
        }
    }

    fn depart_unseen(&mut self, object: SyncId) {
        self.change(object, Barrier::next_round);
    }

    fn gap(&mut self) {
        self.change_all(Barrier::gap);
    }

    fn end_transactions(&mut self, number: EventNumber) {
        for row in 0..self.threads.len() {
            self.end_transaction(row, number);
        }
    }
}

impl Visitor for Active {
    fn started(&mut self, row: usize) {
        let thread = entry(&mut self.threads, row);
        self.cells.release(std::mem::take(thread).clock);
        self.cells.grow(row);
    }

    fn is_relevant(&self, _row: Option<usize>, _source: &EventStamp) -> bool {
        !self.detections.stopped()
    }

    fn dependency(&mut self, dependency: &Dependency<'_>) {
        if self.detections.stopped() || self.data_only && !dependency.is_variable() {
            return;
        }
        let (source, row, number) = (dependency.source, dependency.row, dependency.sink.event());
        let place = Place::of_source(dependency);
        let clock = match place {
            // A join: the source is the child's last event.
            None => dependency.source_row().map(|child| self.threads[child].clock),
            Some(Place::Write(variable)) => self.variables.get(variable.index()).map(|v| v.write),
            Some(Place::Release(lock)) => self.locks.get(lock.index()).map(|lock| lock.release),
            Some(Place::Fork(child)) => self.forks.get(&child).copied(),
            Some(place) => return self.gather(place, source, row, number),
        };
        if let Some(clock) = clock.filter(|&clock| clock != EMPTY)
            && !self.check(clock, row, number)
        {
            self.learn(clock, row);
        }
    }

    fn begin(&mut self, row: usize, now: &EventStamp, _region: RegionId, depth: usize) {
        if depth > 0 || self.detections.stopped() {
            return;
        }
        let thread = &mut self.threads[row];
        thread.clock = self.cells.begin(thread.clock, row);
        thread.begin = *now;
    }

    fn end(&mut self, row: usize, number: EventNumber, depth: usize) {
        if depth == 0 {
            self.end_transaction(row, number);
        }
    }

    fn must_retain(&self, row: usize, _last: &EventStamp) -> bool {
        !self.detections.stopped() && !self.cells.is_empty(self.threads[row].clock)
    }

    fn released(&mut self, row: usize, lock: LockId, now: &EventStamp, _hold: EndedHold) {
        let shared = now.action() == Action::ReleaseShared;
        let place = if shared { Place::SharedReleases(lock) } else { Place::Release(lock) };
        self.put(place, now.thread(), row, now.event());
    }

    fn reset(&mut self, lock: LockId) {
        if let Some(lock) = self.locks.get_mut(lock.index()) {
            lock.clear(&mut self.cells);
        }
    }
}
