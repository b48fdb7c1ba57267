//! All interleavings of a small trace, by brute force under its synchronisation, and the definitions of conflict- and
//! view-atomicity and of deadlocks over them; with a mistake at will, which a comparison must notice.

use checker::event::{Event, Op, ThreadId, VarId};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Mistake of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// Locks keep nobody out.
    NoLocks,
    /// Shared holds exclude one another.
    SharedExcludes,
    /// Forks, joins, signals and barriers make no order.
    NoOrder,
    /// Serial traces may reverse the units of a thread.
    NoProgramOrder,
    /// Two reads conflict.
    ReadsConflict,
    /// Final values do not matter.
    NoFinalWrites,
}

/// Interleavings of a trace.
pub struct Interleavings {
    events: Vec<Event>,
    /// Events of each thread.
    threads: Vec<Vec<usize>>,
    /// Thread of each event, as an index.
    thread: Vec<usize>,
    /// Events that have to come first in any interleaving, of other threads.
    needs: Vec<Vec<usize>>,
    /// Unit of each access.
    unit: Vec<Option<usize>>,
    units: usize,
    /// Units that precede others in any interleaving.
    order: Vec<u64>,
    mistake: Mistake,
}

type Counters = Vec<u8>;

/// Set of threads that wait for one another's locks.
pub type Ring = BTreeSet<ThreadId>;

pub fn is_order(op: Op) -> bool {
    matches!(
        op,
        Op::Fork(_) | Op::Join(_) | Op::Signal(_) | Op::Wait(_) | Op::Arrive(_) | Op::Depart(_)
    )
}

fn access(op: Op) -> Option<(VarId, bool, bool)> {
    match op {
        Op::Read(x) => Some((x, true, false)),
        Op::Write(x) => Some((x, false, true)),
        Op::Update(x) => Some((x, true, true)),
        _ => None,
    }
}

impl Interleavings {
    pub fn new(events: &[Event], mistake: Mistake) -> Self {
        let ids: BTreeSet<ThreadId> = events.iter().map(|event| event.thread).collect();
        let ids: Vec<ThreadId> = ids.into_iter().collect();
        let thread: Vec<usize> = events
            .iter()
            .map(|event| ids.iter().position(|id| *id == event.thread).expect("a thread"))
            .collect();
        let threads: Vec<Vec<usize>> = (0..ids.len())
            .map(|own| (0..events.len()).filter(|&event| thread[event] == own).collect())
            .collect();
        let needs = if mistake == Mistake::NoOrder {
            vec![Vec::new(); events.len()]
        } else {
            needs(events)
        };
        let (unit, units) = units(events, &thread);
        let mut all = Self {
            events: events.to_vec(),
            threads,
            thread,
            needs,
            unit,
            units,
            order: Vec::new(),
            mistake,
        };
        all.order = all.unit_order();
        all
    }

    pub fn units(&self) -> usize {
        self.units
    }

    /// Returns for each unit a bit for each of its successors.
    fn unit_order(&self) -> Vec<u64> {
        let count = self.events.len();
        let mut before = vec![vec![false; count]; count];
        for later in 0..count {
            let own = &self.threads[self.thread[later]];
            let previous = own.iter().copied().rfind(|&event| event < later);
            for first in self.needs[later].iter().copied().chain(previous) {
                before[first][later] = true;
                for row in &mut before {
                    row[later] |= row[first];
                }
            }
        }
        let mut order = vec![0; self.units];
        for (first, row) in before.iter().enumerate() {
            for (later, &is_before) in row.iter().enumerate() {
                let same = self.thread[first] == self.thread[later];
                let (Some(one), Some(other)) = (self.unit[first], self.unit[later]) else {
                    continue;
                };
                let is_left_out = same && self.mistake == Mistake::NoProgramOrder;
                if is_before && one != other && !is_left_out {
                    order[one] |= 1 << other;
                }
            }
        }
        order
    }

    fn done(&self, counters: &Counters, event: usize) -> bool {
        let own = &self.threads[self.thread[event]];
        own[..counters[self.thread[event]].into()].contains(&event)
    }

    fn next(&self, counters: &Counters, thread: usize) -> Option<usize> {
        self.threads[thread].get(usize::from(counters[thread])).copied()
    }

    /// Returns the locks that a thread holds, with their modes.
    fn held(&self, counters: &Counters, thread: usize) -> Vec<(u32, bool)> {
        let mut held = Vec::new();
        for &event in &self.threads[thread][..counters[thread].into()] {
            match self.events[event].op {
                Op::Acquire(lock) => held.push((lock.0, false)),
                Op::AcquireShared(lock) => held.push((lock.0, true)),
                Op::Release(lock) => {
                    let index = held.iter().rposition(|hold| *hold == (lock.0, false));
                    held.remove(index.expect("held"));
                }
                Op::ReleaseShared(lock) => {
                    let index = held.iter().rposition(|hold| *hold == (lock.0, true));
                    held.remove(index.expect("held"));
                }
                _ => {}
            }
        }
        held
    }

