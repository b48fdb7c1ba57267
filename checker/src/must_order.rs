//! Order that every interleaving of a trace has in common: program order, and what forks, joins, signals and barriers
//! impose. Locks order nothing here, since their critical sections could come in another order.
//!
//! A wait follows all signals on its object that came before it in the trace, though fewer might have been enough: what
//! is not ordered here is not ordered by any of them.

use crate::event::{Event, EventNumber, Op, SyncId, ThreadId};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Limit of threads whose knowledge is stored; further ones are not ordered.
const MAX_THREADS: usize = 1 << 12;

/// Knowledge of a thread: for each other thread the last event that precedes all that follows, and 1.
pub(crate) type Known = FxHashMap<ThreadId, EventNumber>;

/// State of the order at the current end of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct MustOrder {
    threads: FxHashMap<ThreadId, Arc<Known>>,
    signals: FxHashMap<SyncId, Known>,
    barriers: FxHashMap<SyncId, Barrier>,
    nothing: Arc<Known>,
}

#[derive(Clone, Debug, Default)]
struct Barrier {
    /// Number of the round that arrivals belong to.
    round: u32,
    /// Rounds that threads have arrived in and not departed from.
    inside: FxHashMap<ThreadId, u32>,
    /// Knowledge of the arrivals of each round with threads inside.
    arrivals: FxHashMap<u32, Known>,
}

/// Returns whether the operation may order events of different threads, whatever the interleaving.
pub(crate) const fn orders(op: Op) -> bool {
    matches!(
        op,
        Op::Fork(_) | Op::Join(_) | Op::Signal(_) | Op::Wait(_) | Op::Arrive(_) | Op::Depart(_)
    )
}

/// Returns whether an event of a thread precedes all that a thread with this knowledge does.
pub(crate) fn precedes(known: &Known, thread: ThreadId, event: EventNumber) -> bool {
    known.get(&thread).is_some_and(|&last| event < last)
}

impl MustOrder {
    /// Returns the knowledge of a thread.
    pub(crate) fn known(&self, thread: ThreadId) -> &Arc<Known> {
        self.threads.get(&thread).unwrap_or(&self.nothing)
    }

    pub(crate) fn event(&mut self, event: &Event, number: EventNumber) {
        let thread = event.thread;
        match event.op {
            Op::Fork(child) => {
                let known = self.with_own(thread, number);
                self.learn(child, &known);
            }
            Op::Join(ended) => {
                let known = self.with_own(ended, number);
                self.learn(thread, &known);
            }
            Op::Signal(object) => {
                let known = self.with_own(thread, number);
                merge(self.signals.entry(object).or_default(), &known);
            }
            Op::Wait(object) => {
                if let Some(known) = self.signals.remove(&object) {
                    self.learn(thread, &known);
                    self.signals.insert(object, known);
                }
            }
            Op::Arrive(object) => {
                let known = self.with_own(thread, number);
                let barrier = self.barriers.entry(object).or_default();
                barrier.inside.insert(thread, barrier.round);
                merge(barrier.arrivals.entry(barrier.round).or_default(), &known);
            }
            Op::Depart(object) => {
                let Some(known) = self.barriers.get_mut(&object).and_then(|b| b.depart(thread))
                else {
                    return;
                };
                self.learn(thread, &known);
            }
            _ => {}
        }
    }

    /// Returns the knowledge of a thread with its own events up to that number.
    fn with_own(&self, thread: ThreadId, number: EventNumber) -> Known {
        let mut known = Known::clone(self.known(thread));
        known.insert(thread, number + 1);
        known
    }

    fn learn(&mut self, thread: ThreadId, known: &Known) {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&thread) {
            return;
        }
        let own = self.threads.entry(thread).or_default();
        let news = |(other, &last): (&ThreadId, &EventNumber)| {
            *other != thread && own.get(other).is_none_or(|&known| known < last)
        };
        if known.iter().any(news) {
            let own = Arc::make_mut(own);
            merge(own, known);
            own.remove(&thread);
        }
    }
}

impl Barrier {
    fn depart(&mut self, thread: ThreadId) -> Option<Known> {
        let round = self.inside.remove(&thread)?;
        self.round = self.round.max(round + 1);
        if self.inside.values().any(|&other| other == round) {
            return self.arrivals.get(&round).cloned();
        }
        self.arrivals.remove(&round)
    }
}

fn merge(into: &mut Known, from: &Known) {
    for (&thread, &last) in from {
        let known = into.entry(thread).or_default();
        *known = last.max(*known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LocationId;

    #[test]
    fn forks_joins_signals_and_barriers_order_and_locks_do_not() {
        use crate::event::LockId;
        let mut order = MustOrder::default();
        let (one, two) = (ThreadId(1), ThreadId(2));
        let steps = [
            (1, Op::Signal(SyncId(0))),
            (1, Op::Release(LockId(0))),
            (2, Op::Acquire(LockId(0))),
            (2, Op::Wait(SyncId(0))),
            (2, Op::Arrive(SyncId(1))),
            (1, Op::Arrive(SyncId(1))),
            (1, Op::Depart(SyncId(1))),
            (1, Op::Fork(ThreadId(3))),
            (2, Op::Join(ThreadId(3))),
        ];
        let mut seen = Vec::new();
        for (number, (thread, op)) in (0..).zip(steps) {
            order.event(&Event { thread: ThreadId(thread), op, location: LocationId(0) }, number);
            seen.push((order.known(one).clone(), order.known(two).clone()));
        }
        assert!(!precedes(&seen[2].1, one, 0), "a lock orders nothing");
        assert!(precedes(&seen[3].1, one, 0) && !precedes(&seen[3].1, one, 1));
        assert!(precedes(&seen[6].0, two, 4) && !precedes(&seen[5].0, two, 4));
        assert!(precedes(&seen[8].1, one, 7) && precedes(&seen[8].1, ThreadId(3), 8));
    }
}
