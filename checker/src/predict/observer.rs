//! Observation: events in, predictions out.

use super::replay::{Candidate, certify};
use super::window::{Step, Window};
use super::{PredictedStep, Prediction};
use crate::event::Op;
use crate::event::{Event, EventNumber, LocationId, RegionId, VarId};
use crate::finding::Action;
use crate::must_order::{Known, MustOrder, precedes};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Events in a window.
const WINDOW: usize = 1 << 15;

/// Accesses on either side of a gap among which a remote one is looked for.
const NEIGHBOURS: usize = 16;

/// Searches at a gap, by the locations of its ends, after which there are fewer.
const MAX_SEARCHES: u32 = 256;

/// Candidates at the same places that are tried.
const MAX_TRIES: u32 = 8;

/// Limit of places.
const MAX_PLACES: usize = 1 << 14;

/// Limit of predictions.
const MAX_FOUND: usize = 1000;

/// Reads that a prediction lists.
const MAX_LISTED: usize = 8;

/// Region, and the locations of gap and remote access.
type Places = (RegionId, [LocationId; 3]);

/// Predicts defects of a trace. Takes any events: what does not fit is left out.
///
/// Memory is bounded, but for the state of threads, variables with several lives, and signals: a window of events,
/// 16,384 places, 1,000 predictions.
#[derive(Default)]
pub struct Observer {
    order: MustOrder,
    window: Window,
    /// Events of the window, and the order of their threads with others.
    events: Vec<(Event, Arc<Known>)>,
    first: EventNumber,
    /// Number of searches at each gap.
    gaps: FxHashMap<(RegionId, [LocationId; 2]), u32>,
    /// Number of tries at places, `u32::MAX` once nothing is left to try.
    tries: FxHashMap<Places, u32>,
    observed: FxHashSet<Places>,
    found: Vec<Prediction>,
}

impl Observer {
    /// Takes the next event.
    pub fn event(&mut self, event: &Event) {
        let number = self.first + self.events.len() as u64;
        self.order.event(event, number);
        self.events.push((*event, Arc::clone(self.order.known(event.thread))));
        self.window.add(event);
        if self.events.len() == WINDOW {
            self.search();
            self.window.clear();
            self.events.clear();
            self.first += WINDOW as u64;
        }
    }

    /// Notes that events were lost: regions and locks held are forgotten.
    pub fn gap(&mut self) {
        self.search();
        self.first += self.events.len() as u64;
        self.events.clear();
        self.window.clear();
        self.window.gap();
    }

    /// Ends the trace and returns the predictions, in the order in which they were found.
    #[must_use]
    pub fn predictions(mut self) -> Vec<Prediction> {
        self.search();
        let Self { mut found, observed, .. } = self;
        found.retain(|prediction| {
            let Prediction { region, left, remote, returned, .. } = prediction;
            let locations = [left, remote, returned].map(|step| step.location);
            !observed.contains(&(*region, locations))
        });
        found
    }

    /// Tries the candidates of the window.
    fn search(&mut self) {
        let mut accesses: FxHashMap<VarId, Vec<u32>> = FxHashMap::default();
        for (position, step) in (0..).zip(&self.window.steps) {
            if let Some((variable, ..)) = step.access() {
                accesses.entry(variable).or_default().push(position);
            }
        }
        let mut all: Vec<Vec<u32>> = accesses.into_values().collect();
        all.retain(|of_one| {
            let first = self.window.step(of_one[0]).row;
            of_one.iter().any(|&position| self.window.step(position).row != first)
        });
        all.sort_unstable_by_key(|of_one| of_one[0]);
        all.iter().for_each(|of_one| self.search_variable(of_one));
    }

    fn search_variable(&mut self, accesses: &[u32]) {
        // Last access and last write of each thread, as indices.
        let mut last: FxHashMap<u32, [Option<usize>; 2]> = FxHashMap::default();
        for (index, &position) in accesses.iter().enumerate() {
            let step = self.window.step(position);
            let (row, is_write) = (step.row, step.access().is_some_and(|(_, _, writes)| writes));
            let own = last.entry(row).or_default();
            let mut lefts = own.map(|left| left);
            own[0] = Some(index);
            if is_write {
                own[1] = Some(index);
            }
            if lefts[0] == lefts[1] {
                lefts[1] = None;
            }
            for left in lefts.into_iter().flatten() {
                self.search_gap(accesses, left, index);
            }
        }
    }

