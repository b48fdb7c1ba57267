//! Davida: the transaction-level verdict with witnesses (Ma, Ashraf and Chan, "Davida: A Decentralization Approach
//! to Localizing Transaction Sequences for Debugging Transactional Atomicity Violations"), in the form of
//! `SPEC.md` §4. The trace-level verdict is asked of `reach` in the same pass, until a violation or a cycle answers it.
//!
//! For each active region and each thread the first event of that thread that the region's begin happens before is
//! kept, with the dependency that brought it. A dependency whose source such an event is not later than, and whose
//! sink is in that region, is a violation; the kept dependencies are its witness.
//!
//! Departures from the paper:
//! - events are compared, not transactions: that is the test of the paper's Algorithm 2 in both its cases;
//! - a region counts as having reached its own thread at its begin, which makes steps 2 and 3 one: on a dependency
//!   from thread u to thread v, what has reached u in time and not v reaches v;
//! - every level of a nest can be a region of its own;
//! - the same runs on the data relation, whose trees are within those of the full relation.
//!
//! Invariants: a slot's bit is in `own` of one thread exactly while its region is active; the bits of a thread in
//! the data forest are among those in the full forest; `oldest` is the first begin of an active region, so that no
//! dependency from before it matters to anyone.

#[cfg(test)]
mod bounds;
mod forest;
mod groups;
mod splits;

use crate::check::{Checker, Options, Regions, Relation};
use crate::error::EventError;
use crate::event::{Event, EventNumber, LockId, RegionId};
use crate::finding::{Counts, Evidence, Findings, Instance, Order, Tx, Violation};
use crate::hb::{Access, Dependency, Engine, Visitor};
use crate::mask::{Mask, slots};
use crate::reach::Reach;
use forest::{Forest, Step};
use groups::Groups;
use splits::Splits;

/// How many events are looked ahead at to bring their objects into the cache.
const AHEAD: usize = 32;

/// The Davida checker.
pub struct Davida {
    engine: Engine,
    regions: ActiveRegions,
}

impl Davida {
    /// A checker at the start of a trace.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), regions: ActiveRegions::new(options) }
    }

    /// The distinct violations so far, by first occurrence.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        self.regions.groups.violations()
    }
}

impl Checker for Davida {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        self.engine.step(event, &mut self.regions)
    }

    fn events(&mut self, events: &[Event]) -> Result<(), EventError> {
        for events in events.chunks(AHEAD) {
            self.engine.touch(events);
            for event in events {
                self.engine.step(event, &mut self.regions)?;
            }
        }
        Ok(())
    }

    fn gap(&mut self) {
        self.engine.gap();
        self.regions.abandon();
    }

    fn counts(&self) -> Counts {
        self.regions.counts(self.engine.counts)
    }

    fn finish(mut self: Box<Self>) -> Findings {
        let counts = self.counts();
        let (serializable, cycle) = self.regions.verdict();
        let mut violations = self.regions.groups.into_violations();
        violations.sort_by_key(|violation| violation.evidence);
        let mut instances = self.regions.instances;
        instances.sort_unstable();
        Findings { counts, serializable, cycle, violations, instances }
    }
}

/// What is kept of a thread beside its rows in the forests.
#[derive(Default)]
struct Thread {
    /// The slots of its active regions as bits, and outermost first.
    own: Mask,
    slots: Vec<u32>,
    splits: Splits,
    /// Its transaction has been counted as violating.
    violating: bool,
}

/// The region in a slot.
#[derive(Clone, Copy)]
struct Slot {
    region: RegionId,
    begin: Access,
    /// The row of its thread.
    row: usize,
}

struct ActiveRegions {
    options: Options,
    threads: Vec<Thread>,
    slots: Vec<Slot>,
    /// For each slot the number of its region's begin; `MAX` for a free slot.
    begins: Vec<EventNumber>,
    free: Vec<u32>,
    oldest: EventNumber,
    /// The relation that is asked for.
    full: Forest,
    /// Variables' dependencies only; not used when that is what is asked for.
    data: Forest,
    /// Until it is known that the trace is not serializable, if that is asked for.
    reach: Option<Reach>,
    cycle: Option<Vec<Tx>>,
    groups: Groups,
    instances: Vec<Instance>,
    violations: u64,
    violating_transactions: u64,
}

