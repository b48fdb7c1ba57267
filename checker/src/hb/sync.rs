//! State of synchronisation objects that are not locks: signals and waits, and the rounds of barriers.

use crate::event::{EventNumber, SyncId, ThreadId};
use crate::hb::clocks::Clock;
use crate::hb::current_event::CurrentEvent;
use crate::hb::last_events::LastEvents;
use crate::hb::stamp::EventStamp;
use crate::hb::table::ThreadTable;

#[derive(Default)]
struct SyncObject {
    /// Last signal of each thread.
    signals: LastEvents,
    /// Last wait of each thread.
    waits: Vec<LastWait>,
    /// Knowledge of the threads that signalled.
    clock: Clock,
    barrier: Barrier,
}

struct LastWait {
    thread: ThreadId,
    event: EventNumber,
    /// Signals since then that were dropped as irrelevant.
    dropped: u64,
}

/// A barrier. A round is open until the first departure of a thread that arrived in it; later arrivals
/// belong to the next round.
#[derive(Default)]
struct Barrier {
    open: u64,
    rounds: Vec<Round>,
    /// Threads that have arrived and not departed, with their round.
    inside: Vec<(ThreadId, u64)>,
    /// Set once an arrival was missed. Every departure then ends the open round, whatever round it is from:
    /// rounds come out too small, and never hold arrivals of two.
    lossy: bool,
}

#[derive(Default)]
struct Round {
    number: u64,
    arrivals: LastEvents,
    clock: Clock,
}

impl SyncObject {
    fn signal(&mut self, now: &CurrentEvent<'_>) {
        let Self { signals, waits, clock, .. } = self;
        now.publish_into(clock);
        let mut swept = false;
        signals.put_reporting_dropped(now.event, now.table, |signal| {
            if !swept {
                forget_ended(waits, now.table);
                swept = true;
            }
            for waited in waits.iter_mut().filter(|waited| signal.event() > waited.event) {
                waited.dropped += 1;
            }
        });
    }

    fn wait(&mut self, now: &mut CurrentEvent<'_>, mut depends_on: impl FnMut(&EventStamp)) -> u64 {
        now.learn(&self.clock);
        let thread = now.event.thread();
        let before = self.waits.iter_mut().find(|waited| waited.thread == thread);
        let (event, dropped) = match before {
            Some(LastWait { event, dropped, .. }) => {
                let event = std::mem::replace(event, now.event.event());
                (Some(event), std::mem::take(dropped))
            }
            None => {
                if self.waits.len() == self.waits.capacity() {
                    forget_ended(&mut self.waits, now.table);
                    self.waits.reserve(self.waits.len() + 1);
                }
                self.waits.push(LastWait { thread, event: now.event.event(), dropped: 0 });
                (None, self.signals.dropped())
            }
        };
        for signal in self.signals.of_others(thread) {
            if event.is_none_or(|event| signal.event() > event) {
                depends_on(signal);
            }
        }
        dropped
    }
}

fn forget_ended(waits: &mut Vec<LastWait>, table: &ThreadTable) {
    waits.retain(|waited| table.row(waited.thread).is_some());
}

impl Barrier {
    fn arrive(&mut self, now: &CurrentEvent<'_>) {
        let thread = now.event.thread();
        self.leave(thread);
        self.inside.push((thread, self.open));
        let index = self.round(self.open).unwrap_or_else(|| {
            self.rounds.push(Round { number: self.open, ..Round::default() });
            self.rounds.len() - 1
        });
        let round = &mut self.rounds[index];
        now.publish_into(&mut round.clock);
        round.arrivals.put(now.event, now.table);
    }

    fn depart(
        &mut self,
        now: &mut CurrentEvent<'_>,
        mut depends_on: impl FnMut(&EventStamp),
    ) -> u64 {
        let thread = now.event.thread();
        let Some(number) = self.leave(thread) else { return 0 };
        let mut dropped = 0;
        if let Some(index) = self.round(number) {
            let round = &self.rounds[index];
            now.learn(&round.clock);
            for arrival in round.arrivals.of_others(thread) {
                depends_on(arrival);
            }
            dropped = round.arrivals.dropped();
        }
        if number == self.open || self.lossy {
            self.close();
        } else {
            self.forget_empty_rounds();
        }
        dropped
    }