    /// Tries the remote accesses for a gap.
    fn search_gap(&mut self, accesses: &[u32], from: usize, to: usize) {
        let (left, returned) = (accesses[from], accesses[to]);
        let [first, second] = [left, returned].map(|position| self.window.step(position));
        let Some(region) = first.spanning(second).filter(|_| first.life == second.life) else {
            return;
        };
        let gap =
            (region, [left, returned].map(|position| self.window.step(position).event.location));
        let is_known = self.gaps.len() < MAX_PLACES || self.gaps.contains_key(&gap);
        let mut beyond = u32::MAX;
        let searches = if is_known { self.gaps.entry(gap).or_default() } else { &mut beyond };
        *searches = searches.saturating_add(1);
        // Observed interferences count in each execution; possible ones are searched for less and less often.
        let reach =
            if *searches <= MAX_SEARCHES || searches.is_power_of_two() { NEIGHBOURS } else { 0 };
        let near = from.saturating_sub(reach)..accesses.len().min(to + reach + 1);
        let near = accesses[near].iter();
        let mut candidates: Vec<u32> =
            near.copied().filter(|&remote| self.fits(left, remote, returned)).collect();
        // The nearest ones need the fewest changes of order.
        candidates
            .sort_by_key(|&remote| remote.abs_diff(if remote < left { left } else { returned }));
        let locations = |remote: u32| {
            [left, remote, returned].map(|position| self.window.step(position).event.location)
        };
        let candidates: Vec<(u32, Places)> =
            candidates.into_iter().map(|remote| (remote, (region, locations(remote)))).collect();
        for (remote, places) in candidates {
            if left < remote && remote < returned {
                if self.observed.len() < MAX_PLACES {
                    self.observed.insert(places);
                }
                continue;
            }
            if self.found.len() >= MAX_FOUND || self.observed.contains(&places) {
                continue;
            }
            if self.tries.len() >= MAX_PLACES && !self.tries.contains_key(&places) {
                continue;
            }
            let tries = self.tries.entry(places).or_default();
            if *tries >= MAX_TRIES {
                continue;
            }
            *tries += 1;
            let candidate = Candidate { left, remote, returned };
            if let Some(changed) = certify(&self.window, candidate) {
                self.tries.insert(places, u32::MAX);
                self.found.push(self.prediction(region, candidate, &changed));
            }
        }
    }

    /// Returns whether an access conflicts with both ends of a gap, and neither a lock nor the order of threads keeps
    /// it out.
    fn fits(&self, left: u32, remote: u32, returned: u32) -> bool {
        let [first, other, second] =
            [left, remote, returned].map(|position| self.window.step(position));
        let (thread, remote_thread) = (first.event.thread, other.event.thread);
        if first.row == other.row
            || !first.conflicts(other)
            || !second.conflicts(other)
            || first.life != other.life
        {
            return false;
        }
        let mut held = first.held_until(second);
        let is_kept_out = held.any(|hold| {
            let excludes = |with: &super::window::Hold| {
                with.lock == hold.lock && !(with.is_shared && hold.is_shared)
            };
            other.holds.iter().any(excludes)
        });
        let known = |position: u32| &self.events[position as usize].1;
        let number = |position: u32| self.first + u64::from(position);
        !is_kept_out
            && !precedes(known(left), remote_thread, number(remote))
            && !precedes(known(remote), thread, number(returned))
    }

    fn prediction(&self, region: RegionId, candidate: Candidate, changed: &[u32]) -> Prediction {
        let Candidate { left, remote, returned } = candidate;
        Prediction {
            region,
            left: self.step(left),
            returned: self.step(returned),
            remote: self.step(remote),
            depends_on: changed
                .iter()
                .take(MAX_LISTED)
                .map(|&position| self.step(position))
                .collect(),
            dependencies: changed.len() as u64,
        }
    }

    fn step(&self, position: u32) -> PredictedStep {
        let Step { event, open, .. } = self.window.step(position);
        let variable =
            self.window.step(position).access().map_or(VarId(u32::MAX), |access| access.0);
        PredictedStep {
            event: self.first + u64::from(position),
            thread: event.thread,
            region: open.last().map(|&(_, region)| region),
            variable,
            action: match event.op {
                Op::Read(_) => Action::Read,
                Op::Write(_) => Action::Write,
                Op::CommutingUpdate(_) => Action::CommutingUpdate,
                Op::Free(_) => Action::Free,
                _ => Action::Update,
            },
            location: event.location,
        }
    }
}
