//! The graph of transactions: which live ones come directly before which, paths in it, and what can be forgotten.
//! What a path means is decided elsewhere.

use crate::event::EventNumber;
use crate::finding::{Object, Order};
use crate::hb::EventStamp;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

/// A dependency between two transactions; its events are the timestamps at its two ends.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) source: EventStamp,
    pub(super) sink: EventStamp,
    pub(super) object: Object,
    pub(super) order: Order,
}

/// The index of a transaction, used again when it is forgotten.
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
    /// The next transaction of the thread.
    next: Option<Node>,
    /// The last search that came here.
    seen: u64,
}

/// All live transactions. There is no cycle among them.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Transaction>,
    free: Vec<Node>,
    /// For each row the live transactions, by begin.
    rows: Vec<VecDeque<(EventNumber, Node)>>,
    searches: u64,
}

impl Graph {
    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            self.rows.resize_with(rows, VecDeque::new);
        }
    }

    /// How many transactions are live.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// The begin of the first live transaction in the row.
    pub(super) fn first(&self, row: usize) -> Option<EventNumber> {
        self.rows.get(row)?.front().map(|&(begin, _)| begin)
    }

    /// The first begin of all.
    pub(super) fn oldest(&self) -> Option<EventNumber> {
        (0..self.rows.len()).filter_map(|row| self.first(row)).min()
    }

    /// The live transaction that the event belongs to. A unary transaction that has none of its own belongs to the one
    /// before it in its thread.
    pub(super) fn find(&self, row: usize, event: &EventStamp) -> Option<Node> {
        let live = self.rows.get(row)?;
        let later = live.partition_point(|&(begin, _)| begin <= event.tx_begin());
        later.checked_sub(1).and_then(|index| live.get(index)).map(|&(_, node)| node)
    }

    /// The current transaction of the thread in the row, which is added unless it is there.
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

    /// Whether the first transaction has an edge to the second.
    pub(super) fn has_edge(&self, from: Node, to: Node) -> bool {
        self.nodes[to as usize].incoming.contains(&from)
    }

    pub(super) fn add_edge(&mut self, from: Node, to: Node, link: Link) {
        self.nodes[to as usize].incoming.insert(from);
        self.nodes[from as usize].outgoing.push(Edge { to, link: Some(link) });
    }

    /// A path from one transaction to another, by depth-first search: the dependencies on it.
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

    /// The transaction has ended: it gets no more incoming edges, and is forgotten with all that follows from it when
    /// it has none.
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
            // It has no edge from one before it in its thread: it is the first.
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
