//! Commit nodes: conflict- and view-atomicity over all interleavings of a recorded trace (L. Wang and S. D. Stoller,
//! "Accurate and Efficient Runtime Detection of Atomicity Errors in Concurrent Programs", PPoPP 2006).
//!
//! Units of the trace, which are transactions and single events outside of all regions, become access trees (`unit`):
//! accesses, and around them the sections of locks. Accesses of concurrent units that may meet are connected at the
//! outermost sections that exclude one another, or at themselves if there are none (`forest`). What has such an
//! inter-edge is a *communication node*; one that contains no other is a *commit node*. A transaction with one commit
//! node can be moved there as a whole, in every interleaving (`theorems`).
//!
//! | condition | theorem (view) | verdict |
//! |---|---|---|
//! | no transaction has two commit nodes | 4.1 (4.4) | atomic |
//! | no cycle leads through two nodes of a transaction of which none contains the other | 4.3 (4.6) | atomic |
//! | a transaction has two commit nodes in the forest of itself and one other | 4.2 (4.5) | not atomic |
//! | all else, or there is a potential deadlock, or units were left out | | not decided |
//!
//! The first two are sufficient only. The third is exact for two transactions alone; that the rest of the trace lets
//! them overlap is known from forks, joins, signals and barriers, and not from locks. For view-atomicity it decides
//! only about a trace of two units.
//!
//! Departures, as the paper is wrong or silent:
//!
//! - *Commit nodes*, in section 3.3, are "not contained in any other communication nodes"; in the introduction, in
//!   the example there and in all proofs they are those that contain none. The latter is right: by the definition of
//!   section 3.3, `acq(l) W(y) acq(m) W(x) rel(m) acq(m) W(x) rel(m) rel(l)` would have one commit node beside
//!   `acq(m) W(x) rel(m)` and `acq(l) W(y) rel(l)`, and it is not atomic.
//! - *View-atomicity of two among others.* Theorem 4.5 is about two transactions alone, and section 8 compares pairs of
//!   larger sets with it. A pair that is not view-atomic may be so among others: a further write can hide which of two
//!   was the last, or be what a read finds. With `W(x)` before `t1 = R(x) W(x)` in its thread, and `t2 = W(x)`, all
//!   interleavings are view-serializable. (Conflicts do not vanish.)
//! - *Program order between units.* The test of section 2 (no cycle of the serialization graph with two transactions
//!   or more) and Theorem 4.3 see conflicts only, though a serial trace keeps the order of each thread too. With
//!   `t1 = W(x)` and `t2 = R(y)` of one thread, `u = R(x) W(y)` of another one has two communication nodes on no cycle
//!   of the forest, and yet `u.R(x) t1.W(x) t2.R(y) u.W(y)` is equal to no serial trace. Cycles may pass from a unit to
//!   any that follows it in all interleavings here.
//! - *Cycles with one transaction.* The test of section 2 asks for two transactions in a cycle, as a non-transactional
//!   unit has several events that need not be contiguous. But one event of another thread between two accesses of a
//!   transaction is enough. Here each event outside of all regions is a unit of its own, and every cycle counts.
//! - *Synchronisation outside of transactions* is excluded by the theorems; the paper takes such sections for
//!   transactions. Nobody has said that these are atomic. Here their events are units that hold the lock. The verdict
//!   is about the order of accesses then: a serial trace may split such a section.
//! - *Sections that are not nested*, or that begin before a unit or end after it, are no tree. A section is an interval
//!   of the unit here, cut at its ends, and contains what lies within. The proofs hold for intervals: all communication
//!   nodes of a unit with one commit node contain that, so that all their locks are held there at a time.
//! - *Start, join and barriers* in a transaction split it, as in the paper, and so do signals and waits, which order
//!   here as well (section 7.4 leaves them out). Such transactions are counted.
//! - *Reader-writer locks* exclude unless both holds are shared. *Updates* in one step are a read and a write of one
//!   leaf. *Commuting updates* do not conflict with one another; for view-atomicity they are updates.
//! - *Two different variables for view-atomicity, and reads that find their own unit's write*: the own write has an
//!   inter-edge to the others that the read may find, as figure 5 says; the text of section 3.2.2 names only writes of
//!   two units.
//! - *The redundant copies of trees*: the paper keeps two of each. Here one for each thread and period is kept with the
//!   number of copies; all have the same inter-edges. For cycles its first and its last copy count.