impl ActiveRegions {
    fn new(options: Options) -> Self {
        Self {
            options,
            threads: Vec::new(),
            slots: Vec::new(),
            begins: Vec::new(),
            free: Vec::new(),
            oldest: EventNumber::MAX,
            full: Forest::default(),
            data: Forest::default(),
            reach: options.serializability.then(Reach::default),
            cycle: None,
            groups: Groups::new(options.witnesses),
            instances: Vec::new(),
            violations: 0,
            violating_transactions: 0,
        }
    }

    fn counts(&self, counts: Counts) -> Counts {
        Counts {
            violations: self.violations,
            violating_transactions: self.violating_transactions,
            distinct_witnesses: self.groups.violations().len() as u64,
            unshown_violations: self.groups.unshown(),
            ..counts
        }
    }

    /// Whether the trace is serializable, and the cycle when no violation shows one.
    fn verdict(&mut self) -> (Option<bool>, Option<Vec<Tx>>) {
        if self.violations > 0 {
            return (Some(false), None);
        }
        let cycle = self.cycle.take();
        (self.options.serializability.then_some(cycle.is_none()), cycle)
    }

    fn both(&self) -> bool {
        self.options.relation == Relation::Full
    }

    /// Closes the innermost active region of the thread in that row.
    fn close(&mut self, row: usize) {
        let Some(slot) = self.threads[row].slots.pop() else { return };
        self.free.push(slot);
        let slot = slot as usize;
        self.threads[row].own.remove(slot);
        self.full.end(slot, row);
        if self.both() {
            self.data.end(slot, row);
        }
        let begin = std::mem::replace(&mut self.begins[slot], EventNumber::MAX);
        if begin == self.oldest {
            self.oldest = self.begins.iter().copied().min().unwrap_or(EventNumber::MAX);
        }
    }