    fn round(&self, number: u64) -> Option<usize> {
        self.rounds.iter().position(|round| round.number == number)
    }

    /// Removes the thread from the barrier; returns the round that it arrived in.
    fn leave(&mut self, thread: ThreadId) -> Option<u64> {
        let index = self.inside.iter().position(|&(inside, _)| inside == thread)?;
        Some(self.inside.swap_remove(index).1)
    }

    /// Completes the open round.
    fn close(&mut self) {
        self.open += 1;
        self.forget_empty_rounds();
    }

    fn forget_empty_rounds(&mut self) {
        let Self { open, rounds, inside, .. } = self;
        rounds.retain(|round| {
            round.number == *open || inside.iter().any(|&(_, number)| number == round.number)
        });
    }
}

/// All synchronisation objects.
#[derive(Default)]
pub(crate) struct SyncObjects(Vec<SyncObject>);

impl SyncObjects {
    fn at(&mut self, object: SyncId) -> &mut SyncObject {
        let index = object.index();
        if index >= self.0.len() {
            self.0.resize_with(index + 1, SyncObject::default);
        }
        &mut self.0[index]
    }

    /// Inserts a deferred signal, after which no thread has waited.
    pub(crate) fn insert_deferred_signal(
        &mut self,
        object: SyncId,
        post: &EventStamp,
        table: &ThreadTable,
    ) {
        let signals = &mut self.at(object).signals;
        let is_last =
            |signal: &EventStamp| !signal.is_of(post.thread()) || signal.event() <= post.event();
        if signals.all(is_last) {
            signals.put(post, table);
        }
    }

    pub(crate) fn signal(&mut self, object: SyncId, now: &CurrentEvent<'_>) {
        self.at(object).signal(now);
    }

    /// Returns from a wait. Depends on every other thread's last signal, unless this thread has waited
    /// since. Returns the number of further dependencies on events that were dropped as irrelevant.
    pub(crate) fn wait(
        &mut self,
        object: SyncId,
        now: &mut CurrentEvent<'_>,
        depends_on: impl FnMut(&EventStamp),
    ) -> u64 {
        self.at(object).wait(now, depends_on)
    }

    pub(crate) fn arrive(&mut self, object: SyncId, now: &CurrentEvent<'_>) {
        self.at(object).barrier.arrive(now);
    }

    /// Departs from a barrier. Depends on every other thread's arrival in the round that this thread
    /// arrived in. Returns the number of further dependencies on events that were dropped as irrelevant.
    pub(crate) fn depart(
        &mut self,
        object: SyncId,
        now: &mut CurrentEvent<'_>,
        depends_on: impl FnMut(&EventStamp),
    ) -> u64 {
        self.at(object).barrier.depart(now, depends_on)
    }

    /// Handles a departure whose arrival was missed, also the first event of a barrier.
    pub(crate) fn depart_without_arrival(&mut self, object: SyncId) {
        let barrier = &mut self.at(object).barrier;
        barrier.lossy = true;
        barrier.close();
    }

    /// Notes that a thread that has arrived will not depart.
    pub(crate) fn abandon(&mut self, object: SyncId, thread: ThreadId) {
        let barrier = &mut self.at(object).barrier;
        barrier.leave(thread);
        barrier.forget_empty_rounds();
    }

    /// Notes that arrivals or departures were lost: current rounds cannot be distinguished.
    pub(crate) fn gap(&mut self) {
        for object in &mut self.0 {
            object.barrier.lossy = true;
            object.barrier.inside.clear();
            object.barrier.close();
        }
    }

    /// Returns the number of stored events and threads.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let inside = |barrier: &Barrier| {
            let arrivals: usize = barrier.rounds.iter().map(|round| round.arrivals.len()).sum();
            barrier.inside.len() + arrivals
        };
        let each = |object: &SyncObject| {
            object.signals.len() + object.waits.len() + inside(&object.barrier)
        };
        self.0.iter().map(each).sum()
    }
}
