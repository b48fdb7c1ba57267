//! Trace reduction: selects the events that a verdict depends on. Pure: what a tracer may leave out while the program
//! runs is decided elsewhere, and is compared with this.
//!
//! **Source.** No paper has this rule. It follows from the definitions of `docs/semantics.md`: a violation is an
//! increasing cyclic sequence (X. Ma, I. Ashraf and W. K. Chan, "Davida"), whose every step from one thread to
//! another is a dependency. RegionTrack and AeroDrome drop the *states* of transactions by a similar argument; here
//! events go.
//!
//! **Rule.** These events are kept:
//!
//! 1. both ends of each dependency ([`ReasonToKeep::Dependency`]);
//! 2. begin and end of a region's execution from which another thread has taken something while it was open: the sink
//!    of a dependency on one of its events comes before its end ([`ReasonToKeep::Exposed`]). A violation needs that:
//!    the first step of its witness leaves the region, and the last one returns to it;
//! 3. for [`Guarantee::Serializability`] also begin and end of a transaction in which a dependency comes in after an
//!    event on which another thread depends, at whatever time ([`ReasonToKeep::Entered`]). In all others each way in
//!    comes before each way out, so that a cycle passes them in program order and needs no transaction;
//! 4. for [`Guarantee::Witnesses`] also begin and end of a transaction with an end of a dependency
//!    ([`ReasonToKeep::Named`]): reports name the transaction of each step;
//! 5. what makes a trace of the rest that has no further dependencies ([`ReasonToKeep::Completed`]): the other half
//!    of a kept hold or execution; what begins or ends the life of an object with an earlier kept event; and, of a
//!    variable with commuting updates, a write before a kept access of the same thread. In `t0 r(x); t1 add(x); t2
//!    r(x); t2 w(x); t2 add(x); t1 r(x)` the write is no end of a dependency, as the read before it has that. Without
//!    it the last `add` would depend on the first read;
//! 6. events that are rare, or of no thread: forks, joins, exits, barriers, and those for cuts of followed regions
//!    ([`ReasonToKeep::Structure`]).
//!
//! **Guarantee.** The kept events have the same dependencies and happens-before as in the whole trace. So they have
//! the same violation instances, at all levels of nested regions and in both relations; with
//! [`Guarantee::Serializability`] also the same trace-level verdict; with [`Guarantee::Witnesses`] each witness is
//! also one of the whole trace, with its transactions, evidence and order; of several ones it may be another. Lost
//! are: counts of events, transactions and executions; ordinals of transactions; and what reports say about events
//! that no thread depends on, as locks held at a step, locks released and acquired again, data seen in a transaction,
//! gaps that were not cut, and most facts of cuts. A tracer that leaves events out needs another source of those. A
//! tracer that keeps more than this has to keep by the fifth rule what belongs to it.
//!
//! `tests/suite/reduction.rs` compares each part with the brute-force oracle.
//!
//! ```
//! use checker::event::{Event, LocationId, LockId, Op, RegionId, ThreadId};
//! use checker::reduction::{Guarantee, select};
//!
//! let (m, r) = (LockId(0), RegionId(0));
//! // Three executions of a region. Another thread takes the lock from the second one, after its end.
//! let section = [Op::Begin(r), Op::Acquire(m), Op::Release(m), Op::End(None)];
//! let threads = [0, 0, 1];
//! let trace: Vec<Event> = (threads.iter())
//!     .flat_map(|&thread| section.map(|op| (ThreadId(thread), op)))
//!     .map(|(thread, op)| Event { thread, op, location: LocationId(0) })
//!     .collect();
//! let reasons = select(&trace, Guarantee::Serializability)?;
//! let kept: Vec<usize> = (0..trace.len()).filter(|&index| reasons[index].is_some()).collect();
//! assert_eq!(kept, [5, 6, 9, 10]);
//! # Ok::<(), checker::EventError>(())
//! ```

use crate::error::EventError;
use crate::event::{Event, EventNumber, LockId, Op, RegionId, ThreadId, VarId};
use crate::hb::{Dependency, Engine, EventStamp, Visitor};
use rustc_hash::{FxHashMap, FxHashSet};