    /// Returns the threads that keep another one from acquiring the lock that it wants next.
    fn keepers(&self, counters: &Counters, thread: usize) -> Vec<usize> {
        let (lock, is_shared) = match self.next(counters, thread).map(|event| self.events[event].op)
        {
            Some(Op::Acquire(lock)) => (lock.0, false),
            Some(Op::AcquireShared(lock)) => (lock.0, true),
            _ => return Vec::new(),
        };
        if self.mistake == Mistake::NoLocks {
            return Vec::new();
        }
        let both = self.mistake == Mistake::SharedExcludes;
        let keeps = |&other: &usize| {
            let held = self.held(counters, other);
            let excludes =
                |&(held, with): &(u32, bool)| held == lock && (both || !(with && is_shared));
            other != thread && held.iter().any(excludes)
        };
        (0..self.threads.len()).filter(keeps).collect()
    }

    fn is_enabled(&self, counters: &Counters, thread: usize) -> bool {
        let Some(next) = self.next(counters, thread) else { return false };
        self.needs[next].iter().all(|&need| self.done(counters, need))
            && self.keepers(counters, thread).is_empty()
    }

    fn start(&self) -> Counters {
        vec![0; self.threads.len()]
    }

    fn conflict(&self, one: usize, other: usize) -> bool {
        match (access(self.events[one].op), access(self.events[other].op)) {
            (Some((x, _, first)), Some((y, _, second))) => {
                x == y && (first || second || self.mistake == Mistake::ReadsConflict)
            }
            _ => false,
        }
    }

    /// Returns whether the order of conflicting accesses is the order in a serial trace, in every interleaving.
    pub fn is_conflict_atomic(&self) -> bool {
        let mut pending = vec![(self.start(), self.order.clone())];
        let mut visited = HashSet::new();
        while let Some((counters, graph)) = pending.pop() {
            for thread in 0..self.threads.len() {
                if !self.is_enabled(&counters, thread) {
                    continue;
                }
                let event = self.next(&counters, thread).expect("enabled");
                let mut graph = graph.clone();
                if let Some(unit) = self.unit[event] {
                    for other in 0..self.events.len() {
                        if self.done(&counters, other) && self.conflict(other, event) {
                            let from = self.unit[other].expect("an access");
                            graph[from] |= u64::from(from != unit) << unit;
                        }
                    }
                    if is_cyclic(&graph) {
                        return false;
                    }
                }
                let mut counters = counters.clone();
                counters[thread] += 1;
                let state = (counters, graph);
                if visited.insert(state.clone()) {
                    pending.push(state);
                }
            }
        }
        true
    }

    /// Returns whether all reads and the final values are the same as in a serial trace, in every interleaving.
    pub fn is_view_atomic(&self) -> bool {
        let serial = self.serial_views();
        let mut pending = vec![(self.start(), View::default())];
        let mut visited = HashSet::new();
        while let Some((counters, view)) = pending.pop() {
            if (0..self.threads.len()).all(|thread| self.next(&counters, thread).is_none())
                && !serial.contains(&view.seen(self.mistake))
            {
                return false;
            }
            for thread in 0..self.threads.len() {
                if !self.is_enabled(&counters, thread) {
                    continue;
                }
                let mut state = (counters.clone(), view.clone());
                state.1.event(self.next(&counters, thread).expect("enabled"), &self.events);
                state.0[thread] += 1;
                if visited.insert(state.clone()) {
                    pending.push(state);
                }
            }
        }
        true
    }

    fn serial_views(&self) -> HashSet<View> {
        let mut of_units = vec![Vec::new(); self.units];
        for (event, unit) in self.unit.iter().enumerate() {
            unit.iter().for_each(|&unit| of_units[unit].push(event));
        }
        let mut found = HashSet::new();
        let mut pending = vec![(0_u64, View::default())];
        let mut visited = HashSet::new();
        while let Some((done, view)) = pending.pop() {
            if done.count_ones() as usize == self.units {
                found.insert(view.seen(self.mistake));
            }
            for (unit, events) in of_units.iter().enumerate() {
                let is_first = (0..self.units)
                    .all(|other| self.order[other] >> unit & 1 == 0 || done >> other & 1 == 1);
                if done >> unit & 1 == 1 || !is_first {
                    continue;
                }
                let mut view = view.clone();
                events.iter().for_each(|&event| view.event(event, &self.events));
                let state = (done | 1 << unit, view);
                if visited.insert(state.clone()) {
                    pending.push(state);
                }
            }
        }
        found
    }

    /// Returns all sets of threads that come to wait for one another's locks in a ring.
    pub fn rings(&self) -> BTreeSet<Ring> {
        let mut rings = BTreeSet::new();
        let mut pending = vec![self.start()];
        let mut visited = HashSet::new();
        while let Some(counters) = pending.pop() {
            self.rings_at(&counters, &mut rings);
            for thread in 0..self.threads.len() {
                if self.is_enabled(&counters, thread) {
                    let mut counters = counters.clone();
                    counters[thread] += 1;
                    if visited.insert(counters.clone()) {
                        pending.push(counters);
                    }
                }
            }
        }
        rings
    }

