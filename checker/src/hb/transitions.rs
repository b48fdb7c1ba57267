//! State transitions of the engine: the effect of each event on its object, and the dependencies of the
//! event.

use super::clocks::Clocks;
use super::current_event::CurrentEvent;
use super::sink::Sink;
use super::stamp::{self, EventStamp};
use super::table::{Entry, ThreadTable};
use super::thread::{Mode, State, Thread, Threads};
use super::{Dependency, Engine, Visitor};
use crate::error::EventErrorKind;
use crate::event::{Event, EventNumber, Op, ThreadId, VarId};
use crate::finding::{Action, Object};

impl Engine {
    /// Consumes a read or a write, by far the most frequent events. Does nothing and returns `false` if the
    /// event needs `step_validated`.
    #[inline(always)]
    pub(super) fn access(
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
        if !thread.ready || !variables.has(variable) || number > stamp::MAX_EVENTS {
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
        if writes {
            thread.last_writes.add(variable, number);
        }
        let last_change = &mut thread.last_change;
        let done = variables.access(variable, now, writes, |source, applies, changes| {
            counts.dependencies += u64::from(applies);
            *last_change = if changes { number } else { *last_change };
            if applies & visitor.is_relevant(table.row(source.thread()), source) {
                visitor.dependency(&Dependency { source, sink, object, row, table, clocks });
            }
        });
        if !done {
            self.access_slow(row, variable, writes, visitor);
        }
        true
    }

    #[inline(never)]
    fn access_slow(
        &mut self,
        row: usize,
        variable: VarId,
        writes: bool,
        visitor: &mut impl Visitor,
    ) {
        let Self { counts, threads: Threads { table, rows, .. }, clocks, variables, .. } = self;
        let now = &rows[row].now;
        let changes = writes && variables.is_known_to_others(variable, now.thread());
        let (object, clocks) = (Object::Variable(variable), Some(&*clocks));
        let mut sink = AccessSink { visitor, now, object, row, table, clocks };
        counts.dependencies += variables.access_slow(variable, now, writes, table, &mut sink);
        if changes {
            let thread = &mut rows[row];
            thread.last_change = thread.now.event();
        }
    }

    /// Consumes a commuting update. Does nothing and returns `false` if the event needs `step_validated`.
    #[inline(never)]
    pub(super) fn commuting_update(
        &mut self,
        number: EventNumber,
        event: &Event,
        variable: VarId,
        visitor: &mut impl Visitor,
    ) -> bool {
        let Self { counts, threads: Threads { table, rows, .. }, clocks, variables, .. } = self;
        let Some(row) = table.row(event.thread) else { return false };
        let Some(thread) = rows.get_mut(row) else { return false };
        if !thread.ready || !variables.has(variable) || number > stamp::MAX_EVENTS {
            return false;
        }
        let (now, alone) = thread.advance(number, Action::CommutingUpdate, event);
        thread.last_writes.add(variable, number);
        counts.transactions += u64::from(alone);
        counts.unary_transactions += u64::from(alone);
        let (object, clocks) = (Object::Variable(variable), Some(&*clocks));
        let changes = variables.is_known_to_others(variable, event.thread);
        let mut sink = AccessSink { visitor, now: &now, object, row, table, clocks };
        counts.dependencies += variables.commuting_update(variable, &now, table, &mut sink);
        if changes {
            rows[row].last_change = number;
        }
        true
    }

    /// Validates and consumes an event of any kind.
    pub(super) fn apply(
        &mut self,
        number: u64,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> Result<(), EventErrorKind> {
        if let Op::Rest(region) | Op::Resume(region) = event.op {
            super::check_ids(event)?;
            visitor.accesses_rest(region, matches!(event.op, Op::Rest(_)), number);
            return Ok(());
        }
        let row = self.admit(number, event)?;
        if let Op::Follow(region) = event.op {
            visitor.follow(row, event.thread, region);
            return Ok(());
        }
        let id = event.thread;
        let Self { counts, threads, locks, lenient, .. } = self;
        let Threads { table, rows, .. } = threads;
        let thread = &rows[row];
        let action = match event.op {
            Op::Read(_) => Action::Read,
            Op::Write(_) => Action::Write,
            Op::Update(_) => Action::Update,
            Op::CommutingUpdate(_) => Action::CommutingUpdate,
            Op::Free(_) => Action::Free,
            // Nothing depends on a split or a reset, so that no report shows the action stored for them.
            Op::Alloc(_)
            | Op::SplitVariable { .. }
            | Op::Reset(_)
            | Op::Follow(_)
            | Op::Rest(_)
            | Op::Resume(_) => Action::Alloc,
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
                    return Err(EventErrorKind::DepartWithoutArrive(object));
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
            self.forked(row, number, event, action, visitor);
        }
        let done = match event.op {
            Op::Read(variable)
            | Op::Write(variable)
            | Op::Update(variable)
            | Op::Free(variable) => {
                self.variables.ensure(variable);
                self.access(number, event, variable, action, visitor)
            }
            Op::CommutingUpdate(variable) => {
                self.variables.ensure(variable);
                self.commuting_update(number, event, variable, visitor)
            }
            Op::Acquire(lock) => {
                self.locks.ensure(lock);
                self.step_fast(number, event, visitor)
            }
            _ => self.step_fast(number, event, visitor),
        };
        if !done {
            self.step_slow(row, number, event, action, first, visitor);
        }
        Ok(())
    }

    /// Consumes the begin or end of a region or of an exclusive critical section, the most frequent events
    /// after accesses. Does nothing and returns `false` for other events, and for those that need
    /// `step_validated`.
    #[inline(always)]
    pub(super) fn step_fast(
        &mut self,
        number: EventNumber,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> bool {
        let Self { counts, threads: Threads { table, rows, .. }, clocks, locks, .. } = self;
        let Some(row) = table.row(event.thread) else { return false };
        let Some(thread) = rows.get_mut(row) else { return false };
        if !thread.ready || number > stamp::MAX_EVENTS {
            return false;
        }
        match event.op {
            Op::Begin(region) if region.0 != u32::MAX => {
                let depth = thread.open.len();
                let (now, alone) = thread.advance(number, Action::Begin, event);
                counts.transactions += u64::from(alone);
                thread.open.push(region);
                visitor.begin(row, &now, region, depth);
            }
            Op::End(region) => {
                let Some(&innermost) = thread.open.last() else { return false };
                if region.is_some_and(|region| region != innermost) {
                    return false;
                }
                thread.advance(number, Action::End, event);
                thread.open.pop();
                visitor.last_change(row, thread.last_change);
                visitor.end(row, number, thread.open.len());
            }
            Op::Acquire(lock) if locks.has(lock) => {
                let (now, alone) = thread.advance(number, Action::Acquire, event);
                counts.transactions += u64::from(alone);
                counts.unary_transactions += u64::from(alone);
                if thread.hold(lock, locks.life(lock), Mode::Exclusive) {
                    visitor.acquired(row, lock, &now);
                    let (sink, object) = (&now, Object::Lock(lock));
                    let mut now = CurrentEvent { event: &now, row, table, clocks };
                    let mut dependencies = 0;
                    let dropped = locks.acquire(lock, &mut now, |source| {
                        dependencies += 1;
                        let clocks = None;
                        visitor.dependency(&Dependency {
                            source,
                            sink,
                            object,
                            row,
                            table,
                            clocks,
                        });
                    });
                    counts.dependencies += dependencies + dropped;
                }
            }
            Op::Release(lock) => {
                if thread.check_held(lock, locks.life(lock), Mode::Exclusive).is_err() {
                    return false;
                }
                let (now, alone) = thread.advance(number, Action::Release, event);
                counts.transactions += u64::from(alone);
                counts.unary_transactions += u64::from(alone);
                if let Some(since) = thread.release(lock, Mode::Exclusive) {
                    locks.release(lock, &CurrentEvent { event: &now, row, table, clocks });
                    visitor.released(row, lock, &now, thread.ended_hold(since));
                }
            }
            _ => return false,
        }
        true
    }

    /// Consumes the events that neither `access` nor `step_fast` has.
    fn step_slow(
        &mut self,
        row: usize,
        number: EventNumber,
        event: &Event,
        action: Action,
        first: bool,
        visitor: &mut impl Visitor,
    ) {
        let (now, alone) = self.threads.rows[row].advance(number, action, event);
        self.counts.transactions += u64::from(alone);
        self.counts.unary_transactions += u64::from(alone);
        let Self { counts, threads, clocks, variables, locks, syncs, .. } = self;
        let Threads { table, rows, .. } = threads;
        let thread = &mut rows[row];

        /// Reports a dependency of the current event to the visitor.
        macro_rules! report {
            ($source:expr, $object:expr) => {{
                counts.dependencies += 1;
                let (source, object, table) = ($source, $object, &*table);
                let clocks = None;
                visitor.dependency(&Dependency { source, sink: &now, object, row, table, clocks });
            }};
        }

        match event.op {
            Op::Alloc(variable) => variables.forget(variable),
            Op::SplitVariable { from, to } => variables.split(from, to),
            // An end that closes regions inside the named one too.
            Op::End(region) => {
                thread.close(region);
                visitor.last_change(row, thread.last_change);
                visitor.end(row, number, thread.open.len());
            }
            Op::AcquireShared(lock) => {
                if thread.hold(lock, locks.life(lock), Mode::Shared) {
                    visitor.acquired(row, lock, &now);
                    let mut now = CurrentEvent { event: &now, row, table, clocks };
                    locks.acquire_shared(lock, &mut now, |source| {
                        report!(source, Object::Lock(lock));
                    });
                }
            }
            Op::ReleaseShared(lock) => {
                if let Some(since) = thread.release(lock, Mode::Shared) {
                    locks.release_shared(lock, &CurrentEvent { event: &now, row, table, clocks });
                    visitor.released(row, lock, &now, thread.ended_hold(since));
                }
            }
            Op::Reset(lock) => {
                locks.forget(lock);
                visitor.reset(lock);
            }
            Op::Signal(object) => {
                visitor.notified(row, &now);
                syncs.signal(object, &CurrentEvent { event: &now, row, table, clocks });
            }
            Op::Wait(object) => {
                let mut now = CurrentEvent { event: &now, row, table, clocks };
                let dropped = syncs.wait(object, &mut now, |source| {
                    report!(source, Object::Sync(object));
                });
                counts.dependencies += dropped;
                if dropped > 0 {
                    visitor.waited(row, now.event);
                }
            }
            Op::Arrive(object) => {
                visitor.notified(row, &now);
                if !thread.inside.contains(&object) {
                    thread.inside.push(object);
                }
                syncs.arrive(object, &CurrentEvent { event: &now, row, table, clocks });
            }
            Op::Depart(object) => {
                thread.inside.retain(|&inside| inside != object);
                let mut now = CurrentEvent { event: &now, row, table, clocks };
                let dropped = syncs.depart(object, &mut now, |source| {
                    report!(source, Object::Sync(object));
                });
                counts.dependencies += dropped;
                if dropped > 0 {
                    visitor.waited(row, now.event);
                }
            }
            Op::Fork(child) => {
                visitor.notified(row, &now);
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
                        let fork = &rows[row].fork;
                        let known = first && fork.is_some() && fork.event() == last.event();
                        if !known {
                            report!(&last, Object::Thread(child));
                        }
                    }
                    self.retire(child_row, number, State::Joined, visitor);
                }
                // It has ended, and the visitor did not retain it.
                Entry::Ended => {
                    counts.dependencies += 1;
                    table.set(child, Entry::Joined);
                    visitor.waited(row, &now);
                }
                Entry::Unseen | Entry::Joined => table.set(child, Entry::Joined),
            },
            Op::Exit => {
                visitor.exits(row);
                self.retire(row, number, State::Ended, visitor);
            }
            Op::Read(_)
            | Op::Write(_)
            | Op::Update(_)
            | Op::CommutingUpdate(_)
            | Op::Free(_)
            | Op::Begin(_)
            | Op::Follow(_)
            | Op::Rest(_)
            | Op::Resume(_)
            | Op::Acquire(_)
            | Op::Release(_) => {}
        }
    }
}

/// The current access; passes its dependencies to the visitor.
struct AccessSink<'a, V> {
    visitor: &'a mut V,
    now: &'a EventStamp,
    object: Object,
    row: usize,
    table: &'a ThreadTable,
    clocks: Option<&'a Clocks>,
}