/// Results that the kept events share with the whole trace. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// Violation instances.
    Violations,
    /// Serializability of the trace.
    Serializability,
    /// Transactions of all steps of a witness.
    Witnesses,
}

/// ReasonToKeep to keep an event; of several the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasonToKeep {
    /// It is an end of a dependency between threads.
    Dependency,
    /// It begins or ends an execution from which another thread has taken something while it was open.
    Exposed,
    /// It begins or ends a transaction in which a dependency comes in after an event on which another thread depends.
    Entered,
    /// It begins or ends a transaction with an end of a dependency.
    Named,
    /// A kept event needs it: its acquire or release, its begin or end, or the start of its object's life.
    Completed,
    /// It is a fork, a join, an exit, a barrier's, or for followed regions.
    Structure,
}

/// Returns for each event of a trace the reason to keep it; `None` if the verdicts do not depend on it.
///
/// Time and memory are linear in the number of events, dependencies and threads; all events stay known.
///
/// # Errors
/// If an event contradicts those before it, as of a strict checker. Traces with gaps have no reduction.
pub fn select(
    events: &[Event],
    guarantee: Guarantee,
) -> Result<Vec<Option<ReasonToKeep>>, EventError> {
    let mut engine = Engine::new(false);
    let mut dependencies = Dependencies::new(events.len());
    for event in events {
        engine.step(event, &mut dependencies)?;
    }
    let mut kept = Kept { reasons: vec![None; events.len()] };
    for (index, event) in events.iter().enumerate() {
        if dependencies.is_source[index] || dependencies.is_sink[index] {
            kept.add(index, ReasonToKeep::Dependency);
        }
        if dependencies.exposed.contains(&(index as EventNumber)) {
            kept.add(index, ReasonToKeep::Exposed);
        }
        if is_structure(event.op) {
            kept.add(index, ReasonToKeep::Structure);
        }
    }
    if guarantee >= Guarantee::Serializability {
        keep_transactions(events, &dependencies, guarantee, &mut kept);
    }
    kept.complete_spans(events);
    kept.complete_commuting_updates(events);
    kept.complete_lives(events);
    Ok(kept.reasons)
}

/// Ends of the dependencies of a trace.
struct Dependencies {
    is_source: Vec<bool>,
    is_sink: Vec<bool>,
    /// Begins of the executions from which another thread took something while they were open.
    exposed: FxHashSet<EventNumber>,
    /// Begins of the open executions of each row.
    open: Vec<Vec<EventNumber>>,
}

impl Dependencies {
    fn new(count: usize) -> Self {
        Self {
            is_source: vec![false; count],
            is_sink: vec![false; count],
            exposed: FxHashSet::default(),
            open: Vec::new(),
        }
    }
}

impl Visitor for Dependencies {
    fn started(&mut self, row: usize) {
        if row >= self.open.len() {
            self.open.resize_with(row + 1, Vec::new);
        }
        self.open[row].clear();
    }

    fn is_relevant(&self, _row: Option<usize>, _source: &EventStamp) -> bool {
        true
    }

    fn dependency(&mut self, dependency: &Dependency<'_>) {
        let (source, sink) = (dependency.source.event(), dependency.sink.event());
        self.is_source[source as usize] = true;
        self.is_sink[sink as usize] = true;
        let open = dependency.source_row().and_then(|row| self.open.get(row));
        let left = open.into_iter().flatten().filter(|&&begin| begin <= source);
        self.exposed.extend(left);
    }

    fn begin(&mut self, row: usize, now: &EventStamp, _region: RegionId, _depth: usize) {
        self.open[row].push(now.event());
    }

    fn end(&mut self, row: usize, _number: EventNumber, depth: usize) {
        self.open[row].truncate(depth);
    }

    /// The engine reports only dependencies on threads that are retained.
    fn must_retain(&self, _row: usize, _last: &EventStamp) -> bool {
        true
    }
}

