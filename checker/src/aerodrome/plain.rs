//! Algorithm 1 of the paper without any optimisation: a vector clock for each thread and for each remembered event.

use super::barrier::Barrier;
use super::{Detections, Place, Version};
use crate::check::{Options, Relation};
use crate::event::{Event, EventNumber, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use crate::finding::Action;
use crate::hb::{Dependency, EndedHold, EventStamp, Visitor};
use crate::vector::Vector;
use rustc_hash::FxHashMap;

/// Clocks of the last event of each thread in a place.
type Sources = Vec<(ThreadId, Vector)>;

#[derive(Default)]
struct Thread {
    clock: Vector,
    /// Begin of its active transaction; `None` outside transactions.
    begin: EventStamp,
    /// Clock at that begin.
    at_begin: Vector,
}

#[derive(Default)]
pub(super) struct Plain {
    data_only: bool,
    threads: Vec<Thread>,
    places: FxHashMap<Place, Sources>,
    barriers: FxHashMap<SyncId, Barrier<Sources>>,
    detections: Detections,
}

impl Plain {
    pub(super) fn new(options: &Options) -> Self {
        Self { data_only: options.relation == Relation::Data, ..Self::default() }
    }

    /// The paper's `CheckAndGet`: detects a cycle if the active transaction of the thread in the row comes before an
    /// event with that clock, which in turn is to come before the thread's next event.
    fn check_and_get(&mut self, clock: &Vector, row: usize, number: EventNumber) {
        let Thread { begin, at_begin, .. } = &self.threads[row];
        if begin.is_some() && at_begin.is_within(clock) {
            self.detections.add(begin, number);
        }
        self.threads[row].clock.join(clock);
    }

    fn put(&mut self, place: Place, thread: ThreadId, row: usize, event: EventNumber) {
        if self.data_only && !place.is_variable() || self.detections.stopped() {
            return;
        }
        match place {
            Place::Write(variable) => {
                self.places.remove(&Place::Reads(variable));
                self.places.remove(&Place::CommutingUpdates(variable));
            }
            Place::Release(lock) => drop(self.places.remove(&Place::SharedReleases(lock))),
            _ => {}
        }
        let clock = self.threads[row].clock.clone();
        let sources = match place {
            Place::Barrier(object) => {
                let barrier = self.barriers.entry(object).or_default();
                let Some(group) = barrier.arrive(thread, event) else { return };
                group
            }
            _ => self.places.entry(place).or_default(),
        };
        if place.is_many() {
            sources.retain(|(of, _)| *of != thread);
        } else {
            sources.clear();
        }
        sources.push((thread, clock));
    }

    fn forget_variable(&mut self, variable: VarId) {
        for place in [Place::Write, Place::Reads, Place::CommutingUpdates] {
            self.places.remove(&place(variable));
        }
    }

    fn split_variable(&mut self, from: VarId, to: VarId) {
        for place in [Place::Write, Place::Reads, Place::CommutingUpdates] {
            match self.places.get(&place(from)).cloned() {
                Some(sources) => drop(self.places.insert(place(to), sources)),
                None => drop(self.places.remove(&place(to))),
            }
        }
    }

    fn leave_barriers(&mut self, thread: ThreadId) {
        self.barriers.values_mut().for_each(|barrier| barrier.leave(thread));
    }

    /// Ends the active transaction of the thread in the row at event `number`: every clock that knows its begin learns
    /// its knowledge.
    fn end_transaction(&mut self, row: usize, number: EventNumber) {
        if self.detections.stopped() || self.threads[row].begin.is_none() {
            return;
        }
        let clock = self.threads[row].clock.clone();
        let at_begin = std::mem::take(&mut self.threads[row].at_begin);
        for other in 0..self.threads.len() {
            if other != row && at_begin.is_within(&self.threads[other].clock) {
                self.check_and_get(&clock, other, number);
                if self.detections.stopped() {
                    return;
                }
            }
        }
        let groups = self.barriers.values_mut().flat_map(Barrier::groups_mut);
        for (_, known) in self.places.values_mut().chain(groups).flatten() {
            if at_begin.is_within(known) {
                known.join(&clock);
            }
        }
        self.threads[row].begin = EventStamp::NONE;
    }
}

impl Version for Plain {
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

    fn remember(&mut self, event: &Event, number: EventNumber, row: Option<usize>) {
        match event.op {
            Op::Alloc(variable) => self.forget_variable(variable),
            Op::SplitVariable { from, to } => self.split_variable(from, to),
            Op::Depart(object) => {
                if let Some(barrier) = self.barriers.get_mut(&object) {
                    barrier.depart(event.thread);
                }
            }
            Op::Exit => self.leave_barriers(event.thread),
            Op::Join(child) => self.leave_barriers(child),
            _ => {}
        }
        if let (Some(place), Some(row)) = (Place::of(event.op), row) {
            self.put(place, event.thread, row, number);
        }
    }

    fn depart_unseen(&mut self, object: SyncId) {
        if let Some(barrier) = self.barriers.get_mut(&object) {
            barrier.next_round();
        }
    }

    fn gap(&mut self) {
        self.barriers.values_mut().for_each(Barrier::gap);
    }

    fn end_transactions(&mut self, number: EventNumber) {
        for row in 0..self.threads.len() {
            self.end_transaction(row, number);
        }
    }
}

impl Visitor for Plain {
    fn started(&mut self, row: usize) {
        if row >= self.threads.len() {
            self.threads.resize_with(row + 1, Thread::default);
        }
        self.threads[row] = Thread::default();
    }

    fn is_relevant(&self, _row: Option<usize>, _source: &EventStamp) -> bool {
        !self.detections.stopped()
    }

    fn dependency(&mut self, dependency: &Dependency<'_>) {
        if self.detections.stopped() || self.data_only && !dependency.is_variable() {
            return;
        }
        let (source, row, number) = (dependency.source, dependency.row, dependency.sink.event());
        let clock = match Place::of_source(dependency) {
            // A join: the source is the child's last event.
            None => dependency.source_row().map(|child| self.threads[child].clock.clone()),
            Some(place) => {
                let sources = match place {
                    Place::Barrier(object) => {
                        let barrier = self.barriers.get(&object);
                        barrier.and_then(|barrier| barrier.group(source.event())).map(|(_, s)| s)
                    }
                    _ => self.places.get(&place),
                };
                let mut sources = sources.into_iter().flatten();
                let of = source.thread();
                sources.find(|(thread, _)| *thread == of).map(|(_, clock)| clock.clone())
            }
        };
        self.check_and_get(&clock.unwrap_or_default(), row, number);
    }

    fn begin(&mut self, row: usize, now: &EventStamp, _region: RegionId, depth: usize) {
        if depth > 0 || self.detections.stopped() {
            return;
        }
        let thread = &mut self.threads[row];
        thread.clock.raise(row, now.event());
        thread.begin = *now;
        thread.at_begin = thread.clock.clone();
    }

    fn end(&mut self, row: usize, number: EventNumber, depth: usize) {
        if depth == 0 {
            self.end_transaction(row, number);
        }
    }

    fn must_retain(&self, row: usize, _last: &EventStamp) -> bool {
        if self.detections.stopped() {
            return false;
        }
        let mut active = self.threads.iter().enumerate().filter(|(_, t)| t.begin.is_some());
        active.any(|(of, thread)| self.threads[row].clock.knows(of, thread.begin.event()))
    }

    fn released(&mut self, row: usize, lock: LockId, now: &EventStamp, _hold: EndedHold) {
        let shared = now.action() == Action::ReleaseShared;
        let place = if shared { Place::SharedReleases(lock) } else { Place::Release(lock) };
        self.put(place, now.thread(), row, now.event());
    }

    fn reset(&mut self, lock: LockId) {
        self.places.remove(&Place::Release(lock));
        self.places.remove(&Place::SharedReleases(lock));
    }
}
