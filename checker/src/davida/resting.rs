//! Times at which a part of a region's accesses was left out: what the region did between two steps is then no fact.

use crate::event::{EventNumber, RegionId};
use rustc_hash::FxHashMap;

/// Accesses of regions that are left out for a time, by region.
#[derive(Default)]
pub(super) struct RestingAccesses(FxHashMap<RegionId, Rest>);

/// State of the accesses of a region.
#[derive(Clone, Copy)]
enum Rest {
    /// Some are left out.
    Now,
    /// Some were left out until this event.
    Until(EventNumber),
}

impl RestingAccesses {
    /// Notes at an event that a part of the region's accesses is left out from here on, or that all are seen again.
    pub(super) fn note(&mut self, region: RegionId, rest: bool, number: EventNumber) {
        self.0.insert(region, if rest { Rest::Now } else { Rest::Until(number) });
    }

    /// Returns whether a part of the region's accesses was left out at some time after an event.
    pub(super) fn rested_since(&self, region: RegionId, event: EventNumber) -> bool {
        match self.0.get(&region) {
            Some(Rest::Now) => true,
            Some(&Rest::Until(end)) => end > event,
            None => false,
        }
    }
}
