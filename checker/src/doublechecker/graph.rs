//! The imprecise dependence graph: transactions with their logs, edges, and garbage collection. The caller decides
//! which edges there are.

use crate::event::{EventNumber, VarId};
use crate::finding::Object;
use crate::hb::EventStamp;

/// Number of recent edges of a transaction among which another one is searched for.
const RECENT: usize = 8;

/// Length up to which a log keeps its memory for another transaction.
const SPARE: usize = 256;

/// Weight below which no garbage is searched for.
const UNCOLLECTED: usize = 4096;

/// An access in the log of its transaction.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) now: EventStamp,
    pub(super) variable: VarId,
    /// Life of the variable's memory.
    pub(super) life: u32,
}

/// A dependency by synchronisation, in the log of the transaction that it ends in.
#[derive(Clone, Copy)]
pub(super) struct SyncEdge {
    pub(super) source: EventStamp,
    pub(super) sink: EventStamp,
    pub(super) object: Object,
}

/// A transaction that may have been forgotten: its place, and its first event, which no other one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    index: u32,
    begin: EventNumber,
}

/// A transaction, with the unary ones after it in its thread that no edge leads to.
#[derive(Default)]
pub(super) struct Node {
    /// First event; `None` if the place is free.
    pub(super) begin: EventStamp,
    /// Event at which it ended, if it is a region.
    pub(super) end: Option<EventNumber>,
    pub(super) row: usize,
    pub(super) accesses: Vec<Access>,
    pub(super) syncs: Vec<SyncEdge>,
    ended: bool,
    /// Number of edges that end here, that of program order among them.
    incoming: usize,
    outgoing: Vec<u32>,
    /// Next transaction of the thread.
    next: Option<u32>,
    /// Last collection that found it reachable.
    reached: u64,
}

/// Live transactions.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// Number of entries in logs, and of edges.
    entries: usize,
    /// Weight at which garbage is searched for.
    limit: usize,
    collections: u64,
}

/// Transactions that no active one leads to.
pub(super) struct Garbage {
    all: Vec<u32>,
    /// The strongly connected components of several transactions.
    pub(super) components: Vec<Vec<u32>>,
}

impl Graph {
    /// Returns the number of live transactions.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Returns the number of entries in logs, and of edges.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    pub(super) fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    /// Returns the place of the transaction, if it is live.
    #[inline]
    pub(super) fn live(&self, handle: Option<Handle>) -> Option<u32> {
        let Handle { index, begin } = handle?;
        let node = self.nodes.get(index as usize)?;
        (node.begin.is_some() && node.begin.event() == begin).then_some(index)
    }

