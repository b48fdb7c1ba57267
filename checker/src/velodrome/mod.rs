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

mod graph;

use crate::check::{Capabilities, Checker, Options, Relation};
use crate::error::EventError;
use crate::event::{Event, EventNumber, RegionId};
use crate::finding::{
    Counts, DataSeen, Edge, Evidence, Findings, Instance, Object, Order, Tx, Violation,
};
use crate::hb::{Dependency, Engine, EventStamp, Visitor, edge, transactions_without_data};
use crate::verdicts::Verdicts;
use graph::{Graph, Link, Node};

/// Value for "no region" in a key.
const NO_REGION: u32 = u32::MAX;

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
        Capabilities { nested: false, instances: true, witnesses: true };

    /// Creates a checker at the start of a trace.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { engine: Engine::new(options.lenient), state: State::new(options) }
    }

    /// Returns the number of transactions in the graph.
    #[must_use]
    pub fn live_transactions(&self) -> usize {
        self.state.graph.len()
    }
}

impl Checker for Velodrome {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        let result = self.engine.step(event, &mut self.state);
        if let Some(unary) = self.state.unary.take() {
            self.state.graph.end(unary);
        }
        result
    }

    fn gap(&mut self) {
        self.engine.gap();
        for row in 0..self.state.threads.len() {
            self.state.end_transaction(row);
        }
    }

    fn counts(&self) -> Counts {
        self.state.verdicts.counts(self.engine.counts)
    }

    fn finish(&mut self) -> Findings {
        let counts = self.counts();
        let options = self.state.options;
        let state = std::mem::replace(self, Self::new(options)).state;
        let State { verdicts, cycle, .. } = state;
        let serializable = Some(cycle.is_none());
        let (cycle, cycle_edges) = cycle.filter(|_| verdicts.is_empty()).unzip();
        let cycle_edges = cycle_edges.unwrap_or_default();
        let (violations, _, instances) = verdicts.into_lists();
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

/// State of a thread, besides its transactions.
#[derive(Default)]
struct Thread {
    /// Active transaction, and its first event.
    active: Option<(Node, EventStamp)>,
    /// Set once the active transaction is counted as violating.
    violating: bool,
}

struct State {
    options: Options,
    threads: Vec<Thread>,
    graph: Graph,
    /// Unary transaction of the current event.
    unary: Option<Node>,
    /// First cycle found.
    cycle: Option<(Vec<Tx>, Vec<Edge>)>,
    verdicts: Verdicts,
}

impl State {
    fn new(options: Options) -> Self {
        Self {
            options,
            threads: Vec::new(),
            graph: Graph::default(),
            unary: None,
            cycle: None,
            verdicts: Verdicts::new(&options),
        }
    }

    fn end_transaction(&mut self, row: usize) {
        let thread = self.threads.get_mut(row);
        if let Some((node, _)) = thread.and_then(|thread| thread.active.take()) {
            self.graph.end(node);
        }
    }

    /// Records a cycle that the active transaction in `row` is on; the last of its dependencies ends in
    /// that transaction.
    fn found(&mut self, row: usize, cycle: &[Link]) {
        let Some(closing) = cycle.last() else { return };
        if self.cycle.is_none() {
            self.cycle = Some((transactions(cycle), edges(cycle).collect()));
        }
        let increasing =
            cycle.windows(2).all(|pair| pair[0].sink.event() <= pair[1].source.event());
        if let Some((_, begin)) = self.threads[row].active.filter(|_| increasing) {
            self.blame(row, begin, closing, cycle);
        }
    }

    #[cold]
    fn blame(&mut self, row: usize, begin: EventStamp, closing: &Link, cycle: &[Link]) {
        let (trigger_event, source_event) = (closing.sink.event(), closing.source.event());
        let instance = Instance { begin_event: begin.event(), trigger_event, source_event };
        let on_variables = cycle.iter().all(|link| matches!(link.object, Object::Variable(_)));
        let evidence = if on_variables { Evidence::Data } else { Evidence::Sync };
        let ends = || cycle.iter().flat_map(|link| [&link.source, &link.sink]);
        let key = |key: &mut Vec<u32>| {
            for access in std::iter::once(&begin).chain(ends()) {
                let region = access.region().map_or(NO_REGION, |region| region.0);
                key.extend([access.location().0, region]);
            }
        };
        self.verdicts.count(instance, &mut self.threads[row].violating, key, || {
            let edges: Vec<Edge> = edges(cycle).collect();
            let racy = edges.iter().any(|edge| edge.order == Order::Racy);
            Violation {
                region: begin.region().unwrap_or(RegionId(NO_REGION)),
                occurrences: 1,
                evidence,
                order: if racy { Order::Racy } else { Order::Synchronised },
                transaction: begin.tx(),
                begin: begin.point(),
                trigger_event,
                source_event,
                witness: transactions(cycle),
                released_locks: Vec::new(),
                data: match evidence {
                    Evidence::Data => DataSeen::default(),
                    // Dependencies on variables are on the witness, or unknown here.
                    Evidence::Sync => {
                        DataSeen { without: transactions_without_data(ends()), met: Vec::new() }
                    }
                },
                edges,
            }
        });
    }
}

fn edges(cycle: &[Link]) -> impl Iterator<Item = Edge> {
    cycle.iter().map(|link| edge(&link.source, &link.sink, link.object, link.order))
}

/// Returns the transactions on a path of dependencies and program order.
fn transactions(cycle: &[Link]) -> Vec<Tx> {
    let mut transactions: Vec<Tx> = Vec::new();
    for tx in cycle.iter().flat_map(|link| [link.source.tx(), link.sink.tx()]) {
        if transactions.last() != Some(&tx) {
            transactions.push(tx);
        }
    }
    transactions
}

impl Visitor for State {
    fn started(&mut self, row: usize) {
        if row >= self.threads.len() {
            self.threads.resize_with(row + 1, Thread::default);
            self.graph.grow(row + 1);
        }
        self.threads[row] = Thread::default();
    }

    fn is_relevant(&self, row: Option<usize>, source: &EventStamp) -> bool {
        let first = row.and_then(|row| self.graph.first(row));
        first.is_some_and(|first| first <= source.tx_begin())
    }

    fn dependency(&mut self, dependency: &Dependency<'_>) {
        if self.options.relation == Relation::Data && !dependency.is_variable() {
            return;
        }
        let (source, sink, row) = (dependency.source, dependency.sink, dependency.row);
        let Some(from) = dependency.source_row().and_then(|u| self.graph.find(u, source)) else {
            return;
        };
        let to = self.graph.current(row, sink);
        if sink.region().is_none() {
            self.unary = Some(to);
        }
        if self.graph.has_edge(from, to) {
            return;
        }
        let order = dependency.order();
        let link = Link { source: *source, sink: *sink, object: dependency.object, order };
        match self.graph.path(to, from) {
            Some(mut cycle) => {
                cycle.push(link);
                self.found(row, &cycle);
            }
            None => self.graph.add_edge(from, to, link),
        }
    }

    fn begin(&mut self, row: usize, now: &EventStamp, _region: RegionId, depth: usize) {
        if depth == 0 {
            let node = self.graph.current(row, now);
            self.threads[row] = Thread { active: Some((node, *now)), violating: false };
        }
    }

    fn end(&mut self, row: usize, _number: EventNumber, depth: usize) {
        if depth == 0 {
            self.end_transaction(row);
        }
    }

    /// An event of the thread is only relevant if its transaction is live. In the data relation it need not
    /// be live, and yet the order of the events that the thread knows of can be asked for.
    fn must_retain(&self, row: usize, last: &EventStamp) -> bool {
        let data = self.options.relation == Relation::Data;
        self.graph.first(row).is_some()
            || data && self.graph.oldest().is_some_and(|oldest| oldest <= last.event())
    }
}
