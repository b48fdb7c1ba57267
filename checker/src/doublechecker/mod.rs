//! DoubleChecker: an imprecise graph of transactions as a filter before a precise one (Biswas, Huang, Sengupta and
//! Bond, "DoubleChecker: Efficient Sound and Precise Atomicity Checking"), in its single-run mode; `first_pass` is the
//! first run of its two-run mode.
//!
//! The *imprecise* analysis (`octet`, `graph`) stores for each variable only which threads may access it without a
//! check, and adds edges between transactions where that changes: they imply all dependencies, and more. Transactions
//! log their accesses. The *precise* analysis (`replay`) replays the logs of each strongly connected component in the
//! order of the trace, finds the dependencies in it, and decides and blames as Velodrome does, with the same code.
//! Every precise cycle is within an imprecise component, so that none is missed.
//!
//! Differences from the paper, with their reasons:
//!
//! - *Octet without barriers.* Events come one after the other: there are no intermediate states, no protocol between
//!   threads, and no memory fences. What remains is Table 1 and, of a transition, the edges of the paper's Figure 4. An
//!   object is a variable, not all fields together. The paper starts objects as WrEx of the allocating thread; here a
//!   variable is unused at first, and its first access is no transition between threads. Memory that starts another
//!   life is unused again, and the logs name the life of a variable, so that a replay does not mix two of them.
//! - *The counter of RdSh.* An upgrading transition updates the counter of its thread too, which the paper leaves open:
//!   the edge from `gLastRdSh` that it adds brings all earlier transitions with it. A fence sets the counter to the
//!   latest value and not to that of the variable, for the same reason, which saves further fences.
//! - *Every edge has a live source, or there is none.* `T.lastRdEx`, `gLastRdSh` and `currTX(T)` may name a transaction
//!   that was forgotten. No active transaction leads to it, then, so that no cycle through an edge from it can come.
//! - *Commuting updates* are writes to Octet; the replay distinguishes them.
//! - *Synchronisation* is not turned into reads and writes: the engine knows the threads on both sides of it, and the
//!   edge goes from the current transaction of the one, as in a conflicting transition. The exact dependency is in the
//!   log of its sink. Such edges are in the graph in the data relation as well, where the replay leaves them out: they
//!   still show which accesses are synchronised.
//! - *Unary transactions.* The paper merges consecutive ones that no edge enters or leaves. Here one that no edge
//!   enters belongs to the transaction before it in its thread, whatever that is, and also if an edge leaves it: a path
//!   to the one passes through the other. It is logged only if that transaction is live. The replay takes merged ones
//!   apart again.
//! - *When components are found.* The paper searches for the component of each transaction when that ends, among those
//!   that have ended, and replays it at once; it does not say what happens to a component that grows later, and is
//!   found and replayed again, transaction by transaction. Here a component is replayed once, when it is final: when no
//!   active transaction leads to it any more. It is found then together with the garbage, in time linear in that. This
//!   also makes each dependency that is replayed one of the trace: an access between two others conflicting with both
//!   belongs to the same component, but with an earlier replay it may belong to a transaction that has not ended. So
//!   counts lag behind the trace, and are complete at its end.
//! - *Garbage.* References from the current transactions lead to what precedes them, if the paper is taken literally,
//!   which is nearly everything. Here a transaction is garbage if no active one leads to it along edges. Most are when
//!   they end, since no edge leads to them: these are forgotten at once, by a count of edges. Cycles are searched for
//!   when the graph with its logs has doubled.
//! - *Edges between log entries*, which order the paper's replay, are not needed: entries have event numbers.
//!
//! Invariants: a thread's live transactions are connected by program order, and are its latest; all live transactions
//! in a row are of one thread; edges lead to transactions that are active at that time.

mod first_pass;
mod graph;
mod octet;
mod replay;

pub use first_pass::{FirstPass, Suspects};

use crate::check::{Capabilities, Checker, Options};
use crate::error::EventError;
use crate::event::{Event, EventNumber, Op, RegionId, VarId};
use crate::finding::{Action, Counts, Findings};
use crate::hb::{Dependency, Engine, EventStamp, Visitor};
use graph::{Access, Graph, Handle, SyncEdge};
use octet::{Octet, Transition};
use replay::{Replay, Split};

/// DoubleChecker as a checker: whether the trace is serializable, and some of the violating transactions, each with a
/// cycle as its witness.
///
/// Violations, witnesses, evidence and the cycle are as [`Velodrome`](crate::Velodrome)'s, though it may be another
/// cycle of those that there are. `Counts::dependencies` has the dependencies on variables only of what was replayed.
/// `Options::regions`, `Options::serializability` and `Options::released_locks` have no effect. Counts of violations
/// are complete after [`finish`](Checker::finish) only.
///
/// Memory: 24 bytes for a variable; the transactions that an active one leads to, with their logs of 40 bytes for an
/// access, which an old active transaction can make as many as there are. Time: O(1) for an access without a
/// transition; O(threads) for a write to a variable that several threads have read.
///
/// ```
/// use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
/// use checker::{Checker, DoubleChecker, Options};
///
/// let mut checker = DoubleChecker::new(Options::default());
/// let x = VarId(0);
/// for (thread, op) in [(0, Op::Begin(RegionId(0))), (0, Op::Read(x)), (1, Op::Write(x)), (0, Op::Write(x))] {
///     checker.event(&Event { thread: ThreadId(thread), op, location: LocationId(0) })?;
/// }
/// let findings = checker.finish();
/// assert_eq!(findings.serializable, Some(false));
/// assert_eq!(findings.violations[0].edges.len(), 2);
/// # Ok::<(), checker::EventError>(())
/// ```
pub struct DoubleChecker {
    engine: Engine,
    state: State,
}

