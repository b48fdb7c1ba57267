//! Davida: the transaction-level verdict with witnesses (Ma, Ashraf and Chan, "Davida: A Decentralization
//! Approach to Localizing Transaction Sequences for Debugging Transactional Atomicity Violations"), in the
//! form of `docs/semantics.md#davida`. The trace-level verdict is computed by `cycle` in the same pass,
//! until a violation or a cycle answers it.
//!
//! For each active region r and each thread, the checker stores the first event of that thread that r's
//! begin happens before, with the dependency that brought it. A dependency is a violation of r if its sink
//! is in r and its source is at or after the first event stored for the source's thread. The stored
//! dependencies are the witness.
//!
//! Departures from the paper:
//! - events are compared, not transactions: this is the test of the paper's Algorithm 2 in both its cases;
//! - a region counts as having reached its own thread at its begin, which makes steps 2 and 3 one: on a
//!   dependency from thread u to thread v, every region that has reached u in time and not v reaches v;
//! - every level of a nest can be a region of its own. Those that were not asked for are looked at to find the
//!   innermost region that a dependency violates, for `cuts`, and are in no verdict and no count;
//! - the same algorithm runs on the data relation, whose trees are within those of the full relation.
//!
//! A region gets a slot when an event leaves it: until then it has reached no other thread, and most never do. The
//! regions of a thread that a dependency violates are the outer ones of its nest, as each begins before those within
//! it.
//!
//! A region that is followed (`followed`) has a slot in the data relation alone, and is looked at where a dependency
//! violates no other region.
//!
//! Invariants: a slot's bit is in column `Own` of one thread while its region is active, from the first event that
//! leaves it on; the bits of a thread in the data relation are among those in the full relation; a thread's lower
//! bound is no later than anything of it that a region has reached, so that a dependency on an earlier event is
//! relevant to no region.

mod closing_reads;
mod cuts;
mod cycle;
mod departures;
mod direct;
mod followed;
mod forest;
mod lock_events;
mod locks;
#[cfg(test)]
mod memory_bounds;
mod observed;
mod obstacles;
mod open_at_end;
mod reacquired;
mod recent;
mod regions;
mod released_locks;
mod resting;
mod second_sections;
mod thread;
mod witness;

use crate::check::{Capabilities, Checker, DeferredChecker, Options};
use crate::error::EventError;
use crate::event::{Event, EventNumber, LocationId, SyncId, ThreadId, VarId};
use crate::finding::{Counts, Findings, Violation};
use crate::hb::{Engine, Timestamp};
use regions::ActiveRegions;

/// Number of events whose objects are prefetched together.
const PREFETCHED: usize = 64;

/// The Davida checker.
pub struct Davida {
    engine: Engine,
    regions: ActiveRegions,
}

impl Davida {
    /// Options that the algorithm honours, and its results.
    pub const CAPABILITIES: Capabilities =
        Capabilities { nested: true, instances: true, witnesses: true, interleavings: false };

    /// Creates a checker at the start of a trace.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), regions: ActiveRegions::new(options) }
    }

    #[inline]
    fn step(&mut self, event: &Event) -> Result<(), EventError> {
        self.regions.follow_reads(event, &self.engine);
        self.regions.observe(event, self.engine.counts.events);
        if self.regions.follows {
            self.step_followed(event)
        } else {
            self.engine.step(event, &mut self.regions)
        }
    }

    /// Consumes an event that may be a step of a region that is followed.
    fn step_followed(&mut self, event: &Event) -> Result<(), EventError> {
        let number = self.engine.counts.events;
        let row = self.engine.row(event.thread);
        let row = row.filter(|&row| self.regions.before_step(row, event));
        self.engine.step(event, &mut self.regions)?;
        if let Some(row) = row
            && let Some(now) = self.engine.last(row).filter(|now| now.event() == number)
        {
            self.regions.after_step(row, &now);
        }
        Ok(())
    }

    /// Returns the distinct violations so far, in the order of their first occurrence.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        self.regions.found.verdicts.distinct()
    }
}

impl Checker for Davida {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        self.step(event)
    }

    fn events(&mut self, events: &[Event]) -> Result<(), EventError> {
        for events in events.chunks(PREFETCHED) {
            self.engine.prefetch(events);
            for event in events {
                self.step(event)?;
            }
        }
        Ok(())
    }

    fn gap(&mut self) {
        self.engine.gap();
        self.regions.abandon();
    }

    fn counts(&self) -> Counts {
        self.regions.found.cuts.counts(self.regions.found.verdicts.counts(self.engine.counts))
    }

    fn finish(&mut self) -> Findings {
        let counts = self.counts();
        let options = self.regions.options;
        let verdict = self.regions.verdict();
        let ActiveRegions { found, .. } = std::mem::replace(self, Self::new(options)).regions;
        found.into_findings(verdict, counts)
    }

    fn stored_violations(&self) -> u64 {
        self.regions.found.verdicts.distinct().len() as u64 + self.regions.found.cuts.chosen()
    }
}

impl DeferredChecker for Davida {
    fn timestamp(&self, thread: ThreadId) -> Option<Timestamp> {
        self.engine.timestamp(thread)
    }

    fn oldest_active(&self) -> EventNumber {
        let events = self.engine.counts.events;
        self.regions.begins().chain(self.regions.recent_begins(events)).min().unwrap_or(events)
    }

    fn findings(&self) -> Findings {
        self.regions.found.clone().into_findings(self.regions.verdict(), self.counts())
    }

    fn insert_deferred_access(
        &mut self,
        timestamp: &Timestamp,
        variable: VarId,
        writes: bool,
        location: LocationId,
    ) {
        let (access, row) =
            self.engine.insert_deferred_access(timestamp, variable, writes, location);
        if let Some(row) = row.filter(|_| writes) {
            self.regions.insert_deferred_write(row, variable, &access);
        }
    }

    fn insert_deferred_signal(
        &mut self,
        timestamp: &Timestamp,
        object: SyncId,
        location: LocationId,
    ) {
        self.engine.insert_deferred_signal(timestamp, object, location);
    }
}
