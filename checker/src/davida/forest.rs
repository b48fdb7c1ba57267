//! Forest of the threads that each active region has reached: for each thread the first event, or the first
//! transaction, that follows the region's begin, and the dependency that brought it, in each of three
//! relations. The caller decides when it grows.
//!
//! A region is identified by its slot, a thread by its row. The entries of a thread are stored together for
//! all relations. A region reaches its own thread by its begin.

use crate::event::EventNumber;
use crate::finding::{Edge, Object, Order};
use crate::hb::{Dependency, EventStamp, edge};

/// Sets of the regions of 64 slots: one word for each column.
pub(super) type Bits = [u64; 4];

/// Events that follow a region's begin in the relation that is asked for.
pub(super) const FULL: usize = 0;
/// Events that follow it by variables alone.
pub(super) const DATA: usize = 1;
/// Transactions that follow the region's transaction.
pub(super) const REACH: usize = 2;
/// Not a relation: the active regions of the thread itself.
pub(super) const OWN: usize = 3;

/// Value in the place of a node index: the thread is the region's own.
const ROOT: u32 = u32::MAX;

/// Node of a region's tree: a thread that the region has reached, with the dependency that brought it.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) source: EventStamp,
    pub(super) sink: EventStamp,
    pub(super) object: Object,
    pub(super) order: Order,
    from: u32,
    row: u32,
}

impl Node {
    pub(super) fn new(from: usize, dependency: &Dependency<'_>) -> Self {
        Self {
            source: *dependency.source,
            sink: *dependency.sink,
            object: dependency.object,
            order: dependency.order(),
            from: from as u32,
            row: dependency.row as u32,
        }
    }

    /// Returns the row of the sink's thread.
    pub(super) fn row(&self) -> usize {
        self.row as usize
    }

    /// Returns the row of the source's thread.
    pub(super) fn from(&self) -> usize {
        self.from as usize
    }

    pub(super) fn edge(&self) -> Edge {
        edge(&self.source, &self.sink, self.object, self.order)
    }
}

/// Entry of a region and a thread: for each relation the first event that the region has reached (or the
/// begin of the first transaction), and the index of its node.
#[derive(Clone, Copy)]
struct Entry {
    first: [EventNumber; 3],
    node: [u32; 3],
}

const NO_ENTRY: Entry = Entry { first: [0; 3], node: [ROOT; 3] };

/// State of one thread: one cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Row {
    /// Sets of the first 64 slots.
    bits: Bits,
    since: Since,
    /// Set once a region has ended: the lower bound may be too low.
    stale: bool,
}

/// Lower bound: no region has reached an earlier event of the thread, or an earlier transaction, by its
/// begin.
#[derive(Clone, Copy)]
pub(super) struct Since {
    pub(super) event: EventNumber,
    pub(super) begin: EventNumber,
}

impl Since {
    const NEVER: Self = Self { event: EventNumber::MAX, begin: EventNumber::MAX };

    /// Returns whether a region may have reached the event or its transaction.
    #[inline(always)]
    pub(super) fn is_reached(self, event: &EventStamp) -> bool {
        (event.event() >= self.event) | (event.tx_begin() >= self.begin)
    }
}

/// Threads reached by all active regions.
#[derive(Default)]
pub(super) struct Forest {
    rows: Vec<Row>,
    /// Sets of the slots beyond the first 64, for each row that has any.
    high: Vec<Vec<Bits>>,
    /// Entries for each row and slot.
    entries: Vec<Vec<Entry>>,
    /// Nodes of each slot: for each thread at most one for each relation, and often one for all.
    trees: Vec<Vec<Node>>,
}