/// Work of a [`DoubleChecker`] so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Strongly connected components of the imprecise graph that were replayed.
    pub components: u64,
    /// Transactions in them; merged unary ones count as one with that before them.
    pub transactions: u64,
    /// Accesses in them.
    pub accesses: u64,
}

impl DoubleChecker {
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
        self.state.graph.len()
    }

    /// Returns the number of entries in the logs of these, and of the edges between them.
    #[must_use]
    pub fn live_entries(&self) -> usize {
        self.state.graph.entries()
    }

    /// Ends all transactions, replays the rest of the trace and returns the counts of the replay.
    pub fn finish_replay(&mut self) -> Work {
        self.state.end_transactions(self.engine.counts.events);
        self.state.collect();
        self.state.work
    }
}

impl Checker for DoubleChecker {
    fn event(&mut self, event: &Event) -> Result<(), EventError> {
        let Self { engine, state } = self;
        let result = match event.op {
            Op::Read(_) | Op::Write(_) | Op::Update(_) | Op::CommutingUpdate(_) | Op::Free(_) => {
                engine.step_outside(event, state).map(|access| {
                    if let Some((row, now)) = access {
                        state.access(row, &now, event.op);
                    }
                })
            }
            Op::Alloc(_) | Op::SplitVariable { .. } => {
                engine.step_outside(event, state).map(|memory| {
                    if let Some((_, now)) = memory {
                        state.memory(&now, event.op);
                    }
                })
            }
            _ => engine.step(event, state),
        };
        if let Some(unary) = state.unary.take() {
            state.graph.end(unary, None);
        }
        if state.graph.should_collect() {
            state.collect();
        }
        result
    }

    fn gap(&mut self) {
        self.engine.gap();
        self.state.end_transactions(self.engine.counts.events);
    }

    fn counts(&self) -> Counts {
        let Self { engine, state } = self;
        let mut counts = engine.counts;
        counts.dependencies += state.replay.dependencies;
        state.replay.cycles.counts(counts)
    }

    fn finish(&mut self) -> Findings {
        self.finish_replay();
        let (counts, options) = (self.counts(), self.state.options);
        let findings = self.state.replay.cycles.finish(counts);
        *self = Self::new(options);
        findings
    }
}

#[derive(Default)]
struct Thread {
    /// Last transaction; it may have been forgotten. The paper's `currTX(T)`.
    last: Option<Handle>,
    /// Active region, which is the last transaction then.
    active: Option<Handle>,
    /// The paper's `T.rdShCnt`.
    read_shared: u64,
    /// The paper's `T.lastRdEx`.
    last_read_exclusive: Option<Handle>,
}

struct State {
    options: Options,
    threads: Vec<Thread>,
    octet: Octet,
    graph: Graph,
    /// The paper's `gLastRdSh`.
    last_read_shared: Option<Handle>,
    /// Unary transaction of the current event.
    unary: Option<Handle>,
    /// Splits since the oldest live transaction, in the order of the trace.
    splits: Vec<Split>,
    replay: Replay,
    work: Work,
    /// Contents of components, if they are collected and not replayed.
    suspects: Option<Suspects>,
}

impl State {
    fn new(options: Options) -> Self {
        Self {
            options,
            threads: Vec::new(),
            octet: Octet::default(),
            graph: Graph::default(),
            last_read_shared: None,
            unary: None,
            splits: Vec::new(),
            replay: Replay::new(&options),
            work: Work::default(),
            suspects: None,
        }
    }

    #[inline]
    fn access(&mut self, row: usize, now: &EventStamp, op: Op) {
        let (Op::Read(variable)
        | Op::Write(variable)
        | Op::Update(variable)
        | Op::CommutingUpdate(variable)
        | Op::Free(variable)) = op
        else {
            return;
        };
        let writes = now.action() != Action::Read;
        let known = &mut self.threads[row].read_shared;
        let (transition, exclusive, life) = self.octet.access(variable, row, writes, known);
        if transition != Transition::Same {
            self.transition(row, now, transition);
        }
        let thread = &mut self.threads[row];
        if exclusive {
            thread.last_read_exclusive = thread.last;
        }
        if let Some(node) = self.graph.live(thread.last) {
            self.graph.log(node, Access { now: *now, variable, life });
        }
    }

