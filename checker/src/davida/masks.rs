//! For each thread the active regions that have reached it, as bits, one set for each relation, side by side: one
//! look at two threads tells whether a dependency between them can do anything.

use crate::event::EventNumber;

/// The regions of 64 slots, as bits: one word for each column.
pub(super) type Bits = [u64; 4];

/// Active regions of the thread itself.
pub(super) const OWN: usize = 0;
/// Those that have reached it in the relation that is asked for.
pub(super) const FULL: usize = 1;
/// Those that have reached it by variables alone.
pub(super) const DATA: usize = 2;
/// Those whose transaction reaches one of its transactions.
pub(super) const REACH: usize = 3;

/// What is known of one thread: one cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Row {
    /// The bits of the first 64 slots.
    low: Bits,
    /// No region has reached an earlier event of the thread, or an earlier transaction, by its begin.
    since: Since,
    /// A region has gone since: `since` may be too low.
    stale: bool,
}

/// A lower bound of the events, and of the begins of transactions, that regions have reached.
#[derive(Clone, Copy)]
pub(super) struct Since {
    pub(super) event: EventNumber,
    pub(super) begin: EventNumber,
}

impl Since {
    pub(super) const NEVER: Self = Self { event: EventNumber::MAX, begin: EventNumber::MAX };
}

/// One row for each thread.
#[derive(Default)]
pub(super) struct Masks {
    rows: Vec<Row>,
    /// The bits of the other slots, where there are any.
    high: Vec<Vec<Bits>>,
}

impl Masks {
    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.rows.len() {
            let row = Row { low: Bits::default(), since: Since::NEVER, stale: false };
            self.rows.resize(rows, row);
            self.high.resize(rows, Vec::new());
        }
    }

    /// The bits of slots 64·`word` and up.
    #[inline]
    pub(super) fn bits(&self, row: usize, word: usize) -> Bits {
        match word.checked_sub(1) {
            None => self.rows[row].low,
            Some(index) => self.high[row].get(index).copied().unwrap_or_default(),
        }
    }

    #[inline]
    fn bits_mut(&mut self, row: usize, word: usize) -> &mut Bits {
        match word.checked_sub(1) {
            None => &mut self.rows[row].low,
            Some(index) => {
                let high = &mut self.high[row];
                if index >= high.len() {
                    high.resize(index + 1, Bits::default());
                }
                &mut high[index]
            }
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, row: usize, slot: usize, column: usize) {
        self.bits_mut(row, slot / 64)[column] |= 1 << (slot % 64);
    }

    /// The region has reached that event of the thread.
    #[inline]
    pub(super) fn insert_event(
        &mut self,
        row: usize,
        slot: usize,
        column: usize,
        event: EventNumber,
    ) {
        self.insert(row, slot, column);
        let since = &mut self.rows[row].since;
        since.event = since.event.min(event);
    }

    /// The region's transaction reaches the transaction of the thread that begins there.
    #[inline]
    pub(super) fn insert_begin(&mut self, row: usize, slot: usize, begin: EventNumber) {
        self.insert(row, slot, REACH);
        let since = &mut self.rows[row].since;
        since.begin = since.begin.min(begin);
    }

    #[inline]
    pub(super) fn remove(&mut self, row: usize, slot: usize, column: usize) {
        self.bits_mut(row, slot / 64)[column] &= !(1 << (slot % 64));
        self.rows[row].stale = true;
    }

    #[inline]
    pub(super) fn contains(&self, row: usize, slot: usize, column: usize) -> bool {
        self.bits(row, slot / 64)[column] >> (slot % 64) & 1 != 0
    }

    /// The lower bound, and whether it may be too low.
    #[inline]
    pub(super) fn since(&self, row: usize) -> (Since, bool) {
        (self.rows[row].since, self.rows[row].stale)
    }

    /// The lower bound is this one, exactly.
    pub(super) fn set_since(&mut self, row: usize, since: Since) {
        self.rows[row].since = since;
        self.rows[row].stale = false;
    }

    /// Whether no region has reached the thread.
    pub(super) fn is_empty(&self, row: usize) -> bool {
        let none = |bits: &Bits| *bits == Bits::default();
        none(&self.rows[row].low) && self.high[row].iter().all(none)
    }

    /// Removes everything from one column.
    pub(super) fn clear(&mut self, column: usize) {
        for row in &mut self.rows {
            row.low[column] = 0;
            row.stale = true;
        }
        for bits in self.high.iter_mut().flatten() {
            bits[column] = 0;
        }
    }
}

/// The slots of the bits of one word.
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
