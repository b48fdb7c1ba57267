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

use super::forest::{Forest, Node, REACH};
use crate::finding::{Edge, Tx};

/// Step 1: the cycle that a dependency closes, if it does. Step 2 is the forest's `extend`, for all relations at once.
/// `own` is the slot of the sink's transaction. The dependencies of the cycle come with it.
pub(super) fn cycle(
    forest: &Forest,
    own: usize,
    dependency: &Node,
) -> Option<(Vec<Tx>, Vec<Edge>)> {
    let (from, begin) = (dependency.from(), dependency.source.tx_begin());
    if !forest.contains(REACH, from, own) || forest.first(REACH, from, own) > begin {
        return None;
    }
    let mut cycle = vec![dependency.sink.tx(), dependency.source.tx()];
    let mut edges = vec![dependency.edge()];
    for node in forest.path(REACH, own, from) {
        edges.push(node.edge());
        for tx in [node.sink.tx(), node.source.tx()] {
            if cycle.last() != Some(&tx) {
                cycle.push(tx);
            }
        }
    }
    cycle.reverse();
    edges.reverse();
    Some((cycle, edges))
}
