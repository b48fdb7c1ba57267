//! The state of synchronisation objects that are not locks: posts and waits, and the rounds of barriers.

use crate::event::{EventNumber, SyncId, ThreadId};
use crate::hb::access::Access;
use crate::hb::clocks::{Clock, Clocks};

#[derive(Default)]
struct SyncObject {
    /// The last post of each thread.
    signals: Vec<Access>,
    /// The last wait of each thread.
    waits: Vec<(ThreadId, EventNumber)>,
    /// What the threads that posted knew.
    clock: Clock,
    barrier: Barrier,
}

/// A round is open until the first departure of a thread that arrived in it; later arrivals are the next round's.
#[derive(Default)]
struct Barrier {
    open: u64,
    rounds: Vec<Round>,
    /// Threads that have arrived and not departed, with their round.
    inside: Vec<(ThreadId, u64)>,
    /// An arrival was not seen. Every departure then ends the open round, whatever round it is from: rounds come
    /// out too small, and never hold arrivals of two.
    lossy: bool,
}

#[derive(Default)]
struct Round {
    number: u64,
    arrivals: Vec<Access>,
    clock: Clock,
}

impl Barrier {
    fn arrive(&mut self, now: &Access, clocks: &Clocks) {
        self.leave(now.thread());
        self.inside.push((now.thread(), self.open));
        let index = self.round(self.open).unwrap_or_else(|| {
            self.rounds.push(Round { number: self.open, ..Round::default() });
            self.rounds.len() - 1
        });
        let round = &mut self.rounds[index];
        clocks.publish_more(now, &mut round.clock);
        match round.arrivals.iter_mut().find(|arrival| arrival.thread() == now.thread()) {
            Some(arrival) => *arrival = *now,
            None => round.arrivals.push(*now),
        }
    }

    fn round(&self, number: u64) -> Option<usize> {
        self.rounds.iter().position(|round| round.number == number)
    }

    /// The thread is no longer inside; returns the round that it arrived in.
    fn leave(&mut self, thread: ThreadId) -> Option<u64> {
        let index = self.inside.iter().position(|&(inside, _)| inside == thread)?;
        Some(self.inside.swap_remove(index).1)
    }

    /// The open round is complete.
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

    pub(crate) fn signal(&mut self, object: SyncId, now: &Access, clocks: &Clocks) {
        let object = self.at(object);
        clocks.publish_more(now, &mut object.clock);
        match object.signals.iter_mut().find(|signal| signal.thread() == now.thread()) {
            Some(signal) => *signal = *now,
            None => object.signals.push(*now),
        }
    }

    /// Depends on every other thread's last post, unless this thread has waited since.
    pub(crate) fn wait(
        &mut self,
        object: SyncId,
        now: &Access,
        clocks: &mut Clocks,
        mut depends_on: impl FnMut(&Access),
    ) {
        let object = self.at(object);
        let thread = now.thread();
        clocks.learn(thread, &object.clock);
        let before = match object.waits.iter_mut().find(|(waiter, _)| *waiter == thread) {
            Some((_, event)) => Some(std::mem::replace(event, now.event())),
            None => {
                object.waits.push((thread, now.event()));
                None
            }
        };
        for signal in &object.signals {
            let fresh = before.is_none_or(|before| signal.event() > before);
            if fresh && signal.thread() != thread {
                depends_on(signal);
            }
        }
    }

    pub(crate) fn arrive(&mut self, object: SyncId, now: &Access, clocks: &Clocks) {
        self.at(object).barrier.arrive(now, clocks);
    }

    /// Whether the thread has arrived and not departed.
    pub(crate) fn is_inside(&self, object: SyncId, thread: ThreadId) -> bool {
        self.0
            .get(object.index())
            .is_some_and(|object| object.barrier.inside.iter().any(|&(inside, _)| inside == thread))
    }

    /// Depends on every other thread's arrival in the round that this thread arrived in.
    pub(crate) fn depart(
        &mut self,
        object: SyncId,
        now: &Access,
        clocks: &mut Clocks,
        mut depends_on: impl FnMut(&Access),
    ) {
        let barrier = &mut self.at(object).barrier;
        let thread = now.thread();
        let Some(number) = barrier.leave(thread) else { return };
        if let Some(index) = barrier.round(number) {
            let round = &barrier.rounds[index];
            clocks.learn(thread, &round.clock);
            for arrival in round.arrivals.iter().filter(|arrival| arrival.thread() != thread) {
                depends_on(arrival);
            }
        }
        if number == barrier.open || barrier.lossy {
            barrier.close();
        } else {
            barrier.forget_empty_rounds();
        }
    }

    /// A departure whose arrival was not seen.
    pub(crate) fn depart_unseen(&mut self, object: SyncId) {
        if let Some(object) = self.0.get_mut(object.index()) {
            object.barrier.lossy = true;
            object.barrier.close();
        }
    }

    /// Arrivals or departures were lost: rounds that are under way cannot be told apart.
    pub(crate) fn gap(&mut self) {
        for object in &mut self.0 {
            object.barrier.lossy = true;
            object.barrier.inside.clear();
            object.barrier.close();
        }
    }
}