impl Forest {
    /// Makes room for `rows` threads.
    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            let row = Row { bits: Bits::default(), since: Since::NEVER, stale: false };
            self.rows.resize(rows, row);
            self.high.resize(rows, Vec::new());
            self.entries.resize(rows, Vec::new());
        }
    }

    /// Returns the sets of slots 64·`word` and up.
    #[inline]
    pub(super) fn bits(&self, row: usize, word: usize) -> Bits {
        match word.checked_sub(1) {
            None => self.rows[row].bits,
            Some(index) => self.high[row].get(index).copied().unwrap_or_default(),
        }
    }

    #[inline]
    fn bits_mut(&mut self, row: usize, word: usize) -> &mut Bits {
        match word.checked_sub(1) {
            None => &mut self.rows[row].bits,
            Some(index) => {
                let high = &mut self.high[row];
                if index >= high.len() {
                    high.resize(index + 1, Bits::default());
                }
                &mut high[index]
            }
        }
    }

    /// Returns whether the region has reached the thread.
    #[inline]
    pub(super) fn contains(&self, column: usize, row: usize, slot: usize) -> bool {
        self.bits(row, slot / 64)[column] >> (slot % 64) & 1 != 0
    }

    /// Returns the first event of the thread that the region has reached, or the begin of the first
    /// transaction. The region must have reached the thread.
    #[inline]
    pub(super) fn first(&self, column: usize, row: usize, slot: usize) -> EventNumber {
        self.entries[row][slot].first[column]
    }

    fn entry(&mut self, row: usize, slot: usize) -> &mut Entry {
        let entries = &mut self.entries[row];
        if slot >= entries.len() {
            entries.resize(slot + 1, NO_ENTRY);
        }
        &mut entries[slot]
    }

    /// Adds the region of a slot that was opened; `columns` are those that it takes part in, as full or
    /// empty words.
    pub(super) fn begin(&mut self, slot: usize, row: usize, begin: EventNumber, columns: Bits) {
        if slot >= self.trees.len() {
            self.trees.resize_with(slot + 1, Default::default);
        }
        *self.entry(row, slot) = Entry { first: [begin; 3], node: [ROOT; 3] };
        let bits = self.bits_mut(row, slot / 64);
        for (word, column) in bits.iter_mut().zip(columns) {
            *word |= column & 1 << (slot % 64);
        }
        let since = &mut self.rows[row].since;
        since.event = since.event.min(begin);
        since.begin = since.begin.min(begin);
    }

    /// Removes the region in the slot, which was closed.
    pub(super) fn end(&mut self, slot: usize, row: usize) {
        for word in self.bits_mut(row, slot / 64) {
            *word &= !(1 << (slot % 64));
        }
        self.rows[row].stale = true;
        let mut tree = std::mem::take(&mut self.trees[slot]);
        for node in tree.drain(..) {
            for word in self.bits_mut(node.row(), slot / 64) {
                *word &= !(1 << (slot % 64));
            }
            self.rows[node.row()].stale = true;
        }
        self.trees[slot] = tree;
    }

    /// Returns the subset of `regions` that have reached `event` or its transaction. All of `regions` have
    /// reached the thread in `row`.
    pub(super) fn in_time(
        &self,
        word: usize,
        regions: Bits,
        row: usize,
        event: &EventStamp,
    ) -> Bits {
        let latest = [event.event(), event.event(), event.tx_begin()];
        let mut in_time = [0; 4];
        for slot in slots(word, regions[FULL] | regions[DATA] | regions[REACH]) {
            let first = &self.entries[row][slot].first;
            for column in [FULL, DATA, REACH] {
                in_time[column] |= u64::from(first[column] <= latest[column]) << (slot % 64);
            }
        }
        std::array::from_fn(|column| regions[column] & in_time[column])
    }

    /// Lets `regions` reach the sink of `node`. They have reached its source in time, and not yet the
    /// thread of its sink. `own` is the slot of the sink's transaction if that is an active region: a
    /// region that reaches it reaches everything that it reaches.
    pub(super) fn extend(&mut self, word: usize, regions: Bits, own: Option<usize>, node: &Node) {
        let row = node.row();
        let (event, begin) = (node.sink.event(), node.sink.tx_begin());
        for slot in slots(word, regions[FULL] | regions[DATA] | regions[REACH]) {
            let index = self.trees[slot].len() as u32;
            self.trees[slot].push(*node);
            let entry = self.entry(row, slot);
            for (column, first) in [(FULL, event), (DATA, event), (REACH, begin)] {
                if regions[column] >> (slot % 64) & 1 != 0 {
                    entry.first[column] = first;
                    entry.node[column] = index;
                }
            }
            if let Some(own) = own
                && regions[REACH] >> (slot % 64) & 1 != 0
            {
                self.inherit(slot, own);
            }
        }
        let bits = self.bits_mut(row, word);
        for column in [FULL, DATA, REACH] {
            bits[column] |= regions[column];
        }
        let since = &mut self.rows[row].since;
        if regions[FULL] | regions[DATA] != 0 {
            since.event = since.event.min(event);
        }
        if regions[REACH] != 0 {
            since.begin = since.begin.min(begin);
        }
    }

    /// Lets the transaction in `slot` reach everything that the one in `own` reaches.
    fn inherit(&mut self, slot: usize, own: usize) {
        for index in 0..self.trees[own].len() {
            let node = self.trees[own][index];
            let row = node.row();
            if self.contains(REACH, row, own) && self.entries[row][own].node[REACH] == index as u32
            {
                self.reach_transaction(slot, node);
            }
        }
    }

    /// Lets the transaction in `slot` reach the sink of `node`, unless it reaches an earlier transaction of
    /// that thread.
    fn reach_transaction(&mut self, slot: usize, node: Node) {
        let (row, begin) = (node.row(), node.sink.tx_begin());
        let reached = self.contains(REACH, row, slot);
        if reached && begin >= self.first(REACH, row, slot) {
            return;
        }
        let next = self.trees[slot].len();
        let entry = self.entry(row, slot);
        entry.first[REACH] = begin;
        let old = entry.node[REACH];
        // A node that only this relation uses is replaced, so that there are never more than a few.
        let replaced = reached && old != entry.node[FULL] && old != entry.node[DATA];
        entry.node[REACH] = if replaced { old } else { next as u32 };
        match self.trees[slot].get_mut(old as usize).filter(|_| replaced) {
            Some(place) => *place = node,
            None => self.trees[slot].push(node),
        }
        self.bits_mut(row, slot / 64)[REACH] |= 1 << (slot % 64);
        let since = &mut self.rows[row].since;
        since.begin = since.begin.min(begin);
    }

    /// Returns the path from the region to that thread, last step first.
    pub(super) fn path(
        &self,
        column: usize,
        slot: usize,
        row: usize,
    ) -> impl Iterator<Item = &Node> {
        let mut row = row;
        std::iter::from_fn(move || {
            let index = self.entries[row][slot].node[column];
            let node = self.trees[slot].get(index as usize)?;
            row = node.from as usize;
            Some(node)
        })
    }

    /// Returns the lower bound of a thread that may have no row.
    #[inline(always)]
    pub(super) fn lower_bound(&self, row: Option<usize>) -> Since {
        self.rows.get(row.unwrap_or(usize::MAX)).map_or(Since::NEVER, |row| row.since)
    }

    /// Returns whether any region has reached the event of the thread, or its transaction. Tightens the
    /// lower bound if it is stale.
    pub(super) fn is_reached(&mut self, row: usize, event: &EventStamp) -> bool {
        let Row { since, stale, .. } = self.rows[row];
        if !since.is_reached(event) || !stale {
            return since.is_reached(event);
        }
        let mut since = Since::NEVER;
        for word in 0..=self.high[row].len() {
            let bits = self.bits(row, word);
            for slot in slots(word, bits[FULL] | bits[REACH]) {
                let first = &self.entries[row][slot].first;
                if self.contains(FULL, row, slot) {
                    since.event = since.event.min(first[FULL]);
                }
                if self.contains(REACH, row, slot) {
                    since.begin = since.begin.min(first[REACH]);
                }
            }
        }
        self.rows[row].since = since;
        self.rows[row].stale = false;
        since.is_reached(event)
    }

    /// Returns whether no region has reached the thread.
    pub(super) fn is_unreached(&self, row: usize) -> bool {
        let none = |bits: &Bits| *bits == Bits::default();
        none(&self.rows[row].bits) && self.high[row].iter().all(none)
    }

    /// Empties one column.
    pub(super) fn forget(&mut self, column: usize) {
        for row in &mut self.rows {
            row.bits[column] = 0;
            row.stale = true;
        }
        for bits in self.high.iter_mut().flatten() {
            bits[column] = 0;
        }
    }
}

/// Iterates over the slots whose bits are set in one word.
pub(super) fn slots(word: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let slot = word * 64 + bits.trailing_zeros() as usize;
        bits &= bits - 1;
        Some(slot)
    })
}
