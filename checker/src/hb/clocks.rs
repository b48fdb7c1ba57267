//! Vector clocks over synchronisation and program order alone, to distinguish synchronised dependencies
//! from racy ones. Dependencies themselves are found without clocks.
//!
//! A component is an event number plus one, so that a remembered event needs no epoch of its own (the test
//! of FastTrack, with event numbers as epochs). Components belong to lanes, not to threads: a thread may
//! get the lane of an ended thread if it is known to start after that end, or if nothing will ask about the
//! ended thread any more. Event numbers grow, so that knowledge of the former thread is never mistaken for
//! an event of the new one.

use crate::event::EventNumber;
use crate::hb::stamp::EventStamp;
use std::collections::VecDeque;

/// Number of idle lanes that are examined for a thread that starts.
const EXAMINED: usize = 64;

/// Number plus one of the last known event, for each lane; absent components are 0.
///
/// Event numbers have 48 bits, which a floating-point number holds exactly. Every 64-bit processor can
/// compute the maximum of several floating-point numbers at once; many cannot for integers of that size.
#[derive(Clone, Default)]
pub(crate) struct Clock(Vec<f64>);

/// Returns the smallest component that knows the event.
fn component(event: EventNumber) -> f64 {
    (event + 1) as f64
}

/// Returns the larger one, given that neither is a NaN: one instruction, unlike `f64::max`.
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
    /// Number of rows that have it, those of ended threads included.
    holders: u32,
    /// Last event of the last thread that had it, if that thread has ended.
    last: Option<EventNumber>,
}

#[derive(Default)]
struct Known {
    lane: usize,
    clock: Clock,
}

/// Clocks of all threads, by row.
#[derive(Default)]
pub(crate) struct Clocks {
    known: Vec<Known>,
    lanes: Vec<Lane>,
    /// Lanes held by ended threads only.
    idle: VecDeque<u32>,
}

impl Clocks {
    /// Assigns a lane to the thread that gets `row`; `parent` is the row of the thread that forked it, if
    /// any.
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
        let examined = self.idle.len().min(EXAMINED);
        let lane = match self.idle.iter().take(examined).position(fits) {
            Some(place) => self.idle.swap_remove_front(place),
            None => {
                // The next search examines other lanes.
                self.idle.rotate_left(examined);
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

    /// Notes that the thread in `row` has ended; `last` is its last event, if it has any.
    pub(crate) fn end(&mut self, row: usize, last: Option<EventNumber>) {
        let lane = self.known[row].lane;
        self.lanes[lane].last = last;
        self.idle.push_front(lane as u32);
    }

    /// Gives back the row of an ended thread: nothing will ask about that thread any more.
    pub(crate) fn free(&mut self, row: usize) {
        let Known { lane, clock } = &mut self.known[row];
        self.lanes[*lane].holders -= 1;
        clock.clear();
    }

    /// Returns whether the thread in `row` knows that event of the thread in the row `of`.
    pub(crate) fn knows(&self, row: usize, of: usize, event: EventNumber) -> bool {
        self.known[row].clock.knows(self.known[of].lane, event)
    }

    /// Sets `clock` to the knowledge of the thread in `row` at `now`.
    pub(crate) fn publish(&self, row: usize, now: &EventStamp, clock: &mut Clock) {
        let known = &self.known[row];
        clock.0.clone_from(&known.clock.0);
        clock.raise(known.lane, now.event());
    }

    /// Adds the knowledge of the thread in `row` at `now` to `clock`.
    pub(crate) fn publish_into(&self, row: usize, now: &EventStamp, clock: &mut Clock) {
        let known = &self.known[row];
        clock.join(&known.clock);
        clock.raise(known.lane, now.event());
    }

    /// Adds `clock`, which the thread in the row `from` published at `event`, to the knowledge of the
    /// thread in `row`. Does nothing if that thread knows the event already.
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

    /// Adds `clock` to the knowledge of the thread in `row`.
    pub(crate) fn learn(&mut self, row: usize, clock: &Clock) {
        self.known[row].clock.join(clock);
    }

    /// Adds the knowledge of the thread in the row `from`, up to its event `source`, to that of the thread
    /// in `row`.
    pub(crate) fn learn_all(&mut self, row: usize, from: usize, source: EventNumber) {
        if let Ok([mine, theirs]) = self.known.get_disjoint_mut([row, from]) {
            mine.clock.join(&theirs.clock);
            mine.clock.raise(theirs.lane, source);
        }
    }

    /// Returns the number of components that a clock can have.
    #[cfg(test)]
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }
}
