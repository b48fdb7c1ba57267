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
//! - every level of a nest can be a region of its own;
//! - the same algorithm runs on the data relation, whose trees are within those of the full relation.
//!
//! Invariants: a slot's bit is in column `Own` of one thread exactly while its region is active; the bits
//! of a thread in the data relation are among those in the full relation; a thread's lower bound is no
//! later than anything of it that a region has reached, so that a dependency on an earlier event is
//! relevant to no region.

mod cycle;
mod forest;
#[cfg(test)]
mod memory_bounds;
mod released_locks;

use crate::check::{Capabilities, Checker, DeferredChecker, Options, Regions, Relation};
use crate::error::EventError;
use crate::event::{Event, EventNumber, LocationId, LockId, RegionId, SyncId, ThreadId, VarId};
use crate::finding::{
    Counts, DataSeen, Edge, Evidence, Findings, Instance, Object, Order, Tx, Violation,
};
use crate::hb::{Dependency, Engine, EventStamp, Timestamp, Visitor, transactions_without_data};
use crate::verdicts::Verdicts;
use forest::{Column, Forest, Node, RegionBits, slots};
use released_locks::{Hold, ReleasedLocks};

/// Region of a unary transaction in a key.
const NO_REGION: u32 = u32::MAX;

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
        Capabilities { nested: true, instances: true, witnesses: true };

    /// Creates a checker at the start of a trace.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), regions: ActiveRegions::new(options) }
    }

    /// Returns the distinct violations so far, in the order of their first occurrence.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        self.regions.verdicts.distinct()
    }
}

impl Checker for Davida {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        self.engine.step(event, &mut self.regions)
    }

    fn events(&mut self, events: &[Event]) -> Result<(), EventError> {
        for events in events.chunks(PREFETCHED) {
            self.engine.prefetch(events);
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
        self.regions.verdicts.counts(self.engine.counts)
    }

    fn finish(&mut self) -> Findings {
        let counts = self.counts();
        let options = self.regions.options;
        let mut regions = std::mem::replace(self, Self::new(options)).regions;
        let (serializable, cycle) = regions.verdict();
        let (cycle, cycle_edges) = cycle.unzip();
        let cycle_edges = cycle_edges.unwrap_or_default();
        let (violations, instances) = regions.verdicts.into_lists();
        Findings {
            counts,
            serializable,
            cycle,
            cycle_edges,
            violations,
            instances,
            ..Findings::default()
        }
    }
}

impl DeferredChecker for Davida {
    fn timestamp(&self, thread: ThreadId) -> Option<Timestamp> {
        self.engine.timestamp(thread)
    }

    fn oldest_active(&self) -> EventNumber {
        let active = self.regions.slots.iter().filter(|slot| slot.active);
        active.map(|slot| slot.begin.event()).min().unwrap_or(self.engine.counts.events)
    }

