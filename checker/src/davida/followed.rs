//! Regions that are followed for cuts alone: bodies of threads and loops around waits, which few programs mean to be
//! atomic. Decides where an execution begins and ends, and looks for violations of it that no other region has.
//!
//! An execution is one iteration. It begins with a step that the thread makes outside all other regions, or with the
//! begin of a region, and ends before a step that is made again, and where the thread waits for another one: later
//! steps are not meant to be atomic with earlier ones. A step that is made again under a lock that the execution has
//! acquired is a step of an inner loop: a critical section is one unit.
//!
//! Only dependencies on variables count. Its slot takes part in
//! the data relation alone, and in no verdict and no count.

use super::forest::{Column, Node, RegionBits};
use super::regions::{ActiveRegions, free_slot};
use super::thread::{Level, SectionOrder, Thread, Trail};
use crate::event::{Event, EventNumber, LocationId, Op, RegionId, ThreadId};
use crate::finding::Evidence;
use crate::hb::EventStamp;
use rustc_hash::FxHashSet;
use std::mem::{Discriminant, discriminant};

/// Limit of the different steps of an execution.
const MAX_STEPS: usize = 256;

/// Limit of the times that an execution reaches other threads: their causes are retained as long as it is open.
const MAX_REACHED: usize = 64;

/// Number of events for which an execution counts as active for deferred accesses: some threads are idle for long.
const MAX_AGE: u64 = 1 << 16;

/// Region that is followed in a thread.
pub(super) struct Followed {
    thread: ThreadId,
    region: RegionId,
    /// Its execution; `None` before the first step.
    pub(super) level: Option<Level>,
    /// Steps of the execution, by operation and code.
    steps: FxHashSet<(Discriminant<Op>, LocationId)>,
    pub(super) trail: Trail,
    /// Order of its sections, in all executions.
    pub(super) order: SectionOrder,
}

impl Followed {
    pub(super) fn region(&self) -> RegionId {
        self.region
    }
}

#[derive(Default)]
pub(super) struct SlotSet(Vec<u32>);

impl ActiveRegions {
    /// Follows that region in a thread from here on, or no region.
    pub(super) fn follow_region(&mut self, row: usize, thread: ThreadId, region: Option<RegionId>) {
        if row >= self.threads.len() {
            self.grow(row + 1);
        }
        self.unfollow(row);
        let Some(region) = region.filter(|_| self.found.cuts.are_collected()) else { return };
        let (level, steps) = (None, FxHashSet::default());
        let (trail, order) = (Trail::default(), SectionOrder::default());
        self.threads[row].followed =
            Some(Box::new(Followed { thread, region, level, steps, trail, order }));
        self.follows = true;
    }

    /// Stops following a region in the thread of that row.
    pub(super) fn unfollow(&mut self, row: usize) {
        self.end_iteration(row);
        self.threads[row].followed = None;
    }

    /// Handles an event of the thread in that row that is about to come. Returns whether it is a step of a region that
    /// is followed.
    pub(super) fn before_step(&mut self, row: usize, event: &Event) -> bool {
        if matches!(event.op, Op::Rest(_) | Op::Resume(_)) {
            return false;
        }
        let Some(thread) = self.threads.get(row) else { return false };
        let Some(followed) = thread.followed.as_ref().filter(|_| thread.levels.is_empty()) else {
            return false;
        };
        if followed.thread != event.thread {
            self.unfollow(row);
            return false;
        }
        match event.op {
            Op::Wait(_) | Op::Depart(_) | Op::Join(_) => {
                self.end_iteration(row);
                return false;
            }
            Op::End(_)
            | Op::Arrive(_)
            | Op::Alloc(_)
            | Op::Free(_)
            | Op::SplitVariable { .. }
            | Op::Reset(_)
            | Op::Follow(_)
            | Op::Exit => return false,
            _ => {}
        }
        let step = (discriminant(&event.op), event.location);
        let is_in_section =
            followed.level.is_some_and(|level| thread.locks.holds_since(level.begin.event()));
        let is_known = followed.steps.contains(&step);
        if is_known && is_in_section && followed.steps.len() < MAX_STEPS {
            return true;
        }
        if is_known && !is_in_section || followed.steps.len() >= MAX_STEPS {
            self.end_iteration(row);
        }
        if let Some(followed) = &mut self.threads[row].followed {
            followed.steps.insert(step);
        }
        true
    }

    /// Handles the step of a region that is followed, after its dependencies.
    pub(super) fn after_step(&mut self, row: usize, now: &EventStamp) {
        let column = self.column(Evidence::Data);
        let Some(followed) = &mut self.threads[row].followed else { return };
        if followed.level.is_some() {
            return;
        }
        let region = followed.region;
        let slot = free_slot(&mut self.free, &mut self.slots);
        followed.level = Some(Level { region, begin: now.as_begin(), slot: Some(slot) });
        self.followed.0.push(slot);
        let mut columns = RegionBits::default();
        for column in [column, Column::Own] {
            columns[column] = u64::MAX;
        }
        self.forest.begin(slot as usize, row, now.event(), columns);
        self.count_execution(region);
    }

    fn end_iteration(&mut self, row: usize) {
        let Some(followed) = &mut self.threads[row].followed else { return };
        followed.steps.clear();
        followed.trail.clear();
        if let Some(Level { slot: Some(slot), .. }) = followed.level.take() {
            self.followed.0.retain(|&other| other != slot);
            self.free.push(slot);
            self.forest.end(slot as usize, row);
        }
    }

    /// Returns the begins of the executions that are followed and not old, before event `now`.
    pub(super) fn recent_begins(&self, now: EventNumber) -> impl Iterator<Item = EventNumber> {
        let levels = self.threads.iter().filter_map(Thread::followed_level);
        levels.map(|level| level.begin.event()).filter(move |begin| now - begin < MAX_AGE)
    }

    /// Ends executions that have reached too many threads.
    pub(super) fn bound_followed(&mut self) {
        let is_over = |slot: &&u32| self.forest.reached(**slot as usize) > MAX_REACHED;
        let Some(&over) = self.followed.0.iter().find(is_over) else { return };
        let row = self.threads.iter().position(|thread| {
            thread.followed_level().is_some_and(|level| level.slot == Some(over))
        });
        row.into_iter().for_each(|row| self.end_iteration(row));
    }

    /// Handles a dependency that closes a cycle through no other region of its sink's thread.
    pub(super) fn cut_followed(&mut self, closing: &Node) {
        let column = self.column(Evidence::Data);
        let Some(Level { slot: Some(slot), .. }) = self.threads[closing.row()].followed_level()
        else {
            return;
        };
        let (u, slot) = (closing.from(), slot as usize);
        if closing.is_variable()
            && self.forest.contains(column, u, slot)
            && self.forest.first(column, u, slot) <= closing.source.event()
        {
            self.cut_within(None, Evidence::Data, closing);
        }
    }
}