/// Returns whether an event is kept for what it is: rare, or of no thread's own.
fn is_structure(op: Op) -> bool {
    matches!(
        op,
        Op::Fork(_)
            | Op::Join(_)
            | Op::Exit
            | Op::Arrive(_)
            | Op::Depart(_)
            | Op::Follow(_)
            | Op::Rest(_)
            | Op::Resume(_)
    )
}

/// Events of one execution of a region, or of one hold of a lock: the begin, nested acquires and releases, and the end,
/// if there is one.
#[derive(Default)]
struct Span {
    events: Vec<usize>,
    has_ended: bool,
}

/// Number and depth of the hold of each thread in each mode; the mode is shared if it is set.
type HoldsOfLock = FxHashMap<(ThreadId, bool), (usize, u32)>;

/// Returns the executions of regions, and the holds of locks with the inner acquires and releases of re-entrant locks.
fn spans(events: &[Event]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut open: FxHashMap<ThreadId, Vec<usize>> = FxHashMap::default();
    let mut holds: FxHashMap<LockId, HoldsOfLock> = FxHashMap::default();
    for (index, event) in events.iter().enumerate() {
        let thread = event.thread;
        match event.op {
            Op::Begin(_) => {
                open.entry(thread).or_default().push(spans.len());
                spans.push(Span { events: vec![index], has_ended: false });
            }
            Op::End(_) => {
                if let Some(span) = open.get_mut(&thread).and_then(Vec::pop) {
                    spans[span].events.push(index);
                    spans[span].has_ended = true;
                }
            }
            Op::Acquire(lock) | Op::AcquireShared(lock) => {
                let is_shared = matches!(event.op, Op::AcquireShared(_));
                let hold = holds.entry(lock).or_default().entry((thread, is_shared));
                let (span, depth) = hold.or_insert_with(|| {
                    spans.push(Span::default());
                    (spans.len() - 1, 0)
                });
                spans[*span].events.push(index);
                *depth += 1;
            }
            Op::Release(lock) | Op::ReleaseShared(lock) => {
                let hold = (thread, matches!(event.op, Op::ReleaseShared(_)));
                let Some(of_lock) = holds.get_mut(&lock) else { continue };
                let Some((span, depth)) = of_lock.get_mut(&hold) else { continue };
                spans[*span].events.push(index);
                *depth -= 1;
                if *depth == 0 {
                    spans[*span].has_ended = true;
                    of_lock.remove(&hold);
                }
            }
            Op::Reset(lock) => drop(holds.remove(&lock)),
            _ => {}
        }
    }
    spans
}

/// Keeps the begins of transactions that the trace-level verdict or the names of a witness's steps need.
fn keep_transactions(
    events: &[Event],
    dependencies: &Dependencies,
    guarantee: Guarantee,
    kept: &mut Kept,
) {
    /// Transaction of a thread.
    #[derive(Default)]
    struct OpenTransaction {
        begin: usize,
        depth: usize,
        /// Set once it has an event on which another thread depends.
        left: bool,
    }
    let mut threads: FxHashMap<ThreadId, OpenTransaction> = FxHashMap::default();
    for (index, event) in events.iter().enumerate() {
        let current = threads.entry(event.thread).or_default();
        if let Op::Begin(_) = event.op {
            if current.depth == 0 {
                *current = OpenTransaction { begin: index, ..OpenTransaction::default() };
            }
            current.depth += 1;
        }
        if current.depth == 0 {
            continue;
        }
        let (is_source, is_sink) = (dependencies.is_source[index], dependencies.is_sink[index]);
        if is_sink && current.left {
            kept.add(current.begin, ReasonToKeep::Entered);
        }
        if (is_source || is_sink) && guarantee >= Guarantee::Witnesses {
            kept.add(current.begin, ReasonToKeep::Named);
        }
        current.left |= is_source;
        if let Op::End(_) = event.op {
            current.depth -= 1;
        }
    }
}

/// Reasons to keep each event.
struct Kept {
    reasons: Vec<Option<ReasonToKeep>>,
}

impl Kept {
    fn add(&mut self, index: usize, reason: ReasonToKeep) {
        let known = &mut self.reasons[index];
        *known = Some(known.map_or(reason, |known| known.min(reason)));
    }

