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

use super::masks::{Masks, REACH, slots};
use crate::event::EventNumber;
use crate::finding::Tx;
use crate::hb::{Access, Dependency};

/// In the place of a node: the thread is the transaction's own.
const ROOT: u32 = u32::MAX;

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

/// What is known of one thread, for each slot whose transaction reaches it.
#[derive(Default)]
struct Row {
    /// The begin of the first transaction reached.
    first: Vec<EventNumber>,
    /// The node that says why.
    node: Vec<u32>,
}

impl Row {
    #[inline]
    fn reach(&mut self, slot: usize, begin: EventNumber, node: u32) {
        if slot >= self.first.len() {
            self.first.resize(slot + 1, 0);
            self.node.resize(slot + 1, ROOT);
        }
        self.first[slot] = begin;
        self.node[slot] = node;
    }
}

/// What each active transaction reaches in the transaction graph.
pub(super) struct Reach {
    rows: Vec<Row>,
    /// For each slot the nodes of its transaction, at most one for each thread.
    trees: Vec<Vec<Node>>,
    /// For each slot the earliest begin of a transaction that it reaches; `MAX` for a free slot.
    earliest: Vec<EventNumber>,
    /// The earliest of those.
    oldest: EventNumber,
}

impl Reach {
    pub(super) fn new() -> Self {
        let oldest = EventNumber::MAX;
        Self { rows: Vec::new(), trees: Vec::new(), earliest: Vec::new(), oldest }
    }

    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            self.rows.resize_with(rows, Row::default);
        }
    }

    /// No transaction that began before this event is reached by an active one.
    #[inline]
    pub(super) fn oldest(&self) -> EventNumber {
        self.oldest
    }

    /// The begin of the first transaction of that thread that those among `bits`, which reach it, reach.
    pub(super) fn first(&self, row: usize, word: usize, bits: u64) -> EventNumber {
        let first = &self.rows[row].first;
        slots(word, bits).map(|slot| first[slot]).min().unwrap_or(EventNumber::MAX)
    }

    /// An outermost region was opened.
    pub(super) fn begin(&mut self, slot: usize, row: usize, begin: EventNumber, masks: &mut Masks) {
        if slot >= self.trees.len() {
            self.trees.resize_with(slot + 1, Vec::new);
            self.earliest.resize(slot + 1, EventNumber::MAX);
        }
        self.rows[row].reach(slot, begin, ROOT);
        masks.insert_begin(row, slot, begin);
        self.earliest[slot] = begin;
        self.oldest = self.oldest.min(begin);
    }

    /// The region was closed.
    pub(super) fn end(&mut self, slot: usize, row: usize, masks: &mut Masks) {
        if !masks.contains(row, slot, REACH) {
            return;
        }
        masks.remove(row, slot, REACH);
        for node in self.trees[slot].drain(..) {
            masks.remove(node.row as usize, slot, REACH);
        }
        if std::mem::replace(&mut self.earliest[slot], EventNumber::MAX) == self.oldest {
            self.oldest = self.earliest.iter().copied().min().unwrap_or(EventNumber::MAX);
        }
    }

    /// Step 1: the cycle that a dependency closes, if it does. The slot is that of the sink's transaction, which
    /// reaches the source's thread.
    pub(super) fn cycle(
        &self,
        slot: usize,
        from: usize,
        dependency: &Dependency<'_>,
    ) -> Option<Vec<Tx>> {
        if self.rows[from].first[slot] > dependency.source.tx_begin() {
            return None;
        }
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
        Some(cycle)
    }

    /// Step 2: the transactions among `fresh`, which reach the source's thread and not the sink's, reach the sink's
    /// transaction if they reach the source's; and then all that it reaches, if it is that of an active region,
    /// whose slot is `own`.
    pub(super) fn extend(
        &mut self,
        word: usize,
        fresh: u64,
        own: Option<usize>,
        from: usize,
        dependency: &Dependency<'_>,
        masks: &mut Masks,
    ) {
        let begin = dependency.source.tx_begin();
        let first = Node {
            row: dependency.row as u32,
            sink: *dependency.sink,
            from: from as u32,
            source: *dependency.source,
        };
        for slot in slots(word, fresh) {
            if self.rows[from].first[slot] > begin {
                continue;
            }
            self.put(slot, first, masks);
            for index in 0..own.map_or(0, |own| self.trees[own].len()) {
                if let Some(&node) = own.and_then(|own| self.trees[own].get(index)) {
                    self.put(slot, node, masks);
                }
            }
        }
    }

    /// Lets the transaction in the slot reach what the node says, unless it reaches an earlier one of that thread.
    fn put(&mut self, slot: usize, node: Node, masks: &mut Masks) {
        let row = node.row as usize;
        let (reached, tree) = (&mut self.rows[row], &mut self.trees[slot]);
        let begin = node.sink.tx_begin();
        if !masks.contains(row, slot, REACH) {
            masks.insert_begin(row, slot, begin);
            reached.reach(slot, begin, tree.len() as u32);
            tree.push(node);
        } else if begin < reached.first[slot] {
            masks.insert_begin(row, slot, begin);
            reached.first[slot] = begin;
            if let Some(place) = tree.get_mut(reached.node[slot] as usize) {
                *place = node;
            }
        } else {
            return;
        }
        self.earliest[slot] = self.earliest[slot].min(begin);
        self.oldest = self.oldest.min(begin);
    }
}