    /// Adds a transaction of the thread in the row that begins now; `before` is the one before it.
    pub(super) fn add(&mut self, row: usize, now: &EventStamp, before: Option<Handle>) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            (self.nodes.len() - 1) as u32
        });
        let node = &mut self.nodes[index as usize];
        (node.row, node.begin, node.ended) = (row, *now, false);
        if let Some(before) = self.live(before) {
            self.nodes[before as usize].next = Some(index);
            self.nodes[index as usize].incoming = 1;
        }
        Handle { index, begin: now.event() }
    }

    /// Adds an edge between two transactions of different threads, unless it is one of the latest.
    pub(super) fn add_edge(&mut self, from: u32, to: Handle) {
        let outgoing = &mut self.nodes[from as usize].outgoing;
        if outgoing.iter().rev().take(RECENT).any(|&other| other == to.index) {
            return;
        }
        outgoing.push(to.index);
        self.entries += 1;
        self.nodes[to.index as usize].incoming += 1;
    }

    #[inline]
    pub(super) fn log(&mut self, index: u32, access: Access) {
        self.nodes[index as usize].accesses.push(access);
        self.entries += 1;
    }

    pub(super) fn log_sync(&mut self, to: Handle, sync: SyncEdge) {
        self.nodes[to.index as usize].syncs.push(sync);
        self.entries += 1;
    }

    /// Ends the transaction, so that it gets no further edges to it. It is forgotten if it has none, together with all
    /// successors that then have none.
    pub(super) fn end(&mut self, handle: Handle, at: Option<EventNumber>) {
        let node = &mut self.nodes[handle.index as usize];
        (node.ended, node.end) = (true, at);
        let mut candidates = vec![handle.index];
        while let Some(index) = candidates.pop() {
            let node = &self.nodes[index as usize];
            if !node.ended || node.incoming > 0 {
                continue;
            }
            for next in self.forget(index) {
                let node = &mut self.nodes[next as usize];
                node.incoming -= 1;
                if node.incoming == 0 {
                    candidates.push(next);
                }
            }
        }
    }

    /// Frees the place of a transaction; returns the ends of its edges.
    fn forget(&mut self, index: u32) -> Vec<u32> {
        let node = &mut self.nodes[index as usize];
        self.entries -= node.accesses.len() + node.syncs.len() + node.outgoing.len();
        let mut accesses = std::mem::take(&mut node.accesses);
        let mut to = std::mem::take(&mut node.outgoing);
        to.extend(node.next);
        accesses.clear();
        accesses.shrink_to(SPARE);
        *node = Node { accesses, ..Node::default() };
        self.free.push(index);
        to
    }

    /// Returns whether there is enough for a search for garbage to pay.
    pub(super) fn should_collect(&self) -> bool {
        self.len() + self.entries > self.limit.max(UNCOLLECTED)
    }

    /// Finds the transactions that no active one leads to: they are on no cycle that is not there yet.
    pub(super) fn garbage(&mut self) -> Garbage {
        self.collections += 1;
        let mark = self.collections;
        let is_active = |node: &Node| node.begin.is_some() && !node.ended;
        let mut left: Vec<u32> =
            (0..).zip(&self.nodes).filter(|(_, node)| is_active(node)).map(|(i, _)| i).collect();
        while let Some(index) = left.pop() {
            let node = &mut self.nodes[index as usize];
            if std::mem::replace(&mut node.reached, mark) != mark {
                left.extend(node.outgoing.iter().copied().chain(node.next));
            }
        }
        let is_garbage = |node: &Node| node.begin.is_some() && node.reached != mark;
        let all: Vec<u32> =
            (0..).zip(&self.nodes).filter(|(_, node)| is_garbage(node)).map(|(i, _)| i).collect();
        let components = Components::of(self, &all, mark);
        Garbage { all, components }
    }

    /// Forgets garbage.
    pub(super) fn collect(&mut self, garbage: &Garbage) {
        for &index in &garbage.all {
            for to in self.forget(index) {
                let incoming = &mut self.nodes[to as usize].incoming;
                *incoming = incoming.saturating_sub(1);
            }
        }
        // A collection goes through all places, including places that are free since a peak.
        self.limit = (2 * (self.len() + self.entries)).max(self.nodes.len());
    }

    /// Returns the first event of all live transactions.
    pub(super) fn oldest(&self) -> Option<EventNumber> {
        let live = self.nodes.iter().filter(|node| node.begin.is_some());
        live.map(|node| node.begin.event()).min()
    }
}

/// Tarjan's search for strongly connected components, among transactions that are not reached.
struct Components<'a> {
    graph: &'a Graph,
    mark: u64,
    /// Order of discovery and lowest one reachable, from 1 on; 0 before discovery.
    order: Vec<[u32; 2]>,
    on_stack: Vec<bool>,
    stack: Vec<u32>,
    discovered: u32,
    found: Vec<Vec<u32>>,
}

impl<'a> Components<'a> {
    fn of(graph: &'a Graph, among: &[u32], mark: u64) -> Vec<Vec<u32>> {
        let count = graph.nodes.len();
        let mut search = Self {
            graph,
            mark,
            order: vec![[0; 2]; count],
            on_stack: vec![false; count],
            stack: Vec::new(),
            discovered: 0,
            found: Vec::new(),
        };
        for &index in among {
            if search.order[index as usize][0] == 0 {
                search.from(index);
            }
        }
        search.found
    }

    fn discover(&mut self, index: u32) {
        self.discovered += 1;
        self.order[index as usize] = [self.discovered; 2];
        self.on_stack[index as usize] = true;
        self.stack.push(index);
    }

    fn from(&mut self, root: u32) {
        let graph = self.graph;
        let mut path = vec![(root, 0)];
        self.discover(root);
        while let Some(&mut (index, ref mut tried)) = path.last_mut() {
            let Node { outgoing, next, .. } = graph.node(index);
            let to = outgoing.get(*tried).copied();
            let to = to.or(next.filter(|_| *tried == outgoing.len()));
            *tried += 1;
            let [_, low] = self.order[index as usize];
            if let Some(to) = to {
                let [discovered, _] = self.order[to as usize];
                if discovered == 0 && graph.node(to).reached != self.mark {
                    self.discover(to);
                    path.push((to, 0));
                } else if self.on_stack[to as usize] {
                    self.order[index as usize][1] = low.min(discovered);
                }
                continue;
            }
            path.pop();
            if let Some(&(before, _)) = path.last() {
                let reached = &mut self.order[before as usize][1];
                *reached = low.min(*reached);
            }
            if self.order[index as usize][0] == low {
                self.close(index);
            }
        }
    }

    /// Takes the component of that root from the stack.
    fn close(&mut self, root: u32) {
        let start = self.stack.iter().rposition(|&index| index == root).unwrap_or(0);
        let component = self.stack.split_off(start);
        for &index in &component {
            self.on_stack[index as usize] = false;
        }
        if component.len() > 1 {
            self.found.push(component);
        }
    }
}