    /// Keeps the other half of each execution and hold; of an execution for the same reason. Of a hold all events are
    /// kept if a nested one is, as the last event of a thread that is joined.
    fn complete_spans(&mut self, events: &[Event]) {
        for Span { events: of_span, has_ended } in spans(events) {
            let is_kept = |index: &&usize| self.reasons[**index].is_some();
            let Some(&first) = of_span.first() else { continue };
            let nested = &of_span[1..of_span.len() - usize::from(has_ended)];
            let end = of_span.last().copied().filter(|_| has_ended);
            if nested.iter().any(|index| is_kept(&index)) {
                of_span.iter().for_each(|&index| self.add(index, ReasonToKeep::Completed));
            } else if [Some(first), end].iter().flatten().any(|index| is_kept(&index)) {
                let of_region = |reason: &ReasonToKeep| {
                    matches!(
                        reason,
                        ReasonToKeep::Exposed | ReasonToKeep::Entered | ReasonToKeep::Named
                    )
                };
                let reason =
                    self.reasons[first].filter(of_region).unwrap_or(ReasonToKeep::Completed);
                self.add(first, ReasonToKeep::Completed);
                end.into_iter().for_each(|end| self.add(end, reason));
            }
        }
    }

    /// Keeps writes before kept accesses of the same thread, of variables with commuting updates. Such a write may
    /// depend on nothing, as an access of its thread before it does so already, and yet be the only event that keeps
    /// the accesses of others before it from those of its thread after it: reads from commuting updates, or these from
    /// reads. Of other variables the access before it does that, too.
    fn complete_commuting_updates(&mut self, events: &[Event]) {
        let commuting = events.iter().filter_map(|event| match event.op {
            Op::CommutingUpdate(variable) => Some(variable),
            _ => None,
        });
        let commuting: FxHashSet<VarId> = commuting.collect();
        // Last writes that are not kept.
        let mut writes: FxHashMap<(ThreadId, VarId), usize> = FxHashMap::default();
        for (index, event) in events.iter().enumerate() {
            let thread = event.thread;
            let (variable, writing) = match event.op {
                Op::Read(variable) | Op::CommutingUpdate(variable) => (variable, false),
                Op::Write(variable) | Op::Update(variable) | Op::Free(variable) => (variable, true),
                _ => continue,
            };
            if !commuting.contains(&variable) {
                continue;
            }
            if writing && self.reasons[index].is_none() {
                writes.insert((thread, variable), index);
            } else if let Some(write) = writes.remove(&(thread, variable)) {
                if !writing && self.reasons[index].is_some() {
                    self.add(write, ReasonToKeep::Completed);
                } else if !writing {
                    writes.insert((thread, variable), write);
                }
            }
        }
    }

    /// Keeps events that begin or end the life of an object with a kept event. Without them that event would be part
    /// of the next life.
    fn complete_lives(&mut self, events: &[Event]) {
        let mut variables: FxHashSet<VarId> = FxHashSet::default();
        let mut locks: FxHashSet<LockId> = FxHashSet::default();
        for (index, event) in events.iter().enumerate() {
            let needed = match event.op {
                Op::Alloc(variable) => variables.remove(&variable),
                Op::Reset(lock) => locks.remove(&lock),
                Op::SplitVariable { from, to } if from != to => {
                    let needed = variables.remove(&to) | variables.contains(&from);
                    if variables.contains(&from) {
                        variables.insert(to);
                    }
                    needed
                }
                Op::Read(variable)
                | Op::Write(variable)
                | Op::Update(variable)
                | Op::CommutingUpdate(variable)
                | Op::Free(variable) => {
                    if self.reasons[index].is_some() {
                        variables.insert(variable);
                    }
                    false
                }
                Op::Acquire(lock)
                | Op::Release(lock)
                | Op::AcquireShared(lock)
                | Op::ReleaseShared(lock) => {
                    if self.reasons[index].is_some() {
                        locks.insert(lock);
                    }
                    false
                }
                _ => false,
            };
            if needed {
                self.add(index, ReasonToKeep::Completed);
            }
        }
    }
}
