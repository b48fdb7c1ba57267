//! Events of the trace that are remembered, with what another order of them depends on.

use super::locks::{Locks, apply};
use crate::event::{Event, EventNumber, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Events between two points at which the locks held are remembered.
const INTERVAL: u32 = 1 << 10;

/// Lock that is held, since its acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) lock: LockId,
    pub(super) is_shared: bool,
    since: EventNumber,
    depth: u32,
}

/// Event of the window.
pub(super) struct Step {
    pub(super) event: Event,
    pub(super) row: u32,
    /// Executions of regions that an access belongs to, outermost first: their begins and regions.
    pub(super) open: Executions,
    /// Locks held, for accesses.
    pub(super) holds: Arc<[Hold]>,
    /// Acquisition of the first of these, if it is in the window.
    pub(super) section: Option<u32>,
    /// Write that an access finds, if it is in the window.
    pub(super) from: Option<u32>,
    /// Events of other threads in the window that come first in any order.
    pub(super) needs: Box<[u32]>,
    /// Life of the variable.
    pub(super) life: u32,
}

impl Step {
    /// Returns the variable of an access, and whether it reads and writes.
    pub(super) fn access(&self) -> Option<(VarId, bool, bool)> {
        match self.event.op {
            Op::Read(variable) => Some((variable, true, false)),
            Op::Write(variable) | Op::Free(variable) => Some((variable, false, true)),
            Op::Update(variable) | Op::CommutingUpdate(variable) => Some((variable, true, true)),
            _ => None,
        }
    }

    /// Returns whether two accesses to one variable conflict.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let kinds = (self.event.op, other.event.op);
        !matches!(
            kinds,
            (Op::Read(_), Op::Read(_)) | (Op::CommutingUpdate(_), Op::CommutingUpdate(_))
        )
    }

    /// Returns the region of the innermost execution that two accesses of a thread belong to.
    pub(super) fn spanning(&self, later: &Self) -> Option<RegionId> {
        let pairs = self.open.iter().zip(&later.open[..]);
        pairs.take_while(|(one, other)| one == other).last().map(|(one, _)| one.1)
    }

    /// Returns the locks held from this access to a later one of the thread.
    pub(super) fn held_until(&self, later: &Self) -> impl Iterator<Item = &Hold> {
        let is_same = |hold: &&Hold| {
            later.holds.iter().any(|other| other.lock == hold.lock && other.since == hold.since)
        };
        self.holds.iter().filter(is_same)
    }
}

/// Executions of regions, outermost first: their begins and regions.
pub(super) type Executions = Arc<[(EventNumber, RegionId)]>;

#[derive(Default)]
struct Thread {
    row: u32,
    holds: Vec<Hold>,
    shared: Option<Arc<[Hold]>>,
    open: Vec<(EventNumber, RegionId)>,
    shared_open: Option<Executions>,
    /// Event that started it, until its first one.
    fork: Option<EventNumber>,
    last: Option<EventNumber>,
}

#[derive(Default)]
struct Barrier {
    round: u32,
    inside: FxHashMap<ThreadId, u32>,
    arrivals: FxHashMap<u32, Vec<EventNumber>>,
}

/// A window of the trace, and its state at the end.
#[derive(Default)]
pub(super) struct Window {
    pub(super) first: EventNumber,
    pub(super) steps: Vec<Step>,
    /// Events of each thread.
    pub(super) rows: Vec<Vec<u32>>,
    writes: FxHashMap<VarId, Vec<u32>>,
    checkpoints: Vec<Locks>,
    locks: Locks,
    threads: FxHashMap<ThreadId, Thread>,
    signals: FxHashMap<SyncId, FxHashMap<ThreadId, EventNumber>>,
    barriers: FxHashMap<SyncId, Barrier>,
    lives: FxHashMap<VarId, u32>,
    nothing: Arc<[Hold]>,
    no_region: Executions,
}

impl Window {
    pub(super) fn step(&self, position: u32) -> &Step {
        &self.steps[position as usize]
    }

    /// Returns the locks held before an event.
    pub(super) fn locks_at(&self, position: u32) -> Locks {
        let mut locks = self.checkpoints[(position / INTERVAL) as usize].clone();
        for at in position / INTERVAL * INTERVAL..position {
            let step = self.step(at);
            apply(&mut locks, step.row, step.event.op);
        }
        locks
    }

    /// Returns the last write to a variable, or begin of its life, before an event.
    pub(super) fn last_write(&self, variable: VarId, before: u32) -> Option<u32> {
        let writes = self.writes.get(&variable)?;
        let index = writes.partition_point(|&at| at < before).checked_sub(1)?;
        Some(writes[index])
    }

