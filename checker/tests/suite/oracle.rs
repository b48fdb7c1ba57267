//! Oracle: dependencies, happens-before and violations by their definitions, by brute force over all pairs
//! and triples of events. It shares nothing with the engine but the types of events and findings.

use checker::event::{Event, Op, RegionId, ThreadId, VarId};
use checker::finding::{Edge, Instance, Object, Tx, Violation};
use checker::{Regions, Relation};
use std::collections::{BTreeMap, BTreeSet};

/// An execution of a region, over event positions; `end` is the position of its last event.
pub struct Execution {
    pub region: RegionId,
    pub thread: ThreadId,
    pub begin: usize,
    pub end: usize,
    pub depth: usize,
}

type Matrix = Vec<Vec<bool>>;

pub struct Oracle {
    pub events: Vec<Event>,
    /// Transaction of each event.
    pub tx: Vec<Tx>,
    pub executions: Vec<Execution>,
    pub dependencies: BTreeMap<(usize, usize), Object>,
    /// Outermost acquires and releases, and resets.
    pub outermost: Vec<bool>,
    full: Matrix,
    data: Matrix,
    sync: Matrix,
}

impl Oracle {
    pub fn new(events: &[Event]) -> Self {
        let (tx, executions) = transactions(events);
        let outermost = outermost(events);
        let dependencies = dependencies(events, &outermost);
        let is_variable = |object: &Object| matches!(object, Object::Variable(_));
        let closed = |keep: &dyn Fn(&Object) -> bool| {
            closure(events, dependencies.iter().filter(|(_, o)| keep(o)).map(|(&pair, _)| pair))
        };
        let full = closed(&|_| true);
        let data = closed(&is_variable);
        let sync = closed(&|object| !is_variable(object));
        Self { events: events.to_vec(), tx, executions, outermost, full, data, sync, dependencies }
    }

    /// Returns whether the first event happens before the second, or is the second.
    pub fn happens_before(&self, relation: Relation, first: usize, second: usize) -> bool {
        match relation {
            Relation::Full => self.full[first][second],
            Relation::Data => self.data[first][second],
        }
    }

    /// Returns whether synchronisation and program order alone order the two events.
    pub fn synchronised(&self, first: usize, second: usize) -> bool {
        self.sync[first][second]
    }

    fn in_relation(object: &Object, relation: Relation) -> bool {
        relation == Relation::Full || matches!(object, Object::Variable(_))
    }

    /// Returns whether the second transaction follows the first directly: by a dependency or in program
    /// order.
    pub fn is_edge(&self, relation: Relation, first: Tx, second: Tx) -> bool {
        let program_order = first.thread == second.thread && first.ordinal < second.ordinal;
        let mut dependencies =
            self.dependencies.iter().filter(|(_, o)| Self::in_relation(o, relation));
        program_order
            || dependencies.any(|(&(a, b), _)| self.tx[a] == first && self.tx[b] == second)
    }

    /// Returns whether the graph of transactions has no cycle: they can be removed one by one, each time
    /// one that follows no other.
    pub fn serializable(&self, relation: Relation) -> bool {
        let mut left: Vec<Tx> = Vec::new();
        for &tx in &self.tx {
            if !left.contains(&tx) {
                left.push(tx);
            }
        }
        let mut edges: BTreeSet<(u64, u64)> = BTreeSet::new();
        for (&(a, b), object) in &self.dependencies {
            if Self::in_relation(object, relation) {
                edges.insert((self.tx[a].begin_event, self.tx[b].begin_event));
            }
        }
        for first in &left {
            for second in left.iter().filter(|tx| tx.thread == first.thread) {
                if first.ordinal < second.ordinal {
                    edges.insert((first.begin_event, second.begin_event));
                }
            }
        }
        loop {
            let before = left.len();
            let sinks: BTreeSet<u64> = edges.iter().map(|&(_, sink)| sink).collect();
            left.retain(|tx| sinks.contains(&tx.begin_event));
            edges.retain(|(source, _)| left.iter().any(|tx| tx.begin_event == *source));
            if left.len() == before {
                return left.is_empty();
            }
        }
    }

    pub fn instances(&self, relation: Relation, regions: Regions) -> BTreeSet<Instance> {
        let mut instances = BTreeSet::new();
        for (&(source, sink), object) in &self.dependencies {
            if !Self::in_relation(object, relation) {
                continue;
            }
            for execution in &self.executions {
                let checked = execution.depth == 0 || regions == Regions::All;
                let inside = execution.thread == self.events[sink].thread
                    && (execution.begin..=execution.end).contains(&sink);
                if checked && inside && self.happens_before(relation, execution.begin, source) {
                    instances.insert(Instance {
                        begin_event: execution.begin as u64,
                        trigger_event: sink as u64,
                        source_event: source as u64,
                    });
                }
            }
        }
        instances
    }
}