    /// Closes all active regions.
    fn abandon(&mut self) {
        for row in 0..self.threads.len() {
            while !self.threads[row].slots.is_empty() {
                self.close(row);
            }
            self.threads[row].splits.clear();
            if let Some(reach) = &mut self.reach {
                reach.end(row);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn violation(&mut self, slot: usize, u: usize, dependency: &Dependency<'_>) {
        let event = dependency.source.event();
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let data = dependency.is_variable()
            && (!self.both()
                || self.data.reached(u, word) & bit != 0 && self.data.precedes(slot, u, event));
        let evidence = if data { Evidence::Data } else { Evidence::Sync };
        let forest = if data && self.both() { &self.data } else { &self.full };
        let Slot { region, begin, .. } = self.slots[slot];

        self.violations += 1;
        self.reach = None;
        let thread = &mut self.threads[dependency.row];
        self.violating_transactions += u64::from(!thread.violating);
        thread.violating = true;
        if self.options.instances {
            self.instances.push(Instance {
                begin_event: begin.event(),
                trigger_event: dependency.sink.event(),
                source_event: event,
            });
        }

        let closing = Step {
            source: dependency.source,
            sink: dependency.sink,
            object: dependency.object,
            order: dependency.order(),
        };
        let path = || std::iter::once(closing).chain(forest.path(slot, u));
        let splits = &thread.splits;
        self.groups.count(region, &begin, evidence, path(), || {
            let mut edges: Vec<_> = path().map(|step| step.edge()).collect();
            edges.reverse();
            // A nested region is a transaction within the outermost one, whose ordinal it shares.
            let transaction = Tx { region: Some(region), begin_event: begin.event(), ..begin.tx() };
            let mut witness = vec![transaction];
            for (index, edge) in edges.iter().enumerate() {
                if index > 0 && witness.last() != Some(&edge.source.tx) {
                    witness.push(edge.source.tx);
                }
                let last = index + 1 == edges.len();
                witness.push(if last { transaction } else { edge.sink.tx });
            }
            let racy = edges.iter().any(|edge| edge.order == Order::Racy);
            let first = edges.first().map_or(event, |edge| edge.source.event);
            Violation {
                region,
                occurrences: 1,
                evidence,
                order: if racy { Order::Racy } else { Order::Synchronised },
                transaction,
                begin: begin.point(),
                trigger_event: dependency.sink.event(),
                source_event: event,
                witness,
                splits: splits.since(first),
                edges,
            }
        });
    }
}

impl Visitor for ActiveRegions {
    fn started(&mut self, row: usize) {
        if row >= self.threads.len() {
            self.threads.resize_with(row + 1, Thread::default);
            self.full.grow(row + 1);
            self.data.grow(row + 1);
        }
        if let Some(reach) = &mut self.reach {
            reach.grow(row + 1);
        }
        self.threads[row].violating = false;
    }

    #[inline]
    fn dependency(&mut self, dependency: &Dependency<'_>) {
        let event = dependency.source.event();
        if event < self.oldest && self.reach.is_none() {
            return;
        }
        let variable = dependency.is_variable();
        if !variable && !self.both() {
            return;
        }
        let (Some(u), v) = (dependency.source_row(), dependency.row) else { return };
        if let Some(reach) = &mut self.reach {
            self.cycle = reach.dependency(u, dependency);
            if self.cycle.is_some() {
                self.reach = None;
            }
            if event < self.oldest {
                return;
            }
        }
        for word in 0..self.slots.len().div_ceil(64) {
            let reached = self.full.reached(u, word);
            if reached == 0 {
                continue;
            }
            for slot in slots(word, reached & self.threads[v].own.word(word)) {
                if self.full.precedes(slot, u, event) {
                    self.violation(slot, u, dependency);
                }
            }
            let fresh = reached & !self.full.reached(v, word);
            if fresh != 0 {
                self.full.extend(word, fresh, u, dependency);
            }
            if variable && self.both() {
                let fresh = self.data.reached(u, word) & !self.data.reached(v, word);
                if fresh != 0 {
                    self.data.extend(word, fresh, u, dependency);
                }
            }
        }
    }

    fn begin(&mut self, row: usize, now: &Access, region: RegionId, depth: usize) {
        let thread = &mut self.threads[row];
        if depth == 0 {
            thread.violating = false;
            thread.splits.clear();
            if let Some(reach) = &mut self.reach {
                reach.begin(row, now.event());
            }
        } else if self.options.regions == Regions::Outermost {
            return;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Slot { region, begin: *now, row };
                self.begins[slot as usize] = now.event();
                slot as usize
            }
            None => {
                self.slots.push(Slot { region, begin: *now, row });
                self.begins.push(now.event());
                self.slots.len() - 1
            }
        };
        thread.own.insert(slot);
        thread.slots.push(slot as u32);
        self.full.begin(slot, row, now);
        if self.both() {
            self.data.begin(slot, row, now);
        }
        self.oldest = self.oldest.min(now.event());
    }

    fn end(&mut self, row: usize, depth: usize) {
        let open = match self.options.regions {
            Regions::Outermost => depth.min(1),
            Regions::All => depth,
        };
        while self.threads[row].slots.len() > open {
            self.close(row);
        }
        if let Some(reach) = self.reach.as_mut().filter(|_| depth == 0) {
            reach.end(row);
        }
    }

    /// A region whose begin precedes an event of the thread has reached the thread, and what comes to follow one of
    /// its transactions only now does so by way of an active one that has. In the data relation it need not have,
    /// and still the order of events that the thread knows of can be asked for while a region is active that began
    /// before them.
    fn needs(&self, row: usize, last: &Access) -> bool {
        self.full.is_reached(row)
            || self.reach.as_ref().is_some_and(|reach| reach.is_reached(row))
            || !self.both() && last.event() >= self.oldest
    }

    fn acquired(&mut self, row: usize, lock: LockId, now: &Access) {
        let thread = &mut self.threads[row];
        if self.options.splits && !thread.slots.is_empty() {
            thread.splits.acquired(lock, now);
        }
    }

    fn released(&mut self, row: usize, lock: LockId, now: &Access) {
        let thread = &mut self.threads[row];
        if self.options.splits && !thread.slots.is_empty() {
            thread.splits.released(lock, now);
        }
    }

    fn reset(&mut self, lock: LockId) {
        let active = |&slot: &usize| self.begins[slot] != EventNumber::MAX;
        for slot in (0..self.slots.len()).filter(active) {
            self.threads[self.slots[slot].row].splits.forget(lock);
        }
    }
}