mod forest;
mod theorems;
mod unit;

use crate::check::{Capabilities, Checker, Options};
use crate::deadlock::Observer;
use crate::error::EventError;
use crate::event::{Event, EventNumber, LockId, Op, RegionId, ThreadId, VarId};
use crate::finding::{Atomicity, Counts, Findings};
use crate::hb::{Dependency, EndedHold, Engine, EventStamp, Visitor};
use crate::must_order::{MustOrder, orders};
use forest::Period;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use unit::{Building, Held, Kind, Units};

/// The commit-node algorithm as a checker: atomicity over all interleavings, in [`Findings::atomicity`]. It lists no
/// violations, since it looks for possible ones, and does not decide whether the trace itself is serializable.
///
/// `Options::witnesses` limits the patterns that are listed. Only outermost regions are transactions:
/// `Options::regions` has no effect, nor have `Options::relation`, `Options::serializability` and
/// `Options::released_locks`.
///
/// Memory: all different units, with about 70 bytes for each access, up to 2²⁴ accesses. Time: that of the engine for
/// an event; at the end, for each variable the product of the ways in which threads access it (kind, locks, period),
/// and for suspects comparisons and searches, both limited.
///
/// ```
/// use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
/// use checker::{Checker, CommitNode, Options};
///
/// // Nobody came in, though somebody could have.
/// let mut checker = CommitNode::new(Options::default());
/// let x = VarId(0);
/// let trace = [
///     (0, Op::Begin(RegionId(0))),
///     (0, Op::Read(x)),
///     (0, Op::Write(x)),
///     (0, Op::End(None)),
///     (1, Op::Write(x)),
/// ];
/// for (line, (thread, op)) in (0..).zip(trace) {
///     checker.event(&Event { thread: ThreadId(thread), op, location: LocationId(line) })?;
/// }
/// let atomicity = checker.finish().atomicity.expect("this algorithm decides it");
/// assert_eq!(atomicity.atomic, Some(false));
/// assert_eq!(atomicity.patterns[0].remotes[0].thread, ThreadId(1));
/// # Ok::<(), checker::EventError>(())
/// ```
pub struct CommitNode {
    engine: Engine,
    state: State,
}

impl CommitNode {
    /// Options that the algorithm honours, and its results.
    pub const CAPABILITIES: Capabilities =
        Capabilities { nested: false, instances: false, witnesses: false, interleavings: true };

    /// Creates a checker at the start of a trace.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), state: State::new(options) }
    }

    /// Sets whether trees are trimmed (section 7.2), which changes no verdict.
    #[must_use]
    pub fn trimming(mut self, trims: bool) -> Self {
        self.state.trims = trims;
        self
    }
}

impl Checker for CommitNode {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        let Self { engine, state } = self;
        let ignored = engine.counts.ignored_events;
        let number = engine.counts.events;
        state.event = Some(*event);
        engine.step(event, state)?;
        if engine.counts.ignored_events > ignored {
            return Ok(());
        }
        state.deadlocks.event(event);
        if orders(event.op) {
            state.split(event.thread);
            state.order.event(event, number);
            state.continue_after(event.thread, number);
        }
        match event.op {
            Op::Alloc(variable) => drop(state.variables.remove(&variable)),
            // Accesses to the whole may conflict with those to the part.
            Op::SplitVariable { from, to } => {
                let whole = state.variable(from);
                state.variables.insert(to, whole);
            }
            _ => {}
        }
        if let Some((variable, kind)) = accessed(event.op)
            && let Some(stamp) = engine.row(event.thread).and_then(|row| engine.last(row))
        {
            state.access(event.thread, variable, kind, stamp);
        }
        Ok(())
    }

    fn gap(&mut self) {
        self.engine.gap();
        self.state.gap();
    }

    fn counts(&self) -> Counts {
        self.engine.counts
    }

    fn finish(&mut self) -> Findings {
        let counts = self.engine.counts;
        let atomicity = self.state.finish();
        let mut state = State { trims: self.state.trims, ..State::new(self.state.options) };
        std::mem::swap(&mut self.state, &mut state);
        self.engine = Engine::new(state.options.lenient);
        Findings { atomicity: Some(atomicity), ..Findings::from_counts(counts) }
    }
}

