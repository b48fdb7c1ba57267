//! Velodrome: the graph of transactions with timestamps (Flanagan, Freund and Yi, "Velodrome: A Sound and
//! Complete Dynamic Atomicity Checker for Multithreaded Programs", as the papers on DoubleChecker, section
//! 2, and Davida describe it).
//!
//! Transactions are nodes, dependencies and program order are edges. A dependency that would close a cycle
//! shows that the trace is not serializable. The transaction of its sink is blamed if the cycle found is
//! increasing: no dependency of the cycle leaves a transaction at an event before the one at which its
//! predecessor entered it.
//!
//! Like the original, it is complete for the trace, and not for transactions: of the dependencies between
//! the same two transactions only the first is stored, one path is found where there may be several, and a
//! path that blames no transaction is not examined again.
//!
//! Garbage collection: a transaction that has ended gets no more incoming edges. If it has none, it can be
//! on no cycle and is forgotten, which may leave others with none. A unary transaction whose only edge is
//! that of program order is not added: its events belong to the transaction before it. This is equivalent,
//! since every path to the one passes through the other.
//!
//! Departures from the paper:
//! - the timestamps are event numbers;
//! - a dependency that would close a cycle is left out, so that the graph stays free of cycles and
//!   collectable;
//! - the order of the search, which the sources leave open, is: dependencies in the order of arrival, then
//!   program order.
//!
//! Invariants: the graph has no cycle; a live transaction's followers in its thread are live; a transaction
//! that is not live is on no cycle, now or later.

mod cycles;
mod graph;

pub(crate) use cycles::Cycles;
pub(crate) use graph::Link;

use crate::check::{Capabilities, Checker, Options, Relation};
use crate::error::EventError;
use crate::event::{Event, EventNumber, RegionId};
use crate::finding::{Counts, Findings};
use crate::hb::{Dependency, Engine, EventStamp, Visitor};

/// Velodrome as a checker: whether the trace is serializable, and some of the violating transactions, each with a
/// cycle as its witness.
///
/// Every violation is one that Davida finds too, of the same trigger and source, though not all of Davida's are found.
/// Its evidence is `Data` when all edges of its witness are on variables. When the trace is not serializable and nothing
/// is blamed, `Findings::cycle` is the first cycle. Only outermost regions are transactions: `Options::regions` has no
/// effect, nor have `Options::serializability` and `Options::released_locks`.
///
/// Memory: the live transactions and their edges, which an old active transaction can make as many as there are. Time:
/// O(live edges) for a dependency whose sink's transaction has outgoing edges.
///
/// ```
/// use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
/// use checker::{Checker, Options, Velodrome};
///
/// let mut checker = Velodrome::new(Options::default());
/// let x = VarId(0);
/// for (thread, op) in [(0, Op::Begin(RegionId(0))), (0, Op::Read(x)), (1, Op::Write(x)), (0, Op::Write(x))] {
///     checker.event(&Event { thread: ThreadId(thread), op, location: LocationId(0) })?;
/// }
/// let findings = checker.finish();
/// assert_eq!(findings.serializable, Some(false));
/// assert_eq!(findings.violations[0].edges.len(), 2);
/// # Ok::<(), checker::EventError>(())
/// ```
pub struct Velodrome {
    engine: Engine,
    state: State,
}

impl Velodrome {
    /// Options that the algorithm honours, and its results.
    pub const CAPABILITIES: Capabilities =
        Capabilities { nested: false, instances: true, witnesses: true, interleavings: false };

    /// Creates a checker at the start of a trace.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), state: State::new(options) }
    }

    /// Returns the number of transactions in the graph.
    #[must_use]
    pub fn live_transactions(&self) -> usize {
        self.state.cycles.graph.len()
    }
}

impl Checker for Velodrome {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        let result = self.engine.step(event, &mut self.state);
        self.state.cycles.end_unary();
        result
    }

    fn gap(&mut self) {
        self.engine.gap();
        self.state.cycles.end_all();
    }

    fn counts(&self) -> Counts {
        self.state.cycles.counts(self.engine.counts)
    }

    fn finish(&mut self) -> Findings {
        let counts = self.counts();
        let lenient = self.engine.is_lenient();
        self.engine = Engine::new(lenient);
        self.state.cycles.finish(counts)
    }
}

struct State {
    relation: Relation,
    cycles: Cycles,
}

impl State {
    fn new(options: Options) -> Self {
        Self { relation: options.relation, cycles: Cycles::new(&options) }
    }
}

impl Visitor for State {
    fn started(&mut self, row: usize) {
        self.cycles.start(row);
    }

    fn is_relevant(&self, row: Option<usize>, source: &EventStamp) -> bool {
        let first = row.and_then(|row| self.cycles.graph.first(row));
        first.is_some_and(|first| first <= source.tx_begin())
    }

    fn dependency(&mut self, dependency: &Dependency<'_>) {
        if self.relation == Relation::Data && !dependency.is_variable() {
            return;
        }
        let (Some(u), v) = (dependency.source_row(), dependency.row) else { return };
        let (source, sink) = (*dependency.source, *dependency.sink);
        let order = dependency.order();
        let link = Link { source, sink, object: dependency.object, order };
        self.cycles.link(u, v, link, &|link| link.order);
    }

    fn begin(&mut self, row: usize, now: &EventStamp, _region: RegionId, depth: usize) {
        if depth == 0 {
            self.cycles.begin(row, now);
        }
    }

    fn end(&mut self, row: usize, _number: EventNumber, depth: usize) {
        if depth == 0 {
            self.cycles.end(row);
        }
    }

    /// An event of the thread is only relevant if its transaction is live. In the data relation it need not
    /// be live, and yet the order of the events that the thread knows of can be asked for.
    fn must_retain(&self, row: usize, last: &EventStamp) -> bool {
        let (graph, data) = (&self.cycles.graph, self.relation == Relation::Data);
        graph.first(row).is_some()
            || data && graph.oldest().is_some_and(|oldest| oldest <= last.event())
    }
}