impl<V: Visitor> Sink for AccessSink<'_, V> {
    #[inline]
    fn is_relevant(&self, source: &EventStamp) -> bool {
        self.visitor.is_relevant(self.table.row(source.thread()), source)
    }

    fn depends_on(&mut self, source: &EventStamp) {
        let &mut Self { now: sink, object, row, table, clocks, .. } = self;
        let dependency = Dependency { source, sink, object, row, table, clocks };
        self.visitor.dependency(&dependency);
    }
}

fn check_fork(
    table: &ThreadTable,
    rows: &[Thread],
    parent: ThreadId,
    child: ThreadId,
) -> Result<(), EventErrorKind> {
    if parent == child {
        return Err(EventErrorKind::ForkOfSelf);
    }
    match table.get(child) {
        Entry::Unseen => Ok(()),
        Entry::Row(row) if rows[row].state == State::Running => match &rows[row] {
            thread if thread.fork.is_some() => Err(EventErrorKind::ForkedTwice(child)),
            thread if thread.now.is_some() => Err(EventErrorKind::ForkAfterAction(child)),
            _ => Ok(()),
        },
        Entry::Row(_) | Entry::Ended | Entry::Joined => Err(EventErrorKind::ForkAfterAction(child)),
    }
}

fn check_join(
    table: &ThreadTable,
    rows: &[Thread],
    parent: ThreadId,
    child: ThreadId,
) -> Result<(), EventErrorKind> {
    if parent == child {
        return Err(EventErrorKind::JoinOfSelf);
    }
    match table.get(child) {
        Entry::Joined => Err(EventErrorKind::JoinedTwice(child)),
        Entry::Row(row) if rows[row].state == State::Joined => {
            Err(EventErrorKind::JoinedTwice(child))
        }
        Entry::Row(_) | Entry::Ended | Entry::Unseen => Ok(()),
    }
}