fn accessed(op: Op) -> Option<(VarId, Kind)> {
    match op {
        Op::Read(variable) => Some((variable, Kind::Read)),
        Op::Write(variable) | Op::Free(variable) => Some((variable, Kind::Write)),
        Op::Update(variable) => Some((variable, Kind::Update)),
        Op::CommutingUpdate(variable) => Some((variable, Kind::Commuting)),
        _ => None,
    }
}

#[derive(Default)]
struct Thread {
    held: Vec<Held>,
    /// Transaction that goes on.
    unit: Option<Building>,
    /// Set within an outermost region.
    is_inside: bool,
    /// Set if the region was split.
    is_split: bool,
    period: Option<u32>,
}

struct State {
    options: Options,
    trims: bool,
    order: MustOrder,
    deadlocks: Observer,
    /// Event that the engine handles.
    event: Option<Event>,
    threads: FxHashMap<ThreadId, Thread>,
    rows: Vec<ThreadId>,
    periods: Vec<Period>,
    units: Units,
    split_transactions: u64,
    /// Number of each variable in its life, and its id.
    variables: FxHashMap<VarId, u32>,
    ids: Vec<VarId>,
    locks: FxHashMap<LockId, u32>,
    next_lock: u32,
}

impl State {
    fn new(options: Options) -> Self {
        Self {
            options,
            trims: true,
            order: MustOrder::default(),
            deadlocks: Observer::default(),
            event: None,
            threads: FxHashMap::default(),
            rows: Vec::new(),
            periods: Vec::new(),
            units: Units::default(),
            split_transactions: 0,
            variables: FxHashMap::default(),
            ids: Vec::new(),
            locks: FxHashMap::default(),
            next_lock: 0,
        }
    }

    fn variable(&mut self, variable: VarId) -> u32 {
        *self.variables.entry(variable).or_insert_with(|| {
            self.ids.push(variable);
            self.ids.len() as u32 - 1
        })
    }

    fn lock(&mut self, lock: LockId) -> u32 {
        *self.locks.entry(lock).or_insert_with(|| {
            self.next_lock += 1;
            self.next_lock
        })
    }

    fn period(&mut self, id: ThreadId) -> u32 {
        let thread = self.threads.entry(id).or_default();
        *thread.period.get_or_insert_with(|| {
            let known = Arc::clone(self.order.known(id));
            self.periods.push(Period { thread: id, known, last: 0 });
            self.periods.len() as u32 - 1
        })
    }

    fn start(&mut self, id: ThreadId, number: EventNumber, is_transaction: bool) -> Building {
        let period = self.period(id);
        let thread = self.threads.entry(id).or_default();
        Building::new(id, period, number, &thread.held, is_transaction)
    }

    fn access(&mut self, id: ThreadId, variable: VarId, kind: Kind, stamp: EventStamp) {
        let variable = self.variable(variable);
        let trims = self.trims;
        let number = stamp.event();
        let period = self.period(id);
        self.periods[period as usize].last = number;
        let thread = self.threads.entry(id).or_default();
        match &mut thread.unit {
            Some(unit) => unit.access(variable, kind, stamp, trims),
            None => {
                let mut unit = Building::new(id, period, number, &thread.held, false);
                unit.access(variable, kind, stamp, trims);
                unit.end().into_iter().for_each(|unit| self.units.add(unit));
            }
        }
    }

    /// Ends the unit of a thread, before an event that orders it with others.
    fn split(&mut self, id: ThreadId) {
        let thread = self.threads.entry(id).or_default();
        let unit = thread.unit.take().and_then(Building::end);
        unit.into_iter().for_each(|unit| self.units.add(unit));
    }

