//! Order of threads by forks and joins alone: which steps of one thread cannot come into a gap of another one, however
//! both are delayed.
//!
//! The knowledge of a thread about others changes at its joins only, and begins with the knowledge of its parent.
//! Between two joins the last step has the fewest certain successors, so that it stands for all.

use crate::event::{EventNumber, ThreadId};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Limit of threads whose order is known. Further threads are not ordered, which can list a gap that cannot be cut.
const MAX_THREADS: usize = 1 << 12;

/// Limit of the spans between joins that are distinguished. Beyond it the oldest two become one with the knowledge of
/// the older, which can list a gap that cannot be cut.
const MAX_SPANS: usize = 8;

/// Last event of each thread that precedes whatever comes.
pub(super) type Known = FxHashMap<ThreadId, EventNumber>;

/// Spans between joins of one thread in which something happened, oldest first, each with what the thread knew and the
/// last event of that kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans(Vec<(Arc<Known>, EventNumber)>);

#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    threads: FxHashMap<ThreadId, Arc<Known>>,
    nothing: Arc<Known>,
}

impl Order {
    /// Returns the knowledge of a thread.
    pub(super) fn known(&self, thread: ThreadId) -> &Arc<Known> {
        self.threads.get(&thread).unwrap_or(&self.nothing)
    }

    /// Notes that a thread starts another one.
    pub(super) fn fork(&mut self, parent: ThreadId, child: ThreadId, now: EventNumber) {
        if self.threads.len() >= MAX_THREADS || self.threads.contains_key(&child) {
            return;
        }
        let mut known = Known::clone(self.known(parent));
        known.insert(parent, now);
        self.threads.insert(child, Arc::new(known));
    }

    /// Notes that a thread has waited for the end of another one.
    pub(super) fn join(&mut self, thread: ThreadId, ended: ThreadId, now: EventNumber) {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&thread) {
            return;
        }
        let mut known = Known::clone(self.known(thread));
        for (&other, &event) in &**self.known(ended) {
            let last = known.entry(other).or_default();
            *last = event.max(*last);
        }
        known.insert(ended, now);
        self.threads.insert(thread, Arc::new(known));
    }
}

impl Spans {
    /// Notes an event of a thread with this knowledge; for the end of a hold or gap, the knowledge at its begin.
    pub(super) fn add(&mut self, known: &Arc<Known>, event: EventNumber) {
        match self.0.last_mut() {
            Some((same, last)) if Arc::ptr_eq(same, known) => *last = event,
            _ => self.0.push((Arc::clone(known), event)),
        }
        self.limit();
    }

    /// Adds other events of the thread.
    pub(super) fn merge(&mut self, other: &Self) {
        for (known, event) in &other.0 {
            match self.0.iter_mut().find(|(same, _)| Arc::ptr_eq(same, known)) {
                Some((_, last)) => *last = (*event).max(*last),
                None => self.0.push((Arc::clone(known), *event)),
            }
        }
        self.0.sort_by_key(|(_, event)| *event);
        self.limit();
    }

    fn limit(&mut self) {
        while self.0.len() > MAX_SPANS {
            let (_, last) = self.0.remove(1);
            self.0[0].1 = last;
        }
    }

    pub(super) fn last(&self) -> EventNumber {
        self.0.last().map_or(0, |(_, last)| *last)
    }

    /// Returns whether one of these steps of `remote` could come into one of the `gaps` of `own`: it is neither before
    /// the gap's first step nor after its second one.
    pub(super) fn reach(&self, gaps: &Self, remote: ThreadId, own: ThreadId) -> bool {
        self.0.iter().any(|(known, step)| {
            gaps.0.iter().any(|(known_before, returned)| {
                let before = known_before.get(&remote).is_some_and(|last| step <= last);
                let after = known.get(&own).is_some_and(|last| returned <= last);
                !before && !after
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: ThreadId = ThreadId(0);
    const WORKER: ThreadId = ThreadId(1);

    #[test]
    fn forks_and_joins_order_and_nothing_else_does() {
        let mut order = Order::default();
        order.fork(MAIN, WORKER, 10);
        let of = |order: &Order, thread, event| {
            let mut spans = Spans::default();
            spans.add(order.known(thread), event);
            spans
        };
        let gap = of(&order, WORKER, 20);
        let (before, within) = (of(&order, MAIN, 9), of(&order, MAIN, 15));
        order.join(MAIN, WORKER, 30);
        let after = of(&order, MAIN, 31);
        assert!(!before.reach(&gap, MAIN, WORKER));
        assert!(within.reach(&gap, MAIN, WORKER));
        assert!(!after.reach(&gap, MAIN, WORKER));
        order.fork(MAIN, ThreadId(2), 40);
        let third = of(&order, ThreadId(2), 41);
        assert!(!third.reach(&gap, ThreadId(2), WORKER), "it starts after the end of the worker");
    }

    #[test]
    fn spans_beyond_the_limit_become_one() {
        let (mut order, mut steps) = (Order::default(), Spans::default());
        for event in 0..100 {
            order.join(MAIN, ThreadId(100 + event as u32), event);
            steps.add(order.known(MAIN), event);
        }
        assert_eq!((steps.0.len(), steps.last()), (MAX_SPANS, 99));
        let mut gap = Spans::default();
        gap.add(order.known(ThreadId(103)), 1);
        assert!(steps.reach(&gap, MAIN, ThreadId(103)), "the first step precedes the join");
    }
}
