//! Vector clocks over synchronisation and program order alone, to tell synchronised dependencies from racy ones.
//! Dependencies themselves are found without clocks.
//!
//! A component is an event number plus one, so that a remembered event needs no epoch of its own (the test of
//! FastTrack, with event numbers as epochs).

use crate::event::{EventNumber, ThreadId};
use crate::finding::Order;
use crate::hb::access::Access;

/// For each thread the number, plus one, of its last event that is known; absent components are 0.
#[derive(Clone, Default)]
pub(crate) struct Clock(Vec<u64>);

impl Clock {
    fn get(&self, thread: ThreadId) -> u64 {
        self.0.get(thread.index()).copied().unwrap_or(0)
    }

    fn raise(&mut self, thread: ThreadId, event: EventNumber) {
        let index = thread.index();
        if index >= self.0.len() {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = self.0[index].max(event + 1);
    }

    fn join(&mut self, other: &Self) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The clocks of all threads.
#[derive(Default)]
pub(crate) struct Clocks(Vec<Clock>);

impl Clocks {
    /// Makes room for `count` threads.
    pub(crate) fn grow(&mut self, count: usize) {
        if count > self.0.len() {
            self.0.resize_with(count, Clock::default);
        }
    }

    /// How the two ends of a dependency between variable accesses are ordered.
    pub(crate) fn order(&self, source: &Access, sink: &Access) -> Order {
        if self.knows(sink.thread(), source) { Order::Synchronised } else { Order::Racy }
    }

    fn knows(&self, thread: ThreadId, source: &Access) -> bool {
        self.0.get(thread.index()).is_some_and(|clock| clock.get(source.thread()) > source.event())
    }

    /// `clock` becomes what the thread of `now` knows at `now`.
    pub(crate) fn publish(&self, now: &Access, clock: &mut Clock) {
        match self.0.get(now.thread().index()) {
            Some(known) => clock.0.clone_from(&known.0),
            None => clock.clear(),
        }
        clock.raise(now.thread(), now.event());
    }

    /// `clock` also becomes what the thread of `now` knows at `now`.
    pub(crate) fn publish_more(&self, now: &Access, clock: &mut Clock) {
        if let Some(known) = self.0.get(now.thread().index()) {
            clock.join(known);
        }
        clock.raise(now.thread(), now.event());
    }

    /// `thread` learns what `clock` holds, which `source` published; nothing is done when it knows that already.
    pub(crate) fn learn_from(&mut self, thread: ThreadId, source: &Access, clock: &Clock) {
        if !self.knows(thread, source) {
            self.learn(thread, clock);
        }
    }

    /// `thread` learns what `clock` holds.
    pub(crate) fn learn(&mut self, thread: ThreadId, clock: &Clock) {
        if let Some(known) = self.0.get_mut(thread.index()) {
            known.join(clock);
        }
    }

    /// `thread` learns all that the thread of `source` knows, up to `source`.
    pub(crate) fn learn_all(&mut self, thread: ThreadId, source: &Access) {
        let pair = [thread.index(), source.thread().index()];
        if let Ok([mine, theirs]) = self.0.get_disjoint_mut(pair) {
            mine.join(theirs);
            mine.raise(source.thread(), source.event());
        }
    }
}
