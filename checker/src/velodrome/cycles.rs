//! The verdicts of a graph of transactions: which dependencies close cycles, and which transactions are blamed.
//! Velodrome feeds it as the trace comes, DoubleChecker from the logs of a component.

use super::graph::{Graph, Link, Node};
use crate::check::Options;
use crate::event::RegionId;
use crate::finding::{
    Counts, DataSeen, Edge, Evidence, Findings, Instance, Object, Order, Tx, Violation,
};
use crate::hb::{EventStamp, edge, transactions_without_data};
use crate::verdicts::Verdicts;

/// Value for "no region" in a key.
const NO_REGION: u32 = u32::MAX;

/// State of a thread, besides its transactions.
#[derive(Default)]
struct Thread {
    /// Active transaction, and its first event.
    active: Option<(Node, EventStamp)>,
    /// Set once the active transaction is counted as violating.
    violating: bool,
}

/// A graph of transactions with the cycles that were found in it.
pub(crate) struct Cycles {
    options: Options,
    threads: Vec<Thread>,
    pub(super) graph: Graph,
    /// Unary transaction of the current event.
    unary: Option<Node>,
    /// First cycle found.
    cycle: Option<(Vec<Tx>, Vec<Edge>)>,
    verdicts: Verdicts,
}

impl Cycles {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            options: *options,
            threads: Vec::new(),
            graph: Graph::default(),
            unary: None,
            cycle: None,
            verdicts: Verdicts::new(options),
        }
    }

    /// Makes room for the row.
    pub(crate) fn grow(&mut self, row: usize) {
        if row >= self.threads.len() {
            self.threads.resize_with(row + 1, Thread::default);
            self.graph.grow(row + 1);
        }
    }

    /// Starts the thread in the row.
    pub(super) fn start(&mut self, row: usize) {
        self.grow(row);
        self.threads[row] = Thread::default();
    }

    /// Begins a transaction of the thread in the row.
    pub(crate) fn begin(&mut self, row: usize, now: &EventStamp) {
        let node = self.graph.current(row, now);
        self.threads[row] = Thread { active: Some((node, *now)), violating: false };
    }

    /// Ends the active transaction of the thread in the row, if there is one.
    pub(crate) fn end(&mut self, row: usize) {
        let thread = self.threads.get_mut(row);
        if let Some((node, _)) = thread.and_then(|thread| thread.active.take()) {
            self.graph.end(node);
        }
    }

    /// Ends all active transactions.
    pub(crate) fn end_all(&mut self) {
        for row in 0..self.threads.len() {
            self.end(row);
        }
    }

    /// Forgets all transactions; what was found stays.
    pub(crate) fn clear(&mut self) {
        self.graph = Graph::default();
        self.threads.clear();
        self.unary = None;
    }

    /// Adds a dependency between the transactions of its two events, if there is none yet: `u` and `v` are the rows of
    /// their threads. `order` determines the order of a dependency that is to be shown.
    pub(crate) fn link(&mut self, u: usize, v: usize, link: Link, order: &dyn Fn(&Link) -> Order) {
        let Some(from) = self.graph.find(u, &link.source) else { return };
        let to = self.graph.current(v, &link.sink);
        if link.sink.region().is_none() {
            self.unary = Some(to);
        }
        if self.graph.has_edge(from, to) {
            return;
        }
        match self.graph.path(to, from) {
            Some(mut cycle) => {
                cycle.push(link);
                self.found(v, &cycle, order);
            }
            None => self.graph.add_edge(from, to, link),
        }
    }

    /// Ends the transaction of the current event if it is unary. To be called after every event.
    pub(crate) fn end_unary(&mut self) {
        if let Some(unary) = self.unary.take() {
            self.graph.end(unary);
        }
    }

    /// Records a cycle that the active transaction in `row` is on; the last of its dependencies ends in
    /// that transaction.
    fn found(&mut self, row: usize, cycle: &[Link], order: &dyn Fn(&Link) -> Order) {
        let Some(closing) = cycle.last() else { return };
        if self.cycle.is_none() {
            self.cycle = Some((transactions(cycle), edges(cycle, order)));
        }
        let increasing =
            cycle.windows(2).all(|pair| pair[0].sink.event() <= pair[1].source.event());
        if let Some((_, begin)) = self.threads[row].active.filter(|_| increasing) {
            self.blame(row, begin, closing, cycle, order);
        }
    }

    #[cold]
    fn blame(
        &mut self,
        row: usize,
        begin: EventStamp,
        closing: &Link,
        cycle: &[Link],
        order: &dyn Fn(&Link) -> Order,
    ) {
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
            let edges = edges(cycle, order);
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

    /// Adds the counts of violations to those of the engine.
    pub(crate) fn counts(&self, engine: Counts) -> Counts {
        self.verdicts.counts(engine)
    }

    /// Returns the findings, and forgets everything.
    pub(crate) fn finish(&mut self, counts: Counts) -> Findings {
        let Self { verdicts, cycle, .. } = std::mem::replace(self, Self::new(&self.options));
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

fn edges(cycle: &[Link], order: &dyn Fn(&Link) -> Order) -> Vec<Edge> {
    cycle.iter().map(|link| edge(&link.source, &link.sink, link.object, order(link))).collect()
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
