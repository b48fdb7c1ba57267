//! The trace-level verdict: whether the transactions can be put in an order, found as each dependency comes, with
//! the cycle when they cannot. Violations of single transactions do not live here.
//!
//! This is the question of AeroDrome (Mathur and Viswanathan, "Atomicity Checking in Linear Time using Vector
//! Clocks"), asked the other way round. AeroDrome's clocks say of every variable, lock and thread which active
//! transactions are ordered before it. Here each active transaction has one clock that says, of every thread, which
//! is the first of its transactions that is ordered after the active one; the later ones are too. A remembered event
//! names its thread and transaction, so that the two answer the same question: is the active transaction ordered
//! before that event's? Nothing is kept of variables and locks, and nothing is to be done to them when a transaction
//! ends.
//!
//! A dependency from transaction i of thread u to transaction j of thread v, the current one there:
//! 1. closes a cycle when j is an active region that reaches i;
//! 2. else lets every active transaction that reaches i and not j reach j and all that j reaches.
//!
//! Invariants: the clock of an active transaction holds all that it reaches in the graph so far (what it reaches
//! and is active has such a clock itself, which step 2 takes over; what is not active gains no edges to itself).
//! A node's source is reached by the same transaction, so that parents lead back to it while there is no cycle.
//!
//! Departures from AeroDrome: the edge that closes the cycle is found itself, not the end of a transaction after it,
//! and however many transactions of the cycle are still active; the cycle is shown.
//!
//! Costs: memory O(threads × active transactions), never the variables or the trace. Time O(1) for a dependency, and
//! O(threads) for each thread that an active transaction newly reaches. The cycle costs nothing until it is there:
//! its nodes are the clocks' own.

use crate::event::EventNumber;
use crate::finding::Tx;
use crate::hb::{Access, Dependency};
use crate::mask::{Mask, slots};

/// No slot, or no node.
const NONE: u32 = u32::MAX;

/// Why a thread is reached: by a dependency of the transaction graph.
#[derive(Clone, Copy)]
struct Node {
    /// The row of the thread reached, and the first of its transactions that is.
    row: u32,
    sink: Access,
    /// The row of the thread that the dependency comes from.
    from: u32,
    source: Access,
}

/// What is known of one thread.
struct Row {
    /// The slot of its own active region.
    own: u32,
    /// The active transactions that reach the thread.
    reached: Mask,
    /// For each slot in `reached`, the begin of the first transaction reached, and the node that says why.
    first: Vec<EventNumber>,
    node: Vec<u32>,
}

impl Row {
    fn new() -> Self {
        Self { own: NONE, reached: Mask::default(), first: Vec::new(), node: Vec::new() }
    }

    /// Whether the transaction in the slot reaches that transaction of the thread.
    #[inline]
    fn is_reached(&self, slot: usize, begin: EventNumber) -> bool {
        self.reached.contains(slot) && self.first[slot] <= begin
    }

    #[inline]
    fn reach(&mut self, slot: usize, begin: EventNumber, node: u32) {
        if slot >= self.first.len() {
            self.first.resize(slot + 1, 0);
            self.node.resize(slot + 1, NONE);
        }
        self.first[slot] = begin;
        self.node[slot] = node;
        self.reached.insert(slot);
    }
}

/// What each active transaction reaches in the transaction graph.
#[derive(Default)]
pub(crate) struct Reach {
    rows: Vec<Row>,
    /// For each slot the nodes of its transaction, at most one for each thread.
    trees: Vec<Vec<Node>>,
    free: Vec<u32>,
}

impl Reach {
    pub(crate) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            self.rows.resize_with(rows, Row::new);
        }
    }

    /// An outermost region was opened.
    pub(crate) fn begin(&mut self, row: usize, begin: EventNumber) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.trees.push(Vec::new());
            (self.trees.len() - 1) as u32
        });
        self.rows[row].own = slot;
        self.rows[row].reach(slot as usize, begin, NONE);
    }

    /// The thread's outermost region was closed, if one was open.
    pub(crate) fn end(&mut self, row: usize) {
        let own = std::mem::replace(&mut self.rows[row].own, NONE);
        if own == NONE {
            return;
        }
        let slot = own as usize;
        self.rows[row].reached.remove(slot);
        for node in self.trees[slot].drain(..) {
            self.rows[node.row as usize].reached.remove(slot);
        }
        self.free.push(own);
    }

    /// Whether any active transaction reaches the thread.
    pub(crate) fn is_reached(&self, row: usize) -> bool {
        !self.rows[row].reached.is_empty()
    }

    /// Takes in a dependency whose source is of the thread in the row `from`; returns the cycle that it closes.
    #[inline]
    pub(crate) fn dependency(
        &mut self,
        from: usize,
        dependency: &Dependency<'_>,
    ) -> Option<Vec<Tx>> {
        let to = dependency.row;
        let own = self.rows[to].own;
        let begin = dependency.source.tx_begin();
        if own != NONE && self.rows[from].is_reached(own as usize, begin) {
            return Some(self.cycle(own as usize, from, dependency));
        }
        for word in 0..self.trees.len().div_ceil(64) {
            let fresh = self.rows[from].reached.word(word) & !self.rows[to].reached.word(word);
            for slot in slots(word, fresh) {
                if self.rows[from].first[slot] <= begin {
                    self.extend(slot, from, dependency);
                }
            }
        }
        None
    }

    /// Step 2 for the transaction in one slot.
    fn extend(&mut self, slot: usize, from: usize, dependency: &Dependency<'_>) {
        let own = self.rows[dependency.row].own;
        self.put(
            slot,
            Node {
                row: dependency.row as u32,
                sink: *dependency.sink,
                from: from as u32,
                source: *dependency.source,
            },
        );
        if own != NONE {
            for index in 0..self.trees[own as usize].len() {
                let node = self.trees[own as usize][index];
                if !self.rows[node.row as usize].is_reached(slot, node.sink.tx_begin()) {
                    self.put(slot, node);
                }
            }
        }
    }

    fn put(&mut self, slot: usize, node: Node) {
        let (row, tree) = (&mut self.rows[node.row as usize], &mut self.trees[slot]);
        let begin = node.sink.tx_begin();
        if row.reached.contains(slot) {
            row.first[slot] = begin;
            if let Some(place) = tree.get_mut(row.node[slot] as usize) {
                *place = node;
            }
        } else {
            row.reach(slot, begin, tree.len() as u32);
            tree.push(node);
        }
    }

    /// The path from the transaction in the slot to the dependency's source, and back to it.
    #[cold]
    fn cycle(&self, slot: usize, from: usize, dependency: &Dependency<'_>) -> Vec<Tx> {
        let mut cycle = vec![dependency.sink.tx(), dependency.source.tx()];
        let mut row = from;
        while let Some(node) = self.trees[slot].get(self.rows[row].node[slot] as usize) {
            for tx in [node.sink.tx(), node.source.tx()] {
                if cycle.last() != Some(&tx) {
                    cycle.push(tx);
                }
            }
            row = node.from as usize;
        }
        cycle.reverse();
        cycle
    }
}