fn transactions(events: &[Event]) -> (Vec<Tx>, Vec<Execution>) {
    let mut executions = Vec::new();
    let mut tx = vec![None; events.len()];
    let threads: BTreeSet<ThreadId> = events.iter().map(|event| event.thread).collect();
    for thread in threads {
        let mut open: Vec<usize> = Vec::new();
        let mut ordinal = 0;
        let mut current = None;
        for (index, event) in events.iter().enumerate().filter(|(_, e)| e.thread == thread) {
            if open.is_empty() {
                let region = if let Op::Begin(region) = event.op { Some(region) } else { None };
                current = Some(Tx { thread, ordinal, region, begin_event: index as u64 });
                ordinal += 1;
            }
            tx[index] = current;
            match event.op {
                Op::Begin(region) => {
                    let depth = open.len();
                    open.push(executions.len());
                    let end = events.len() - 1;
                    executions.push(Execution { region, thread, begin: index, end, depth });
                }
                Op::End(_) => executions[open.pop().expect("well-formed")].end = index,
                _ => {}
            }
        }
    }
    (tx.into_iter().map(|tx| tx.expect("every event has a thread")).collect(), executions)
}

fn outermost(events: &[Event]) -> Vec<bool> {
    let mut depth: BTreeMap<_, u32> = BTreeMap::new();
    events
        .iter()
        .map(|event| match event.op {
            Op::Acquire(lock) | Op::AcquireShared(lock) => {
                let shared = matches!(event.op, Op::AcquireShared(_));
                let depth = depth.entry((event.thread, lock, shared)).or_default();
                *depth += 1;
                *depth == 1
            }
            Op::Release(lock) | Op::ReleaseShared(lock) => {
                let shared = matches!(event.op, Op::ReleaseShared(_));
                let depth = depth.entry((event.thread, lock, shared)).or_default();
                *depth -= 1;
                *depth == 0
            }
            Op::Reset(lock) => {
                depth.retain(|&(_, held, _), _| held != lock);
                true
            }
            _ => false,
        })
        .collect()
}

/// Effect of an event on an object, as far as conflicts are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Read,
    Write,
    CommutingUpdate,
    Forget,
    Acquire { shared: bool },
    Release { shared: bool },
    Signal,
    Wait,
    Arrive { round: u32 },
    Depart { round: u32 },
}

/// Relation of an event to an object: about it, or about an object that it was a part of then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Past {
    Own,
    Inherited,
}

type Roles = BTreeMap<Object, Vec<(usize, Role, Past)>>;

fn roles(events: &[Event], outermost: &[bool]) -> Roles {
    let mut roles = Roles::new();
    let mut rounds: BTreeMap<Object, (u32, BTreeMap<ThreadId, u32>)> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        let (object, role) = match event.op {
            Op::Read(VarId(x)) => (Object::Variable(VarId(x)), Role::Read),
            Op::Write(x) | Op::Update(x) | Op::Free(x) => (Object::Variable(x), Role::Write),
            Op::CommutingUpdate(x) => (Object::Variable(x), Role::CommutingUpdate),
            Op::Alloc(x) => (Object::Variable(x), Role::Forget),
            Op::SplitVariable { from, to } if from != to => {
                let history = roles.get(&Object::Variable(from)).cloned().unwrap_or_default();
                let part = roles.entry(Object::Variable(to)).or_default();
                part.push((index, Role::Forget, Past::Own));
                part.extend(history.into_iter().map(|(at, role, _)| (at, role, Past::Inherited)));
                continue;
            }
            Op::Acquire(lock) => (Object::Lock(lock), Role::Acquire { shared: false }),
            Op::AcquireShared(lock) => (Object::Lock(lock), Role::Acquire { shared: true }),
            Op::Release(lock) => (Object::Lock(lock), Role::Release { shared: false }),
            Op::ReleaseShared(lock) => (Object::Lock(lock), Role::Release { shared: true }),
            Op::Reset(lock) => (Object::Lock(lock), Role::Forget),
            Op::Signal(sync) => (Object::Sync(sync), Role::Signal),
            Op::Wait(sync) => (Object::Sync(sync), Role::Wait),
            Op::Arrive(sync) => {
                // A round later than every round that a thread has departed from.
                let (next, arrived) = rounds.entry(Object::Sync(sync)).or_default();
                arrived.insert(event.thread, *next);
                (Object::Sync(sync), Role::Arrive { round: *next })
            }
            Op::Depart(sync) => {
                let (next, arrived) = rounds.entry(Object::Sync(sync)).or_default();
                let round = arrived[&event.thread];
                *next = (*next).max(round + 1);
                (Object::Sync(sync), Role::Depart { round })
            }
            Op::Begin(_) | Op::End(_) | Op::Fork(_) | Op::Join(_) | Op::Exit => continue,
            Op::SplitVariable { .. } => continue,
            op => unreachable!("{op:?}"),
        };
        if matches!(object, Object::Lock(_)) && !outermost[index] {
            continue;
        }
        roles.entry(object).or_default().push((index, role, Past::Own));
    }
    roles
}