    /// Adds the edges of a transition: Figure 4 of the paper.
    #[inline(never)]
    fn transition(&mut self, row: usize, now: &EventStamp, transition: Transition) {
        match transition {
            Transition::Same => {}
            Transition::Conflicting(of) => {
                self.edge(self.threads[of].last, row, now);
            }
            Transition::ConflictingWithAll => {
                for of in 0..self.threads.len() {
                    self.edge(self.threads[of].last, row, now);
                }
            }
            Transition::Upgrading(of) => {
                self.edge(self.threads[of].last_read_exclusive, row, now);
                self.edge(self.last_read_shared, row, now);
                self.last_read_shared = self.threads[row].last;
            }
            Transition::Fence => {
                self.edge(self.last_read_shared, row, now);
            }
        }
    }

    /// Adds an edge from a transaction of another thread, if it is live, to the current one; returns that.
    fn edge(&mut self, from: Option<Handle>, row: usize, now: &EventStamp) -> Option<Handle> {
        let from = self.graph.live(from).filter(|&from| self.graph.node(from).row != row)?;
        let to = self.current(row, now);
        self.graph.add_edge(from, to);
        Some(to)
    }

    /// Returns the transaction of the current event; adds it if it is unary and missing.
    fn current(&mut self, row: usize, now: &EventStamp) -> Handle {
        let thread = &mut self.threads[row];
        if let Some(current) = self.unary.or(thread.active) {
            return current;
        }
        let unary = self.graph.add(row, now, thread.last);
        (thread.last, self.unary) = (Some(unary), Some(unary));
        unary
    }

    fn memory(&mut self, now: &EventStamp, op: Op) {
        match op {
            Op::Alloc(variable) => self.octet.forget(variable),
            Op::SplitVariable { from, to } if from != to => self.split(now.event(), from, to),
            _ => {}
        }
    }

    fn split(&mut self, event: EventNumber, from: VarId, to: VarId) {
        let [life, part] = self.octet.split(from, to);
        if self.graph.len() > 0 {
            self.splits.push(Split { event, from: (from, life), to: (to, part) });
        }
    }

    /// Ends all transactions before the event of that number.
    fn end_transactions(&mut self, number: EventNumber) {
        for row in 0..self.threads.len() {
            self.end_transaction(row, number);
        }
    }

    fn end_transaction(&mut self, row: usize, number: EventNumber) {
        let thread = self.threads.get_mut(row);
        if let Some(active) = thread.and_then(|thread| thread.active.take()) {
            self.graph.end(active, Some(number));
        }
    }

    /// Replays the components that are final, and forgets them with all other garbage.
    #[inline(never)]
    fn collect(&mut self) {
        let garbage = self.graph.garbage();
        for component in &garbage.components {
            if let Some(suspects) = &mut self.suspects {
                suspects.components += 1;
                for node in component.iter().map(|&node| self.graph.node(node)) {
                    let accesses = node.accesses.iter().map(|access| access.now.location());
                    let syncs = node.syncs.iter().flat_map(|sync| [&sync.source, &sync.sink]);
                    suspects.locations.extend(accesses.chain(syncs.map(EventStamp::location)));
                }
            } else {
                self.replay.component(&self.graph, component, &self.splits);
            }
            let accesses = component.iter().map(|&node| self.graph.node(node).accesses.len());
            self.work.components += 1;
            self.work.transactions += component.len() as u64;
            self.work.accesses += accesses.sum::<usize>() as u64;
        }
        self.graph.collect(&garbage);
        let oldest = self.graph.oldest().unwrap_or(EventNumber::MAX);
        self.splits.retain(|split| split.event >= oldest);
    }
}

impl Visitor for State {
    fn started(&mut self, row: usize) {
        if row >= self.threads.len() {
            self.threads.resize_with(row + 1, Thread::default);
        }
        self.threads[row] = Thread::default();
    }

    fn is_relevant(&self, _row: Option<usize>, _source: &EventStamp) -> bool {
        true
    }

    /// Handles a dependency by synchronisation: those on variables are found elsewhere.
    fn dependency(&mut self, dependency: &Dependency<'_>) {
        let &Dependency { source, sink, object, row, .. } = dependency;
        let from = dependency.source_row().and_then(|u| self.threads[u].last);
        if let Some(to) = self.edge(from, row, sink) {
            let edge = SyncEdge { source: *source, sink: *sink, object };
            self.graph.log_sync(to, edge);
        }
    }

    fn begin(&mut self, row: usize, now: &EventStamp, _region: RegionId, depth: usize) {
        if depth == 0 {
            let thread = &mut self.threads[row];
            let node = self.graph.add(row, now, thread.last);
            (thread.last, thread.active) = (Some(node), Some(node));
        }
    }

    fn end(&mut self, row: usize, number: EventNumber, depth: usize) {
        if depth == 0 {
            self.end_transaction(row, number);
        }
    }

    fn must_retain(&self, row: usize, _last: &EventStamp) -> bool {
        self.graph.live(self.threads[row].last).is_some()
    }
}