    /// Returns whether there is an interleaving in which three events come in this order.
    pub fn can_come_between(&self, left: usize, middle: usize, right: usize) -> bool {
        let mut pending = vec![self.start()];
        let mut visited = HashSet::new();
        while let Some(counters) = pending.pop() {
            if self.done(&counters, right) {
                return true;
            }
            for thread in 0..self.threads.len() {
                let next = self.next(&counters, thread);
                let is_early = next == Some(middle) && !self.done(&counters, left)
                    || next == Some(right) && !self.done(&counters, middle);
                if self.is_enabled(&counters, thread) && !is_early {
                    let mut counters = counters.clone();
                    counters[thread] += 1;
                    if visited.insert(counters.clone()) {
                        pending.push(counters);
                    }
                }
            }
        }
        false
    }

    fn rings_at(&self, counters: &Counters, rings: &mut BTreeSet<Ring>) {
        for first in 0..self.threads.len() {
            let mut paths = vec![vec![first]];
            while let Some(path) = paths.pop() {
                for keeper in self.keepers(counters, path[path.len() - 1]) {
                    if keeper == first {
                        let id = |&thread: &usize| self.events[self.threads[thread][0]].thread;
                        rings.insert(path.iter().map(id).collect());
                    } else if !path.contains(&keeper) {
                        paths.push(path.iter().copied().chain([keeper]).collect());
                    }
                }
            }
        }
    }
}

/// Write that each read has found, and the last write of each variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct View {
    reads: BTreeMap<usize, Option<usize>>,
    last: BTreeMap<VarId, usize>,
}

impl View {
    fn event(&mut self, event: usize, events: &[Event]) {
        let Some((variable, reads, writes)) = access(events[event].op) else { return };
        if reads {
            self.reads.insert(event, self.last.get(&variable).copied());
        }
        if writes {
            self.last.insert(variable, event);
        }
    }

    fn seen(&self, mistake: Mistake) -> Self {
        let last =
            if mistake == Mistake::NoFinalWrites { BTreeMap::new() } else { self.last.clone() };
        Self { last, reads: self.reads.clone() }
    }
}

fn is_cyclic(graph: &[u64]) -> bool {
    let mut reach = graph.to_vec();
    for middle in 0..reach.len() {
        let from_middle = reach[middle];
        reach.iter_mut().filter(|row| **row >> middle & 1 == 1).for_each(|row| *row |= from_middle);
    }
    reach.iter().enumerate().any(|(unit, row)| row >> unit & 1 == 1)
}

/// Returns for each event the events of other threads that must come first.
fn needs(events: &[Event]) -> Vec<Vec<usize>> {
    let mut rounds: BTreeMap<u32, (u32, BTreeMap<ThreadId, u32>)> = BTreeMap::new();
    let mut arrivals: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    let mut departs = Vec::new();
    let mut needs = vec![Vec::new(); events.len()];
    for (index, event) in events.iter().enumerate() {
        let of = |thread: ThreadId| {
            events
                .iter()
                .enumerate()
                .filter(move |(_, event)| event.thread == thread)
                .map(|(at, _)| at)
        };
        match event.op {
            Op::Fork(child) => of(child).take(1).for_each(|first| needs[first].push(index)),
            Op::Join(child) => needs[index].extend(of(child).filter(|&at| at < index).max()),
            Op::Wait(object) => {
                needs[index].extend((0..index).filter(|&at| events[at].op == Op::Signal(object)));
            }
            Op::Arrive(object) => {
                let (round, inside) = rounds.entry(object.0).or_default();
                inside.insert(event.thread, *round);
                arrivals.entry((object.0, *round)).or_default().push(index);
            }
            Op::Depart(object) => {
                let (round, inside) = rounds.entry(object.0).or_default();
                let own = inside.remove(&event.thread).expect("arrived");
                *round = (*round).max(own + 1);
                departs.push((index, (object.0, own)));
            }
            _ => {}
        }
    }
    for (index, round) in departs {
        needs[index].extend(arrivals[&round].iter().copied());
    }
    needs
}

/// Returns the unit of each access, and their number: transactions, split where they order threads, and single
/// accesses outside of them.
fn units(events: &[Event], threads: &[usize]) -> (Vec<Option<usize>>, usize) {
    let mut current: BTreeMap<usize, (u32, Option<usize>)> = BTreeMap::new();
    let mut next = 0;
    let units = events.iter().zip(threads).map(|(event, &thread)| {
        let (depth, unit) = current.entry(thread).or_default();
        match event.op {
            Op::Begin(_) => *depth += 1,
            Op::End(_) => *depth -= 1,
            _ => {}
        }
        if is_order(event.op) || *depth == 0 {
            *unit = None;
        }
        access(event.op)?;
        let own = *unit.get_or_insert_with(|| {
            next += 1;
            next - 1
        });
        if *depth == 0 {
            *unit = None;
        }
        Some(own)
    });
    let units = units.collect();
    (units, next)
}
