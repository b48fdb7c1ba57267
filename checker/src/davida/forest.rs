//! Forest of the threads that each active region has reached: for each thread the first event, or the first
//! transaction, that follows the region's begin, and the dependency that brought it, in each of three
//! relations. The caller decides when it grows.
//!
//! A region is identified by its slot, a thread by its row. The entries of a thread are stored together for
//! all relations. A region reaches its own thread by its begin.

use crate::event::EventNumber;
use crate::finding::{Edge, Object, Order};
use crate::hb::{Dependency, EventStamp, edge};
use Column::{Data, Full, Reach};
use std::ops::{Index, IndexMut};

/// A column of the forest: a relation between regions and threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// Events that follow a region's begin in the relation that is asked for.
    Full,
    /// Events that follow it by variables alone.
    Data,
    /// Transactions that follow the region's transaction.
    Reach,
    /// Not a relation: the active regions of the thread itself.
    Own,
}

/// Sets of the regions of 64 slots: one word for each column.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RegionBits([u64; 4]);

impl RegionBits {
    /// All regions, in every column.
    pub(super) const ALL: Self = Self([u64::MAX; 4]);

    /// Returns the sets without the regions of `other`, column by column.
    #[inline(always)]
    pub(super) fn without(mut self, other: Self) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
        self
    }

    /// Adds the region of a slot to the columns that are full in `columns`.
    #[inline(always)]
    fn insert(&mut self, slot: usize, columns: Self) {
        for (word, column) in self.0.iter_mut().zip(columns.0) {
            *word |= column & 1 << (slot % 64);
        }
    }

    /// Removes the region of a slot from all columns.
    #[inline(always)]
    fn remove(&mut self, slot: usize) {
        for word in &mut self.0 {
            *word &= !(1 << (slot % 64));
        }
    }

    /// Returns the regions in the column of any relation.
    #[inline(always)]
    pub(super) fn in_any_relation(self) -> u64 {
        self[Full] | self[Data] | self[Reach]
    }
}

impl Index<Column> for RegionBits {
    type Output = u64;

    #[inline(always)]
    fn index(&self, column: Column) -> &u64 {
        &self.0[column as usize]
    }
}

impl IndexMut<Column> for RegionBits {
    #[inline(always)]
    fn index_mut(&mut self, column: Column) -> &mut u64 {
        &mut self.0[column as usize]
    }
}

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

    /// Returns the dependency from the source of this one to the sink of another one, on the same object.
    pub(super) fn joined_with(&self, last: &Self, order: Order) -> Self {
        Self { sink: last.sink, row: last.row, order, ..*self }
    }

    pub(super) fn is_variable(&self) -> bool {
        matches!(self.object, Object::Variable(_))
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
    first: PerRelation<EventNumber>,
    node: PerRelation<u32>,
}

const NO_ENTRY: Entry = Entry { first: PerRelation([0; 3]), node: PerRelation([ROOT; 3]) };

/// A value for each relation, which excludes the column `Own`.
#[derive(Clone, Copy)]
struct PerRelation<T>([T; 3]);

impl<T> Index<Column> for PerRelation<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, column: Column) -> &T {
        &self.0[column as usize]
    }
}

impl<T> IndexMut<Column> for PerRelation<T> {
    #[inline(always)]
    fn index_mut(&mut self, column: Column) -> &mut T {
        &mut self.0[column as usize]
    }
}

/// State of one thread: one cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Row {
    /// Sets of the first 64 slots.
    bits: RegionBits,
    bound: LowerBound,
    /// Set once a region has ended: the lower bound may be too low.
    stale: bool,
}

/// Lower bound: no region has reached an earlier event of the thread, or an earlier transaction, by its
/// begin.
#[derive(Clone, Copy)]
pub(super) struct LowerBound {
    pub(super) event: EventNumber,
    pub(super) begin: EventNumber,
}

impl LowerBound {
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
    high: Vec<Vec<RegionBits>>,
    /// Entries for each row and slot.
    entries: Vec<Vec<Entry>>,
    /// Nodes of each slot: for each thread at most one for each relation, and often one for all.
    trees: Vec<Vec<Node>>,
}

