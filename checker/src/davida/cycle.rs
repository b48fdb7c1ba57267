//! The trace-level verdict: finds a cycle of transactions as soon as a dependency closes it. Violations of
//! single transactions are elsewhere.
//!
//! This is the question of AeroDrome (Mathur and Viswanathan, "Atomicity Checking in Linear Time using
//! Vector Clocks"), asked in the other direction. AeroDrome's clocks hold, for every variable, lock and
//! thread, the active transactions that are ordered before it. Here each active transaction has one clock,
//! which holds for every thread the first of its transactions that is ordered after the active one; all
//! later ones are ordered after it too. A remembered event names its thread and transaction, so that both
//! answer the same question: is the active transaction ordered before that of the event? Variables and
//! locks need no state, and nothing is to be done to them when a transaction ends.
//!
//! A dependency from transaction i of thread u to transaction j of thread v, the current one there:
//! 1. closes a cycle if j is an active region that reaches i;
//! 2. otherwise makes every active transaction that reaches i and not j reach j and all that j reaches.
//!
//! Invariants: the clock of an active transaction holds everything that it reaches in the graph so far (an
//! active transaction that it reaches has its own clock, which step 2 takes over; an inactive one gains no
//! edges to itself). A node's source is reached by the same transaction, so that parents lead back to it
//! while there is no cycle.
//!
//! Departures from AeroDrome: the edge that closes the cycle is found itself, not the end of a transaction
//! after it, and regardless of the number of transactions of the cycle that are still active; the cycle is
//! shown.
//!
//! Costs: memory O(threads × active transactions), independent of the variables and the length of the
//! trace. Time O(1) for a dependency, and O(threads) for each thread that an active transaction newly
//! reaches. The cycle costs nothing until it exists: its nodes are those of the clocks.

use super::forest::{Column, Forest, Node};
use crate::finding::{Edge, Tx};

/// Step 1: returns the cycle that a dependency closes, if any, with its dependencies. `own` is the slot of
/// the sink's transaction. Step 2 is the forest's `extend`, for all relations at once.
pub(super) fn closed_by(
    forest: &Forest,
    own: usize,
    dependency: &Node,
) -> Option<(Vec<Tx>, Vec<Edge>)> {
    let (from, begin) = (dependency.from(), dependency.source.tx_begin());
    if !forest.contains(Column::Reach, from, own) || forest.first(Column::Reach, from, own) > begin
    {
        return None;
    }
    let mut cycle = vec![dependency.sink.tx(), dependency.source.tx()];
    let mut edges = vec![dependency.edge()];
    for node in forest.path(Column::Reach, own, from) {
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
