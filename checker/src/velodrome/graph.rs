//! The graph of live transactions: edges between direct predecessors and successors, path search, and
//! garbage collection. The caller interprets the paths.

use crate::event::EventNumber;
use crate::finding::{Object, Order};
use crate::hb::EventStamp;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

/// A dependency between two transactions; its events are the timestamps at its two ends.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) source: EventStamp,
    pub(crate) sink: EventStamp,
    pub(crate) object: Object,
    pub(crate) order: Order,
}

/// Index of a transaction; reused after the transaction is forgotten.
pub(super) type Node = u32;

#[derive(Clone, Copy)]
struct Edge {
    to: Node,
    /// None for program order.
    link: Option<Link>,
}

#[derive(Default)]
struct Transaction {
    row: usize,
    ended: bool,
    /// Transactions with an edge to this one.
    incoming: FxHashSet<Node>,
    /// Dependencies in the order in which they came.
    outgoing: Vec<Edge>,
    /// Next transaction of the thread.
    next: Option<Node>,
    /// Last search that visited the transaction.
    seen: u64,
}

/// Live transactions. There is no cycle among them.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Transaction>,
    free: Vec<Node>,
    /// Live transactions of each row, by begin.
    rows: Vec<VecDeque<(EventNumber, Node)>>,
    searches: u64,
}

impl Graph {
    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            self.rows.resize_with(rows, VecDeque::new);
        }
    }

    /// Returns the number of live transactions.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Returns the begin of the first live transaction in the row.
    pub(super) fn first(&self, row: usize) -> Option<EventNumber> {
        self.rows.get(row)?.front().map(|&(begin, _)| begin)
    }

    /// Returns the first begin of all live transactions.
    pub(super) fn oldest(&self) -> Option<EventNumber> {
        (0..self.rows.len()).filter_map(|row| self.first(row)).min()
    }

    /// Returns the live transaction that the event belongs to. A unary transaction without a node belongs
    /// to the one before it in its thread.
    pub(super) fn find(&self, row: usize, event: &EventStamp) -> Option<Node> {
        let live = self.rows.get(row)?;
        let later = live.partition_point(|&(begin, _)| begin <= event.tx_begin());
        later.checked_sub(1).and_then(|index| live.get(index)).map(|&(_, node)| node)
    }

    /// Returns the current transaction of the thread in the row; adds it if it is missing.
    pub(super) fn current(&mut self, row: usize, now: &EventStamp) -> Node {
        let last = self.rows[row].back().copied();
        if let Some((begin, node)) = last
            && begin == now.tx_begin()
        {
            return node;
        }
        let node = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Transaction::default());
            (self.nodes.len() - 1) as Node
        });
        let transaction = &mut self.nodes[node as usize];
        *transaction = Transaction { row, ..Transaction::default() };
        if let Some((_, before)) = last {
            transaction.incoming.insert(before);
            self.nodes[before as usize].next = Some(node);
        }
        self.rows[row].push_back((now.tx_begin(), node));
        node
    }

    /// Returns whether `from` has an edge to `to`.
    pub(super) fn has_edge(&self, from: Node, to: Node) -> bool {
        self.nodes[to as usize].incoming.contains(&from)
    }

    pub(super) fn add_edge(&mut self, from: Node, to: Node, link: Link) {
        self.nodes[to as usize].incoming.insert(from);
        self.nodes[from as usize].outgoing.push(Edge { to, link: Some(link) });
    }

    /// Finds a path from one transaction to another by depth-first search; returns its dependencies.
    pub(super) fn path(&mut self, from: Node, to: Node) -> Option<Vec<Link>> {
        self.searches += 1;
        let search = self.searches;
        let mut path: Vec<(Node, usize, Option<Link>)> = vec![(from, 0, None)];
        self.nodes[from as usize].seen = search;
        while let Some((node, tried, _)) = path.last_mut() {
            if *node == to {
                return Some(path.into_iter().filter_map(|(_, _, link)| link).collect());
            }
            let Transaction { outgoing, next, .. } = &self.nodes[*node as usize];
            // Dependencies first, program order last.
            let in_order = || next.map(|to| Edge { to, link: None });
            let edge = match outgoing.get(*tried) {
                Some(edge) => Some(*edge),
                None if *tried == outgoing.len() => in_order(),
                None => None,
            };
            *tried += 1;
            let Some(Edge { to: next, link }) = edge else {
                path.pop();
                continue;
            };
            if std::mem::replace(&mut self.nodes[next as usize].seen, search) != search {
                path.push((next, 0, link));
            }
        }
        None
    }

    /// Ends the transaction: it gets no more incoming edges, and is forgotten if it has none, with all
    /// successors that are left without any.
    pub(super) fn end(&mut self, node: Node) {
        self.nodes[node as usize].ended = true;
        let mut candidates = vec![node];
        while let Some(node) = candidates.pop() {
            let transaction = &mut self.nodes[node as usize];
            if !transaction.ended || !transaction.incoming.is_empty() {
                continue;
            }
            let Transaction { row, outgoing, next, .. } = std::mem::take(transaction);
            self.free.push(node);
            // Without an edge from a predecessor in its thread, it is the first.
            self.rows[row].pop_front();
            let to: Vec<Node> = outgoing.iter().map(|edge| edge.to).chain(next).collect();
            for next in to {
                let incoming = &mut self.nodes[next as usize].incoming;
                if incoming.remove(&node) && incoming.is_empty() {
                    candidates.push(next);
                }
            }
        }
    }
}