    /// Adds an event.
    pub(super) fn add(&mut self, event: &Event) {
        let position = self.steps.len() as u32;
        let number = self.first + u64::from(position);
        let rows = &mut self.rows;
        let thread = self.threads.entry(event.thread).or_insert_with(|| {
            rows.push(Vec::new());
            Thread { row: rows.len() as u32 - 1, ..Thread::default() }
        });
        let row = thread.row;
        rows[row as usize].push(position);
        let fork = thread.fork.take();
        thread.last = Some(number);
        let mut needs: Vec<EventNumber> = fork.into_iter().collect();
        self.track(event, number, &mut needs);
        let first = self.first;
        let in_window = |number: EventNumber| Some(number.checked_sub(first)? as u32);
        let needs =
            needs.into_iter().filter_map(in_window).filter(|&need| need != position).collect();
        let is_access = matches!(
            event.op,
            Op::Read(_) | Op::Write(_) | Op::Update(_) | Op::CommutingUpdate(_) | Op::Free(_)
        );
        let (holds, open) = match self.threads.get_mut(&event.thread) {
            Some(thread) if is_access => thread.state(),
            _ => (self.nothing.clone(), self.no_region.clone()),
        };
        let section = holds.iter().map(|hold| hold.since).min().and_then(in_window);
        let mut step =
            Step { event: *event, row, open, holds, section, from: None, needs, life: 0 };
        if position.is_multiple_of(INTERVAL) {
            self.checkpoints.push(self.locks.clone());
        }
        apply(&mut self.locks, row, event.op);
        let writes = match step.access() {
            Some((variable, _, writes)) => {
                step.life = self.lives.get(&variable).copied().unwrap_or(0);
                step.from = self.writes.get(&variable).and_then(|writes| writes.last().copied());
                writes.then_some(variable)
            }
            None => match event.op {
                Op::Alloc(variable) | Op::SplitVariable { to: variable, .. } => {
                    *self.lives.entry(variable).or_default() += 1;
                    Some(variable)
                }
                _ => None,
            },
        };
        writes
            .into_iter()
            .for_each(|variable| self.writes.entry(variable).or_default().push(position));
        self.steps.push(step);
    }

    /// Follows what a thread holds and has open, and the events that must come before this one.
    fn track(&mut self, event: &Event, number: EventNumber, needs: &mut Vec<EventNumber>) {
        let id = event.thread;
        let Some(thread) = self.threads.get_mut(&id) else { return };
        match event.op {
            Op::Acquire(lock) => thread.acquire(lock, false, number),
            Op::AcquireShared(lock) => thread.acquire(lock, true, number),
            Op::Release(lock) => thread.release(lock, false),
            Op::ReleaseShared(lock) => thread.release(lock, true),
            Op::Begin(region) => {
                thread.open.push((number, region));
                thread.shared_open = None;
            }
            Op::End(named) => {
                let is_it =
                    |(_, open): &(EventNumber, RegionId)| named.is_none_or(|name| name == *open);
                let index = thread.open.iter().rposition(is_it);
                thread.open.truncate(index.unwrap_or(thread.open.len()));
                thread.shared_open = None;
            }
            Op::Reset(lock) => {
                for thread in self.threads.values_mut() {
                    thread.holds.retain(|hold| hold.lock != lock);
                    thread.shared = None;
                }
            }
            Op::Fork(child) if child != id => {
                let rows = &mut self.rows;
                let child = self.threads.entry(child).or_insert_with(|| {
                    rows.push(Vec::new());
                    Thread { row: rows.len() as u32 - 1, ..Thread::default() }
                });
                if child.last.is_none() {
                    child.fork = Some(number);
                }
            }
            Op::Join(ended) => {
                needs.extend(self.threads.get(&ended).and_then(|thread| thread.last));
            }
            Op::Signal(object) => drop(self.signals.entry(object).or_default().insert(id, number)),
            Op::Wait(object) => {
                needs.extend(self.signals.get(&object).into_iter().flat_map(|of| of.values()));
            }
            Op::Arrive(object) => {
                let barrier = self.barriers.entry(object).or_default();
                barrier.inside.insert(id, barrier.round);
                barrier.arrivals.entry(barrier.round).or_default().push(number);
            }
            Op::Depart(object) => {
                let barrier = self.barriers.entry(object).or_default();
                let Some(round) = barrier.inside.remove(&id) else { return };
                barrier.round = barrier.round.max(round + 1);
                needs.extend(barrier.arrivals.get(&round).into_iter().flatten());
                if !barrier.inside.values().any(|&other| other == round) {
                    barrier.arrivals.remove(&round);
                }
            }
            _ => {}
        }
    }

    /// Forgets the events, and the threads that have ended or done nothing in the window.
    pub(super) fn clear(&mut self) {
        self.first += self.steps.len() as u64;
        self.steps.clear();
        self.writes.clear();
        self.checkpoints.clear();
        self.rows.iter_mut().for_each(Vec::clear);
    }

    /// Notes that events were lost.
    pub(super) fn gap(&mut self) {
        self.locks.clear();
        for thread in self.threads.values_mut() {
            thread.holds.clear();
            thread.open.clear();
            (thread.shared, thread.shared_open) = (None, None);
        }
    }
}

impl Thread {
    /// Returns what it holds, and the executions that it is in.
    fn state(&mut self) -> (Arc<[Hold]>, Executions) {
        let Self { holds, shared, open, shared_open, .. } = self;
        let holds = shared.get_or_insert_with(|| Arc::from(&holds[..])).clone();
        (holds, shared_open.get_or_insert_with(|| Arc::from(&open[..])).clone())
    }

    fn acquire(&mut self, lock: LockId, is_shared: bool, number: EventNumber) {
        let is_it = |hold: &&mut Hold| hold.lock == lock && hold.is_shared == is_shared;
        match self.holds.iter_mut().find(is_it) {
            Some(hold) => hold.depth += 1,
            None => self.holds.push(Hold { lock, is_shared, since: number, depth: 1 }),
        }
        self.shared = None;
    }

    fn release(&mut self, lock: LockId, is_shared: bool) {
        let is_it = |hold: &Hold| hold.lock == lock && hold.is_shared == is_shared;
        if let Some(index) = self.holds.iter().rposition(is_it) {
            self.holds[index].depth -= 1;
            if self.holds[index].depth == 0 {
                self.holds.remove(index);
            }
            self.shared = None;
        }
    }
}