    /// Starts another unit after such an event, if the transaction goes on.
    fn continue_after(&mut self, id: ThreadId, number: EventNumber) {
        let thread = self.threads.entry(id).or_default();
        thread.period = None;
        if thread.is_inside {
            let is_new = !std::mem::replace(&mut thread.is_split, true);
            self.split_transactions += u64::from(is_new);
            let unit = self.start(id, number, true);
            self.threads.entry(id).or_default().unit = Some(unit);
        }
    }

    fn gap(&mut self) {
        self.deadlocks.gap();
        let ids: Vec<ThreadId> = self.threads.keys().copied().collect();
        for id in ids {
            self.split(id);
            let thread = self.threads.entry(id).or_default();
            thread.held.clear();
            (thread.is_inside, thread.is_split) = (false, false);
        }
    }

    fn finish(&mut self) -> Atomicity {
        let ids: Vec<ThreadId> = self.threads.keys().copied().collect();
        ids.into_iter().for_each(|id| self.split(id));
        self.units.complete();
        let Self { units, periods, ids, options, .. } = self;
        let limit = options.witnesses.min(1000);
        let mut outcome = theorems::check(&units.all, periods, options.property, ids, limit);
        outcome.split_transactions = self.split_transactions;
        outcome.left_out = self.units.left_out;
        let deadlocks = self.deadlocks.deadlocks();
        let presumes_none = deadlocks.found.is_empty() && !deadlocks.is_incomplete;
        // Units that were left out could only add inter-edges.
        let is_whole = outcome.left_out == 0 || outcome.atomic == Some(false);
        if !presumes_none || !is_whole {
            (outcome.atomic, outcome.theorem) = (None, None);
        }
        outcome.deadlocks = deadlocks.found;
        outcome
    }

    fn held_of(&mut self, lock: LockId) -> Option<(ThreadId, Held)> {
        let event = self.event?;
        let is_shared = matches!(event.op, Op::AcquireShared(_) | Op::ReleaseShared(_));
        let lock = self.lock(lock);
        Some((event.thread, Held { lock, is_shared }))
    }
}

impl Visitor for State {
    fn started(&mut self, row: usize) {
        let thread = self.event.map_or(ThreadId(u32::MAX), |event| event.thread);
        if row >= self.rows.len() {
            self.rows.resize(row + 1, thread);
        }
        self.rows[row] = thread;
    }

    fn is_relevant(&self, _row: Option<usize>, _source: &EventStamp) -> bool {
        false
    }

    fn dependency(&mut self, _dependency: &Dependency<'_>) {}

    fn begin(&mut self, row: usize, now: &EventStamp, _region: RegionId, depth: usize) {
        if depth > 0 {
            return;
        }
        let id = self.rows[row];
        let unit = self.start(id, now.event(), true);
        let thread = self.threads.entry(id).or_default();
        thread.unit = Some(unit);
        (thread.is_inside, thread.is_split) = (true, false);
    }

    fn end(&mut self, row: usize, _number: EventNumber, depth: usize) {
        if depth == 0 {
            let id = self.rows[row];
            self.split(id);
            self.threads.entry(id).or_default().is_inside = false;
        }
    }

    fn must_retain(&self, _row: usize, _last: &EventStamp) -> bool {
        false
    }

    fn acquired(&mut self, _row: usize, lock: LockId, _now: &EventStamp) {
        let Some((id, held)) = self.held_of(lock) else { return };
        let thread = self.threads.entry(id).or_default();
        thread.held.push(held);
        thread.unit.iter_mut().for_each(|unit| unit.acquire(held));
    }

    fn released(&mut self, _row: usize, lock: LockId, _now: &EventStamp, _hold: EndedHold) {
        let Some((id, held)) = self.held_of(lock) else { return };
        let thread = self.threads.entry(id).or_default();
        if let Some(index) = thread.held.iter().rposition(|known| *known == held) {
            thread.held.remove(index);
        }
        thread.unit.iter_mut().for_each(|unit| unit.release(held));
    }

    fn reset(&mut self, lock: LockId) {
        let Some(old) = self.locks.remove(&lock) else { return };
        for thread in self.threads.values_mut() {
            for is_shared in [false, true] {
                let held = Held { lock: old, is_shared };
                thread.held.retain(|known| *known != held);
                thread.unit.iter_mut().for_each(|unit| unit.release(held));
            }
        }
    }
}
