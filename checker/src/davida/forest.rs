//! The trees of all active regions in one relation: for each thread the first event that a region's begin happens
//! before, and the dependency that brought it. Which dependencies are in the relation is decided elsewhere.

use super::masks::{Masks, slots};
use crate::event::EventNumber;
use crate::finding::{Edge, Object, Order};
use crate::hb::{Access, Dependency, edge};

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

/// What is known of one thread, for each slot whose region has reached it.
#[derive(Default)]
struct Row {
    /// The first event that the region's begin happens before (its begin, for an own region).
    first: Vec<EventNumber>,
    /// The node that says why.
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
    }
}

/// The trees of all active regions.
pub(super) struct Forest {
    /// The column of the masks that tells which regions have reached which thread.
    column: usize,
    rows: Vec<Row>,
    /// For each slot the nodes of its region's tree.
    trees: Vec<Vec<Node>>,
}

impl Forest {
    pub(super) fn new(column: usize) -> Self {
        Self { column, rows: Vec::new(), trees: Vec::new() }
    }

    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            self.rows.resize_with(rows, Row::default);
        }
    }

    pub(super) fn begin(&mut self, slot: usize, row: usize, begin: &Access, masks: &mut Masks) {
        if slot >= self.trees.len() {
            self.trees.resize_with(slot + 1, Vec::new);
        }
        self.rows[row].reach(slot, begin.event(), ROOT);
        masks.insert_event(row, slot, self.column, begin.event());
    }

    pub(super) fn end(&mut self, slot: usize, row: usize, masks: &mut Masks) {
        masks.remove(row, slot, self.column);
        for node in self.trees[slot].drain(..) {
            masks.remove(node.row as usize, slot, self.column);
        }
    }

    /// The first event of that thread that the regions among `bits`, which have reached it, have reached.
    pub(super) fn earliest(&self, row: usize, word: usize, bits: u64) -> EventNumber {
        let first = &self.rows[row].first;
        slots(word, bits).map(|slot| first[slot]).min().unwrap_or(EventNumber::MAX)
    }

    /// Whether the region's begin happens before the event of that thread. The region must have reached the
    /// thread.
    #[inline]
    pub(super) fn precedes(&self, slot: usize, row: usize, event: EventNumber) -> bool {
        self.rows[row].first[slot] <= event
    }

    /// Steps 2 and 3: the regions among `fresh`, which have reached the source's thread and not the sink's, reach
    /// the sink if their begin happens before the source.
    #[inline]
    pub(super) fn extend(
        &mut self,
        word: usize,
        fresh: u64,
        source_row: usize,
        dependency: &Dependency<'_>,
        masks: &mut Masks,
    ) {
        let pair = [source_row, dependency.row];
        let Ok([from, to]) = self.rows.get_disjoint_mut(pair) else { return };
        let event = dependency.source.event();
        for slot in slots(word, fresh) {
            if from.first[slot] <= event {
                let tree = &mut self.trees[slot];
                to.reach(slot, dependency.sink.event(), tree.len() as u32);
                masks.insert_event(dependency.row, slot, self.column, dependency.sink.event());
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