impl Oracle {
    /// Returns whether an edge of a cut's exemplar is a dependency, or, in a cycle of two edges that a longer one
    /// stands for, follows from several on its variable.
    pub fn is_dependency(&self, exemplar: &Violation, edge: &Edge) -> bool {
        let (source, sink) = (edge.source.event as usize, edge.sink.event as usize);
        let is_pair = exemplar.edges.len() == 2;
        self.dependencies.contains_key(&(source, sink))
            || is_pair && self.conflict_on_variable(source, sink)
    }

    /// Returns whether two events conflict on a variable that is the same one from the first to the second, whatever
    /// came in between.
    fn conflict_on_variable(&self, first: usize, second: usize) -> bool {
        let commute = |pair| {
            matches!(
                pair,
                (Role::Read, Role::Read) | (Role::CommutingUpdate, Role::CommutingUpdate)
            )
        };
        let roles = roles(&self.events, &self.outermost);
        let of_variables = roles.iter().filter(|(of, _)| matches!(of, Object::Variable(_)));
        of_variables.map(|(_, roles)| roles).any(|roles| {
            // What came before a split is listed behind it again.
            let places =
                |event: usize| (0..roles.len()).filter(move |&place| roles[place].0 == event);
            let depend = |one: usize, other: usize| {
                one < other
                    && !commute((roles[one].1, roles[other].1))
                    && !roles[one..other].iter().any(|role| role.1 == Role::Forget)
            };
            places(first).any(|one| places(second).any(|other| depend(one, other)))
        })
    }
}

fn dependencies(events: &[Event], outermost: &[bool]) -> BTreeMap<(usize, usize), Object> {
    let mut dependencies = BTreeMap::new();
    for (object, roles) in roles(events, outermost) {
        // Returns whether the second conflicts with the first, for the purpose of coming between.
        let conflict = |first: (usize, Role, Past), second: (usize, Role, Past)| {
            events[first.0].thread == events[second.0].thread
                || match (first.1, second.1) {
                    (Role::Read, Role::Read) => false,
                    (Role::CommutingUpdate, Role::CommutingUpdate) => false,
                    (
                        Role::Read | Role::Write | Role::CommutingUpdate,
                        Role::Read | Role::Write | Role::CommutingUpdate,
                    ) => true,
                    (
                        Role::Acquire { shared: a } | Role::Release { shared: a },
                        Role::Acquire { shared: b } | Role::Release { shared: b },
                    ) => !(a && b),
                    (Role::Signal, Role::Wait) => true,
                    (Role::Arrive { round: a }, Role::Depart { round: b }) => a == b,
                    _ => false,
                }
        };
        for (i, &first) in roles.iter().enumerate() {
            for (j, &second) in roles.iter().enumerate().skip(i + 1) {
                let directed = !matches!(
                    (first.1, second.1),
                    (Role::Acquire { .. }, _) | (_, Role::Release { .. }) | (Role::Forget, _)
                );
                let apart = events[first.0].thread != events[second.0].thread;
                let between = roles[i + 1..j].iter().any(|&middle| match middle.1 {
                    Role::Forget => true,
                    _ => conflict(first, middle) && conflict(middle, second),
                });
                let own = second.2 == Past::Own;
                if own && directed && apart && conflict(first, second) && !between {
                    dependencies.insert((first.0, second.0), object);
                }
            }
        }
    }
    for (index, event) in events.iter().enumerate() {
        let (child, mut of_child) = match event.op {
            Op::Fork(child) | Op::Join(child) => (child, events.iter().enumerate()),
            _ => continue,
        };
        if matches!(event.op, Op::Fork(_)) {
            if let Some((first, _)) = of_child.find(|(_, e)| e.thread == child) {
                dependencies.insert((index, first), Object::Thread(child));
            }
        } else if let Some((last, _)) = of_child.rfind(|&(i, e)| e.thread == child && i < index) {
            dependencies.entry((last, index)).or_insert(Object::Thread(child));
        }
    }
    dependencies
}

fn closure(events: &[Event], pairs: impl Iterator<Item = (usize, usize)>) -> Matrix {
    let count = events.len();
    let mut reach = vec![vec![false; count]; count];
    for (i, row) in reach.iter_mut().enumerate() {
        for (j, cell) in row.iter_mut().enumerate().skip(i) {
            *cell = events[i].thread == events[j].thread;
        }
    }
    for (source, sink) in pairs {
        reach[source][sink] = true;
    }
    for middle in 0..count {
        let from_middle = reach[middle].clone();
        for row in reach.iter_mut().filter(|row| row[middle]) {
            for (cell, &reached) in row.iter_mut().zip(&from_middle) {
                *cell |= reached;
            }
        }
    }
    reach
}
