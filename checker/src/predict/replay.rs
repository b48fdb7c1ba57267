//! Another order of a window of events: some threads are held back, the others go on in the order of the trace as far
//! as synchronisation lets them.

use super::locks::{Locks, apply};
use super::window::{Step, Window};
use crate::event::{LockId, Op, VarId};
use rustc_hash::FxHashMap;

/// Gap with the access of another thread that would have to fall into it, by positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) left: u32,
    pub(super) remote: u32,
    pub(super) returned: u32,
}

/// State of another order.
pub(super) struct Replay<'a> {
    window: &'a Window,
    locks: Locks,
    /// For each thread the number of its events that were executed, among those in the window.
    next: Vec<usize>,
    start: u32,
    last_writes: FxHashMap<VarId, u32>,
    /// Reads that find another write than in the trace.
    changed: Vec<u32>,
    is_spoilt: bool,
    candidate: Candidate,
}

/// Returns the reads that find another write than in the trace, in an order in which the remote access falls into the
/// gap; `None` if no such order is found.
pub(super) fn certify(window: &Window, candidate: Candidate) -> Option<Vec<u32>> {
    let of = |position: u32| window.step(position);
    let (own, other) = (of(candidate.left), of(candidate.remote));
    // Each thread may be held back at the step itself, or before the outermost section around it; the one with the gap
    // also within it, where it may have released what it held.
    let again = of(candidate.returned).section.filter(|&at| at > candidate.left);
    let own_stops = [again, Some(candidate.left + 1), Some(candidate.returned), own.section];
    let other_stops = [Some(candidate.remote), other.section];
    for own_stop in own_stops.into_iter().flatten() {
        for other_stop in other_stops.into_iter().flatten() {
            let start = own_stop.min(other_stop);
            let replay = Replay::new(window, start, candidate);
            if let Some(changed) = replay.run([own.row, other.row], [own_stop, other_stop]) {
                return Some(changed);
            }
        }
    }
    None
}

impl<'a> Replay<'a> {
    fn new(window: &'a Window, start: u32, candidate: Candidate) -> Self {
        let next = window.rows.iter().map(|own| own.partition_point(|&at| at < start));
        Self {
            locks: window.locks_at(start),
            next: next.collect(),
            start,
            last_writes: FxHashMap::default(),
            changed: Vec::new(),
            is_spoilt: false,
            candidate,
            window,
        }
    }

    /// Runs all threads up to the later stop, but holds two of them back at theirs; then the first one up to the left
    /// end of the gap, the second one over the remote access, and the first one over the right end.
    fn run(mut self, [own, other]: [u32; 2], stops: [u32; 2]) -> Option<Vec<u32>> {
        let Candidate { left, remote, returned } = self.candidate;
        let mut is_blocked = vec![false; self.next.len()];
        for position in self.start..stops[0].max(stops[1]) {
            let row = self.window.step(position).row;
            let is_stopped =
                (row == own && position >= stops[0]) || (row == other && position >= stops[1]);
            if is_stopped || is_blocked[row as usize] {
                continue;
            }
            if !self.execute(row) {
                is_blocked[row as usize] = true;
            }
        }
        self.alone(own, left.max(stops[0].saturating_sub(1)))?;
        self.alone(other, remote)?;
        self.with_help(own, returned)?;
        (!self.is_spoilt).then_some(self.changed)
    }

    /// Executes a thread up to a step, that included.
    fn alone(&mut self, row: u32, until: u32) -> Option<()> {
        while self.pending(row).is_some_and(|position| position <= until) {
            self.execute(row).then_some(())?;
        }
        Some(())
    }

    /// Executes a thread up to a step, that included, and others where it has to wait for them.
    fn with_help(&mut self, row: u32, until: u32) -> Option<()> {
        while self.pending(row).is_some_and(|position| position <= until) {
            if self.execute(row) {
                continue;
            }
            let mut others: Vec<(u32, u32)> = (0..self.next.len() as u32)
                .filter(|&other| other != row)
                .filter_map(|other| Some((self.pending(other)?, other)))
                .collect();
            others.sort_unstable();
            others.into_iter().any(|(_, other)| self.execute(other)).then_some(())?;
        }
        Some(())
    }

    fn pending(&self, row: u32) -> Option<u32> {
        self.window.rows[row as usize].get(self.next[row as usize]).copied()
    }

    /// Executes the next step of a thread, if it can go on.
    fn execute(&mut self, row: u32) -> bool {
        let Some(position) = self.pending(row) else { return false };
        let step = self.window.step(position);
        if !self.is_enabled(step) {
            return false;
        }
        self.next[row as usize] += 1;
        self.note_data(position, step);
        apply(&mut self.locks, row, step.event.op);
        true
    }

    fn is_enabled(&self, step: &Step) -> bool {
        let keeps_out = |lock: LockId, is_shared: bool| {
            let holds = self.locks.get(&lock);
            holds
                .into_iter()
                .flatten()
                .any(|&(by, shared, _)| by != step.row && !(shared && is_shared))
        };
        let is_free = match step.event.op {
            Op::Acquire(lock) => !keeps_out(lock, false),
            Op::AcquireShared(lock) => !keeps_out(lock, true),
            _ => true,
        };
        let is_done = |&need: &u32| {
            let row = self.window.step(need).row as usize;
            need < self.start
                || self.window.rows[row][..self.next[row]].binary_search(&need).is_ok()
        };
        is_free && step.needs.iter().all(is_done)
    }

    fn note_data(&mut self, position: u32, step: &Step) {
        let Some((variable, reads, writes)) = step.access() else {
            match step.event.op {
                Op::Alloc(variable) | Op::SplitVariable { to: variable, .. } => {
                    self.last_writes.insert(variable, position);
                }
                _ => {}
            }
            return;
        };
        let found = self.last_writes.get(&variable).copied();
        let found = found.or_else(|| self.window.last_write(variable, self.start));
        let Candidate { left, remote, returned } = self.candidate;
        if [left, remote, returned].contains(&position) {
            // The memory must be the same: its life is that of the trace.
            let is_life = |write: Option<u32>| {
                write.is_some_and(|at| self.window.step(at).access().is_none())
            };
            self.is_spoilt |= is_life(found) && found != step.from;
        }
        if reads && found != step.from && position != remote && position != returned {
            self.changed.push(position);
        }
        if writes {
            self.last_writes.insert(variable, position);
        }
    }
}