    fn insert_deferred_access(
        &mut self,
        timestamp: &Timestamp,
        variable: VarId,
        writes: bool,
        location: LocationId,
    ) {
        self.engine.insert_deferred_access(timestamp, variable, writes, location);
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

/// State of a thread, besides its rows in the forest.
#[derive(Default)]
struct Thread {
    /// Slots of its active regions, outermost first.
    slots: Vec<u32>,
    released_locks: ReleasedLocks,
    /// Set once its current transaction is counted as violating.
    violating: bool,
}

/// Region in a slot.
#[derive(Clone, Copy)]
struct Slot {
    region: RegionId,
    begin: EventStamp,
    /// Row of its thread.
    row: usize,
    active: bool,
}

/// Transactions in a cycle, and the dependencies between them.
type Cycle = (Vec<Tx>, Vec<Edge>);

struct ActiveRegions {
    options: Options,
    threads: Vec<Thread>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    forest: Forest,
    /// Columns of the forest that are in use, as full words. The data relation has a column of its own
    /// unless it is the relation asked for; transactions are followed until the trace is known not to be
    /// serializable.
    columns: RegionBits,
    cycle: Option<Cycle>,
    verdicts: Verdicts,
    /// Last hold of each lock that has ended.
    holds: Vec<Option<Hold>>,
}

impl ActiveRegions {
    fn new(options: Options) -> Self {
        let mut columns = RegionBits::ALL;
        if options.relation != Relation::Full {
            columns[Column::Data] = 0;
        }
        if !options.serializability {
            columns[Column::Reach] = 0;
        }
        Self {
            options,
            threads: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            forest: Forest::default(),
            columns,
            cycle: None,
            verdicts: Verdicts::new(&options),
            holds: Vec::new(),
        }
    }

    /// Returns whether the trace is serializable, and the cycle if no violation shows one.
    fn verdict(&mut self) -> (Option<bool>, Option<Cycle>) {
        if !self.verdicts.is_empty() {
            return (Some(false), None);
        }
        let cycle = self.cycle.take();
        (self.options.serializability.then_some(cycle.is_none()), cycle)
    }

    fn is_full_relation(&self) -> bool {
        self.options.relation == Relation::Full
    }

    /// Closes the innermost active region of the thread in that row.
    fn close(&mut self, row: usize) {
        let Some(slot) = self.threads[row].slots.pop() else { return };
        self.free.push(slot);
        self.slots[slot as usize].active = false;
        self.forest.end(slot as usize, row);
    }

    /// Stops following transactions: the trace is known not to be serializable.
    fn decide(&mut self) {
        if std::mem::take(&mut self.columns[Column::Reach]) != 0 {
            self.forest.forget(Column::Reach);
        }
    }

    /// Closes all active regions.
    fn abandon(&mut self) {
        for row in 0..self.threads.len() {
            while !self.threads[row].slots.is_empty() {
                self.close(row);
            }
            self.threads[row].released_locks.clear();
        }
    }

    /// Handles a dependency from a thread that regions have reached: it may violate those in `closed`,
    /// which are regions of the sink's thread, and lets those in `fresh` reach the sink's thread.
    fn grow(
        &mut self,
        word: usize,
        closed: u64,
        fresh: RegionBits,
        u: usize,
        dependency: &Dependency<'_>,
    ) {
        let mut fresh = self.forest.in_time(word, fresh, u, dependency.source);
        if closed | fresh.in_any_relation() == 0 {
            return;
        }
        let node = Node::new(u, dependency);
        let own = self.threads[dependency.row].slots.first().map(|&slot| slot as usize);
        if closed != 0 {
            self.close_cycles(word, closed, own, &node, dependency.is_variable());
            fresh[Column::Reach] &= self.columns[Column::Reach];
        }
        self.forest.extend(word, fresh, own, &node);
    }

    /// Handles a dependency from a thread that the regions in `closed`, all of the sink's thread, have
    /// reached.
    fn close_cycles(
        &mut self,
        word: usize,
        closed: u64,
        own: Option<usize>,
        node: &Node,
        variable: bool,
    ) {
        if self.columns[Column::Reach] != 0 {
            self.cycle = own.and_then(|own| cycle::closed_by(&self.forest, own, node));
            if self.cycle.is_some() {
                self.decide();
            }
        }
        let (u, event) = (node.from(), node.source.event());
        for slot in slots(word, closed) {
            let reached = self.forest.contains(Column::Full, u, slot);
            if reached && self.forest.first(Column::Full, u, slot) <= event {
                self.violation(slot, node, variable);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn violation(&mut self, slot: usize, closing: &Node, variable: bool) {
        let (u, event) = (closing.from(), closing.source.event());
        let in_data = || {
            self.forest.contains(Column::Data, u, slot)
                && self.forest.first(Column::Data, u, slot) <= event
        };
        let data = variable && (!self.is_full_relation() || in_data());
        let evidence = if data { Evidence::Data } else { Evidence::Sync };
        let column = if data && self.is_full_relation() { Column::Data } else { Column::Full };
        let Slot { region, begin, .. } = self.slots[slot];

        self.decide();
        let instance = Instance {
            begin_event: begin.event(),
            trigger_event: closing.sink.event(),
            source_event: event,
        };
        let Thread { released_locks: locks, violating, .. } = &mut self.threads[closing.row()];
        let path = || std::iter::once(closing).chain(self.forest.path(column, slot, u));
        let (forest, relation) = (&self.forest, self.options.relation);
        let key = |key: &mut Vec<u32>| put_key(key, region, &begin, evidence, path());
        self.verdicts.count(instance, violating, key, || {
            let mut edges: Vec<_> = path().map(Node::edge).collect();
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
            let data = match evidence {
                Evidence::Data => DataSeen::default(),
                Evidence::Sync => {
                    let path: Vec<&Node> = path().collect();
                    data_seen(forest, relation, slot, transaction, &path)
                }
            };
            let racy = edges.iter().any(|edge| edge.order == Order::Racy);
            let first = edges.first().map_or(event, |edge| edge.source.event);
            Violation {
                region,
                occurrences: 1,
                evidence,
                order: if racy { Order::Racy } else { Order::Synchronised },
                transaction,
                begin: begin.point(),
                trigger_event: closing.sink.event(),
                source_event: event,
                witness,
                released_locks: locks.since(first, &edges),
                data,
                edges,
            }
        });
    }
}

/// Appends what instances with the same static witness share: the region, the location of its begin, and the regions
/// and code locations along the path.
fn put_key<'a>(
    key: &mut Vec<u32>,
    region: RegionId,
    begin: &EventStamp,
    evidence: Evidence,
    path: impl Iterator<Item = &'a Node>,
) {
    key.extend([region.0, begin.location().0, evidence as u32]);
    let region = |access: &EventStamp| access.region().map_or(NO_REGION, |region| region.0);
    for Node { source, sink, .. } in path {
        key.extend([source.location().0, region(source), sink.location().0, region(sink)]);
    }
}

/// Returns the role of data in the violation of the region in `slot` that has the dependencies of `path`.
/// Without the data relation, only the dependencies on the path are known.
fn data_seen(
    forest: &Forest,
    relation: Relation,
    slot: usize,
    transaction: Tx,
    path: &[&Node],
) -> DataSeen {
    let ends = || path.iter().flat_map(|node| [&node.source, &node.sink]);
    let mut without = transactions_without_data(ends());
    for tx in &mut without {
        // A nested region has its own begin.
        if tx.thread == transaction.thread && tx.ordinal == transaction.ordinal {
            *tx = transaction;
        }
    }
    let of_witness = |access: &EventStamp| ends().any(|end| end.tx() == access.tx());
    let reached =
        |row: &usize| relation == Relation::Full && forest.contains(Column::Data, *row, slot);
    let rows = path.iter().map(|node| node.from()).filter(reached);
    let by_data = rows.flat_map(|row| forest.path(Column::Data, slot, row));
    let mut met = Vec::new();
    for node in path.iter().copied().chain(by_data) {
        if let Object::Variable(variable) = node.object
            && of_witness(&node.source)
            && of_witness(&node.sink)
            && !met.contains(&variable)
        {
            met.push(variable);
        }
    }
    DataSeen { without, met }
}

impl Visitor for ActiveRegions {
    fn started(&mut self, row: usize) {
        if row >= self.threads.len() {
            self.threads.resize_with(row + 1, Thread::default);
            self.forest.grow(row + 1);
        }
        self.threads[row].violating = false;
    }

    #[inline(always)]
    fn is_relevant(&self, row: Option<usize>, source: &EventStamp) -> bool {
        self.forest.lower_bound(row).is_reached(source)
    }

    #[inline(never)]
    fn dependency(&mut self, dependency: &Dependency<'_>) {
        let variable = dependency.is_variable();
        if let Object::Lock(lock) = dependency.object
            && self.options.released_locks
            && !self.threads[dependency.row].slots.is_empty()
            && let Some(&Some(hold)) = self.holds.get(lock.index())
            && hold.released == dependency.source.event()
        {
            self.threads[dependency.row].released_locks.held_between(lock, dependency.sink, hold);
        }
        if !variable && !self.is_full_relation() {
            return;
        }
        let (Some(u), v) = (dependency.source_row(), dependency.row) else { return };
        // Many dependencies on variables come from before everything that regions have reached.
        if variable && !self.forest.is_reached(u, dependency.source) {
            return;
        }
        for word in 0..self.slots.len().div_ceil(64) {
            let (from, to) = (self.forest.bits(u, word), self.forest.bits(v, word));
            let mut fresh = from.without(to);
            fresh[Column::Data] &= u64::from(variable).wrapping_neg();
            let closed = (from[Column::Full] | from[Column::Reach]) & to[Column::Own];
            if closed | fresh.in_any_relation() != 0 {
                self.grow(word, closed, fresh, u, dependency);
            }
        }
    }

    fn begin(&mut self, row: usize, now: &EventStamp, region: RegionId, depth: usize) {
        let thread = &mut self.threads[row];
        if depth == 0 {
            thread.violating = false;
            thread.released_locks.clear();
        } else if self.options.regions == Regions::Outermost {
            return;
        }
        let opened = Slot { region, begin: *now, row, active: true };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = opened;
                slot as usize
            }
            None => {
                self.slots.push(opened);
                self.slots.len() - 1
            }
        };
        thread.slots.push(slot as u32);
        let mut columns = self.columns;
        if depth > 0 {
            columns[Column::Reach] = 0;
        }
        self.forest.begin(slot, row, now.event(), columns);
    }

    fn end(&mut self, row: usize, _number: EventNumber, depth: usize) {
        let open = match self.options.regions {
            Regions::Outermost => depth.min(1),
            Regions::All => depth,
        };
        while self.threads[row].slots.len() > open {
            self.close(row);
        }
    }

    /// A region whose begin precedes an event of the thread has reached the thread, and a region that comes
    /// to precede one of its transactions later does so through an active one that has. In the data
    /// relation a region need not have reached the thread, and yet the order of the events that the thread
    /// knows of is asked for while a region is active that began before them.
    fn must_retain(&self, row: usize, last: &EventStamp) -> bool {
        let mut active = self.slots.iter().filter(|slot| slot.active);
        !self.forest.is_unreached(row)
            || !self.is_full_relation() && active.any(|slot| slot.begin.event() <= last.event())
    }

    fn acquired(&mut self, row: usize, lock: LockId, now: &EventStamp) {
        let thread = &mut self.threads[row];
        if self.options.released_locks && !thread.slots.is_empty() {
            thread.released_locks.acquired(lock, now);
        }
    }

    fn released(&mut self, row: usize, lock: LockId, now: &EventStamp, since: EventNumber) {
        if self.options.released_locks {
            let index = lock.index();
            if index >= self.holds.len() {
                self.holds.resize(index + 1, None);
            }
            let (thread, released) = (now.thread(), now.event());
            self.holds[index] = Some(Hold { thread, acquired: since, released });
        }
        let thread = &mut self.threads[row];
        if self.options.released_locks && !thread.slots.is_empty() {
            thread.released_locks.released(lock, now);
        }
    }

    fn reset(&mut self, lock: LockId) {
        for slot in self.slots.iter().filter(|slot| slot.active) {
            self.threads[slot.row].released_locks.forget(lock);
        }
    }
}
