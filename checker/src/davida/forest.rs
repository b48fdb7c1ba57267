//! The trees of all active regions in one relation: for each thread the first event that a region's begin happens
//! before, and the dependency that brought it. Which dependencies are in the relation is decided elsewhere.

use crate::event::EventNumber;
use crate::finding::{Edge, Object, Order};
use crate::hb::{Access, Dependency, edge};
use crate::mask::{Mask, slots};

/// The parent of a node that hangs from the region itself, and the node of a region's own thread.
const ROOT: u32 = u32::MAX;

/// A thread that a region has reached, by a dependency.
struct Node {
    source: Access,
    sink: Access,
    /// The row of the sink's thread.
    row: u32,
    object: Object,
    order: Order,
    /// The node of the source's thread.
    parent: u32,
}

/// One step of a path.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) source: &'a Access,
    pub(super) sink: &'a Access,
    pub(super) object: Object,
    pub(super) order: Order,
}

impl Step<'_> {
    pub(super) fn edge(&self) -> Edge {
        edge(self.source, self.sink, self.object, self.order)
    }
}

/// What is known of one thread.
#[derive(Default)]
struct Row {
    /// The regions that have reached the thread, its own active ones included.
    reached: Mask,
    /// For each slot in `reached`, the first event that the region's begin happens before (its begin, for an own
    /// region), and the node that says why.
    first: Vec<EventNumber>,
    node: Vec<u32>,
}

impl Row {
    #[inline]
    fn reach(&mut self, slot: usize, event: EventNumber, node: u32) {
        if slot >= self.first.len() {
            self.first.resize(slot + 1, 0);
            self.node.resize(slot + 1, ROOT);
        }
        self.first[slot] = event;
        self.node[slot] = node;
        self.reached.insert(slot);
    }
}

/// The trees of all active regions.
#[derive(Default)]
pub(super) struct Forest {
    rows: Vec<Row>,
    /// For each slot the nodes of its region's tree.
    trees: Vec<Vec<Node>>,
}

impl Forest {
    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            self.rows.resize_with(rows, Row::default);
        }
    }

    pub(super) fn begin(&mut self, slot: usize, row: usize, begin: &Access) {
        if slot >= self.trees.len() {
            self.trees.resize_with(slot + 1, Vec::new);
        }
        self.rows[row].reach(slot, begin.event(), ROOT);
    }

    pub(super) fn end(&mut self, slot: usize, row: usize) {
        self.rows[row].reached.remove(slot);
        for node in self.trees[slot].drain(..) {
            self.rows[node.row as usize].reached.remove(slot);
        }
    }

    /// The regions among slots 64·`word` and up that have reached the thread.
    #[inline]
    pub(super) fn reached(&self, row: usize, word: usize) -> u64 {
        self.rows[row].reached.word(word)
    }

    /// Whether any region has reached the thread.
    pub(super) fn is_reached(&self, row: usize) -> bool {
        !self.rows[row].reached.is_empty()
    }

    /// Whether the region's begin happens before the event of that thread. The region must have reached the
    /// thread.
    #[inline]
    pub(super) fn precedes(&self, slot: usize, row: usize, event: EventNumber) -> bool {
        self.rows[row].first[slot] <= event
    }

    /// Steps 2 and 3: the regions among `fresh` whose begin happens before the dependency's source reach its sink.
    #[inline]
    pub(super) fn extend(
        &mut self,
        word: usize,
        fresh: u64,
        source_row: usize,
        dependency: &Dependency<'_>,
    ) {
        let pair = [source_row, dependency.row];
        let Ok([from, to]) = self.rows.get_disjoint_mut(pair) else { return };
        let event = dependency.source.event();
        for slot in slots(word, fresh) {
            if from.first[slot] <= event {
                let tree = &mut self.trees[slot];
                to.reach(slot, dependency.sink.event(), tree.len() as u32);
                tree.push(Node {
                    source: *dependency.source,
                    sink: *dependency.sink,
                    row: dependency.row as u32,
                    object: dependency.object,
                    order: dependency.order(),
                    parent: from.node[slot],
                });
            }
        }
    }

    /// The path from the region to that thread, last step first.
    pub(super) fn path(&self, slot: usize, row: usize) -> impl Iterator<Item = Step<'_>> {
        let tree = &self.trees[slot];
        let mut next = self.rows[row].node[slot];
        std::iter::from_fn(move || {
            let node = tree.get(next as usize)?;
            next = node.parent;
            Some(Step {
                source: &node.source,
                sink: &node.sink,
                object: node.object,
                order: node.order,
            })
        })
    }
}