impl Forest {
    /// Makes room for `rows` threads.
    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            let row = Row { bits: RegionBits::default(), bound: LowerBound::NEVER, stale: false };
            self.rows.resize(rows, row);
            self.high.resize(rows, Vec::new());
            self.entries.resize(rows, Vec::new());
        }
    }

    /// Returns the sets of slots 64·`word` and up.
    #[inline]
    pub(super) fn bits(&self, row: usize, word: usize) -> RegionBits {
        match word.checked_sub(1) {
            None => self.rows[row].bits,
            Some(index) => self.high[row].get(index).copied().unwrap_or_default(),
        }
    }

    #[inline]
    fn bits_mut(&mut self, row: usize, word: usize) -> &mut RegionBits {
        match word.checked_sub(1) {
            None => &mut self.rows[row].bits,
            Some(index) => {
                let high = &mut self.high[row];
                if index >= high.len() {
                    high.resize(index + 1, RegionBits::default());
                }
                &mut high[index]
            }
        }
    }

    /// Returns whether the region has reached the thread.
    #[inline]
    pub(super) fn contains(&self, column: Column, row: usize, slot: usize) -> bool {
        self.bits(row, slot / 64)[column] >> (slot % 64) & 1 != 0
    }

    /// Returns the first event of the thread that the region has reached, or the begin of the first
    /// transaction. The region must have reached the thread.
    #[inline]
    pub(super) fn first(&self, column: Column, row: usize, slot: usize) -> EventNumber {
        self.entries[row][slot].first[column]
    }

    fn entry(&mut self, row: usize, slot: usize) -> &mut Entry {
        let entries = &mut self.entries[row];
        if slot >= entries.len() {
            entries.resize(slot + 1, NO_ENTRY);
        }
        &mut entries[slot]
    }

    /// Adds the region of a slot that was opened; `columns` are the columns in which it takes part, as full or empty
    /// words.
    pub(super) fn begin(
        &mut self,
        slot: usize,
        row: usize,
        begin: EventNumber,
        columns: RegionBits,
    ) {
        if slot >= self.trees.len() {
            self.trees.resize_with(slot + 1, Default::default);
        }
        *self.entry(row, slot) =
            Entry { first: PerRelation([begin; 3]), node: PerRelation([ROOT; 3]) };
        self.bits_mut(row, slot / 64).insert(slot, columns);
        self.open(row, begin);
    }

    /// Lowers the bound of a thread for a region that was opened and has no slot: it has reached its own thread alone.
    pub(super) fn open(&mut self, row: usize, begin: EventNumber) {
        let bound = &mut self.rows[row].bound;
        bound.event = bound.event.min(begin);
        bound.begin = bound.begin.min(begin);
    }

    /// Notes that a region without a slot was closed.
    pub(super) fn close(&mut self, row: usize) {
        self.rows[row].stale = true;
    }

    /// Returns how often the region in the slot has reached a thread.
    pub(super) fn reached(&self, slot: usize) -> usize {
        self.trees.get(slot).map_or(0, Vec::len)
    }

    /// Removes the region in the slot, which was closed.
    pub(super) fn end(&mut self, slot: usize, row: usize) {
        self.bits_mut(row, slot / 64).remove(slot);
        self.rows[row].stale = true;
        let mut tree = std::mem::take(&mut self.trees[slot]);
        for node in tree.drain(..) {
            self.bits_mut(node.row(), slot / 64).remove(slot);
            self.rows[node.row()].stale = true;
        }
        self.trees[slot] = tree;
    }

    /// Returns the subset of `regions` that have reached `event` or its transaction. All of `regions` have
    /// reached the thread in `row`.
    pub(super) fn in_time(
        &self,
        word: usize,
        regions: RegionBits,
        row: usize,
        event: &EventStamp,
    ) -> RegionBits {
        let latest = PerRelation([event.event(), event.event(), event.tx_begin()]);
        let mut in_time = RegionBits::default();
        for slot in slots(word, regions.in_any_relation()) {
            let first = &self.entries[row][slot].first;
            for column in [Full, Data, Reach] {
                in_time[column] |= u64::from(first[column] <= latest[column]) << (slot % 64);
            }
        }
        RegionBits(std::array::from_fn(|column| regions.0[column] & in_time.0[column]))
    }

    /// Lets `regions` reach the sink of `node`. They have reached its source in time, and not yet the
    /// thread of its sink. `own` is the slot of the sink's transaction if that is an active region: a
    /// region that reaches it reaches everything that it reaches.
    pub(super) fn extend(
        &mut self,
        word: usize,
        regions: RegionBits,
        own: Option<usize>,
        node: &Node,
    ) {
        let row = node.row();
        let (event, begin) = (node.sink.event(), node.sink.tx_begin());
        for slot in slots(word, regions.in_any_relation()) {
            let index = self.trees[slot].len() as u32;
            self.trees[slot].push(*node);
            let entry = self.entry(row, slot);
            for (column, first) in [(Full, event), (Data, event), (Reach, begin)] {
                if regions[column] >> (slot % 64) & 1 != 0 {
                    entry.first[column] = first;
                    entry.node[column] = index;
                }
            }
            if let Some(own) = own
                && regions[Reach] >> (slot % 64) & 1 != 0
            {
                self.inherit(slot, own);
            }
        }
        let bits = self.bits_mut(row, word);
        for column in [Full, Data, Reach] {
            bits[column] |= regions[column];
        }
        let bound = &mut self.rows[row].bound;
        if regions[Full] | regions[Data] != 0 {
            bound.event = bound.event.min(event);
        }
        if regions[Reach] != 0 {
            bound.begin = bound.begin.min(begin);
        }
    }

    /// Lets the transaction in `slot` reach everything that the one in `own` reaches.
    fn inherit(&mut self, slot: usize, own: usize) {
        for index in 0..self.trees[own].len() {
            let node = self.trees[own][index];
            let row = node.row();
            if self.contains(Reach, row, own) && self.entries[row][own].node[Reach] == index as u32
            {
                self.reach_transaction(slot, node);
            }
        }
    }

    /// Lets the transaction in `slot` reach the sink of `node`, unless it reaches an earlier transaction of
    /// that thread.
    fn reach_transaction(&mut self, slot: usize, node: Node) {
        let (row, begin) = (node.row(), node.sink.tx_begin());
        let reached = self.contains(Reach, row, slot);
        if reached && begin >= self.first(Reach, row, slot) {
            return;
        }
        let next = self.trees[slot].len();
        let entry = self.entry(row, slot);
        entry.first[Reach] = begin;
        let old = entry.node[Reach];
        // A node that only this relation uses is replaced, so that there are never more than a few.
        let replaced = reached && old != entry.node[Full] && old != entry.node[Data];
        entry.node[Reach] = if replaced { old } else { next as u32 };
        match self.trees[slot].get_mut(old as usize).filter(|_| replaced) {
            Some(place) => *place = node,
            None => self.trees[slot].push(node),
        }
        self.bits_mut(row, slot / 64)[Reach] |= 1 << (slot % 64);
        let bound = &mut self.rows[row].bound;
        bound.begin = bound.begin.min(begin);
    }

    /// Returns the path from the region to that thread, last step first.
    pub(super) fn path(
        &self,
        column: Column,
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

    /// Iterates over the dependencies by which a region, of the thread in `row`, has reached other threads at first.
    pub(super) fn departures(
        &self,
        column: Column,
        slot: usize,
        row: usize,
    ) -> impl Iterator<Item = &Node> {
        self.trees[slot].iter().enumerate().filter_map(move |(index, node)| {
            let is_first = self.contains(column, node.row(), slot)
                && self.entries[node.row()][slot].node[column] == index as u32;
            (node.from() == row && is_first).then_some(node)
        })
    }

    /// Returns the first events of the thread in `row` that regions have reached.
    pub(super) fn reached_first(&self, row: usize) -> impl Iterator<Item = EventNumber> {
        (0..=self.high[row].len()).flat_map(move |word| {
            let bits = self.bits(row, word);
            [Full, Data].into_iter().flat_map(move |column| {
                slots(word, bits[column]).map(move |slot| self.first(column, row, slot))
            })
        })
    }

    /// Returns the dependencies by which the region in the slot has reached other threads.
    pub(super) fn nodes(&self, slot: usize) -> &[Node] {
        self.trees.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Returns the lower bound of a thread that may have no row.
    #[inline(always)]
    pub(super) fn lower_bound(&self, row: Option<usize>) -> LowerBound {
        self.rows.get(row.unwrap_or(usize::MAX)).map_or(LowerBound::NEVER, |row| row.bound)
    }

    /// Returns whether any region has reached the event of the thread, or its transaction. Tightens the
    /// lower bound if it is stale. `open` is the begin of the thread's first region without a slot.
    pub(super) fn is_reached(&mut self, row: usize, event: &EventStamp, open: EventNumber) -> bool {
        let Row { bound, stale, .. } = self.rows[row];
        if !bound.is_reached(event) || !stale {
            return bound.is_reached(event);
        }
        let mut bound = LowerBound { event: open, begin: open };
        for word in 0..=self.high[row].len() {
            let bits = self.bits(row, word);
            for slot in slots(word, bits.in_any_relation()) {
                let first = &self.entries[row][slot].first;
                if self.contains(Full, row, slot) {
                    bound.event = bound.event.min(first[Full]);
                }
                if self.contains(Data, row, slot) {
                    bound.event = bound.event.min(first[Data]);
                }
                if self.contains(Reach, row, slot) {
                    bound.begin = bound.begin.min(first[Reach]);
                }
            }
        }
        self.rows[row].bound = bound;
        self.rows[row].stale = false;
        bound.is_reached(event)
    }

    /// Returns whether no region has reached the thread.
    pub(super) fn is_unreached(&self, row: usize) -> bool {
        let none = |bits: &RegionBits| *bits == RegionBits::default();
        none(&self.rows[row].bits) && self.high[row].iter().all(none)
    }

    /// Empties one column.
    pub(super) fn forget(&mut self, column: Column) {
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
