//! Vector clocks over synchronisation and program order alone, to tell synchronised dependencies from racy ones.
//! Dependencies themselves are found without clocks.
//!
//! A component is an event number plus one, so that a remembered event needs no epoch of its own (the test of
//! FastTrack, with event numbers as epochs). Components belong to lanes, not to threads: a thread may have the lane
//! of one that has ended, if it is known to start after that end, or if nobody will ask about that one any more.
//! Event numbers grow, so that what is known of the former thread is never taken for an event of the new one.

use crate::event::EventNumber;
use crate::hb::stamp::EventStamp;
use std::collections::VecDeque;

/// How many idle lanes are looked at for a thread that starts.
const LOOKED_AT: usize = 64;

/// For each lane the number, plus one, of the last event that is known; absent components are 0.
///
/// Event numbers have 48 bits, which a floating-point number holds exactly, and every 64-bit processor takes the
/// maximum of several of those at once; of integers of that size many cannot.
#[derive(Clone, Default)]
pub(crate) struct Clock(Vec<f64>);

/// The component that knows the event.
fn component(event: EventNumber) -> f64 {
    (event + 1) as f64
}

/// The larger one, where none is a NaN: one instruction, which `f64::max` is not.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

impl Clock {
    fn knows(&self, lane: usize, event: EventNumber) -> bool {
        self.0.get(lane).is_some_and(|&known| known >= component(event))
    }

    fn raise(&mut self, lane: usize, event: EventNumber) {
        if lane >= self.0.len() {
            self.0.resize(lane + 1, 0.0);
        }
        self.0[lane] = larger(self.0[lane], component(event));
    }

    fn join(&mut self, other: &Self) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0.0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = larger(*mine, *theirs);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Clone, Copy, Default)]
struct Lane {
    /// Rows that have it, those of ended threads included.
    holders: u32,
    /// The last event of the last thread that had it, which has ended.
    last: Option<EventNumber>,
}

#[derive(Default)]
struct Known {
    lane: usize,
    clock: Clock,
}

/// The clocks of all threads, by row.
#[derive(Default)]
pub(crate) struct Clocks {
    known: Vec<Known>,
    lanes: Vec<Lane>,
    /// Lanes of ended threads alone.
    idle: VecDeque<u32>,
}

impl Clocks {
    /// A thread gets a row; `parent` is the row of the thread that forked it, when it was forked.
    pub(crate) fn start(&mut self, row: usize, parent: Option<usize>) {
        if row >= self.known.len() {
            self.known.resize_with(row + 1, Known::default);
        }
        let forker = parent.map(|parent| &self.known[parent].clock);
        let fits = |&lane: &u32| {
            let Lane { holders, last } = self.lanes[lane as usize];
            let known = |last| forker.is_some_and(|forker| forker.knows(lane as usize, last));
            holders == 0 || last.is_some_and(known)
        };
        let looked_at = self.idle.len().min(LOOKED_AT);
        let lane = match self.idle.iter().take(looked_at).position(fits) {
            Some(place) => self.idle.swap_remove_front(place),
            None => {
                // Those looked at in vain give way to others.
                self.idle.rotate_left(looked_at);
                None
            }
        };
        let lane = lane.map_or(self.lanes.len(), |lane| lane as usize);
        if lane == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        self.lanes[lane].holders += 1;
        self.lanes[lane].last = None;
        self.known[row].lane = lane;
        self.known[row].clock.clear();
    }

    /// The thread in that row has ended with that event; none when it never acted.
    pub(crate) fn end(&mut self, row: usize, last: Option<EventNumber>) {
        let lane = self.known[row].lane;
        self.lanes[lane].last = last;
        self.idle.push_front(lane as u32);
    }

    /// The row of a thread that has ended is given back: nobody will ask about that thread any more.
    pub(crate) fn free(&mut self, row: usize) {
        let Known { lane, clock } = &mut self.known[row];
        self.lanes[*lane].holders -= 1;
        clock.clear();
    }

    /// Whether the thread in the row knows that event of the thread in the row `of`.
    pub(crate) fn knows(&self, row: usize, of: usize, event: EventNumber) -> bool {
        self.known[row].clock.knows(self.known[of].lane, event)
    }

    /// `clock` becomes what the thread in the row knows at `now`.
    pub(crate) fn publish(&self, row: usize, now: &EventStamp, clock: &mut Clock) {
        let known = &self.known[row];
        clock.0.clone_from(&known.clock.0);
        clock.raise(known.lane, now.event());
    }

    /// `clock` also becomes what the thread in the row knows at `now`.
    pub(crate) fn publish_more(&self, row: usize, now: &EventStamp, clock: &mut Clock) {
        let known = &self.known[row];
        clock.join(&known.clock);
        clock.raise(known.lane, now.event());
    }

    /// The thread in the row learns what `clock` holds, which the thread in the row `from` published at `event`;
    /// nothing is done when it knows that already.
    pub(crate) fn learn_from(
        &mut self,
        row: usize,
        from: Option<usize>,
        event: EventNumber,
        clock: &Clock,
    ) {
        if !from.is_some_and(|from| self.knows(row, from, event)) {
            self.learn(row, clock);
        }
    }

    /// The thread in the row learns what `clock` holds.
    pub(crate) fn learn(&mut self, row: usize, clock: &Clock) {
        self.known[row].clock.join(clock);
    }

    /// The thread in the row learns all that the thread in the row `from` knows, up to its event `source`.
    pub(crate) fn learn_all(&mut self, row: usize, from: usize, source: EventNumber) {
        if let Ok([mine, theirs]) = self.known.get_disjoint_mut([row, from]) {
            mine.clock.join(&theirs.clock);
            mine.clock.raise(theirs.lane, source);
        }
    }

    /// How many components a clock can have.
    #[cfg(test)]
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }
}
