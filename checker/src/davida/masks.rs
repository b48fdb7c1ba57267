//! For each thread the active regions that have reached it, as bits, one set for each relation, side by side: one
//! look at two threads tells whether a dependency between them can do anything.

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

/// One row for each thread.
#[derive(Default)]
pub(super) struct Masks {
    /// The bits of the first 64 slots, and of the others where there are any.
    low: Vec<Bits>,
    high: Vec<Vec<Bits>>,
}

impl Masks {
    pub(super) fn grow(&mut self, rows: usize) {
        if rows > self.low.len() {
            self.low.resize(rows, Bits::default());
            self.high.resize(rows, Vec::new());
        }
    }

    /// The bits of slots 64·`word` and up.
    #[inline]
    pub(super) fn bits(&self, row: usize, word: usize) -> Bits {
        match word.checked_sub(1) {
            None => self.low[row],
            Some(index) => self.high[row].get(index).copied().unwrap_or_default(),
        }
    }

    #[inline]
    fn bits_mut(&mut self, row: usize, word: usize) -> &mut Bits {
        match word.checked_sub(1) {
            None => &mut self.low[row],
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

    #[inline]
    pub(super) fn remove(&mut self, row: usize, slot: usize, column: usize) {
        self.bits_mut(row, slot / 64)[column] &= !(1 << (slot % 64));
    }

    #[inline]
    pub(super) fn contains(&self, row: usize, slot: usize, column: usize) -> bool {
        self.bits(row, slot / 64)[column] >> (slot % 64) & 1 != 0
    }

    /// Whether no region has reached the thread.
    pub(super) fn is_empty(&self, row: usize) -> bool {
        let none = |bits: &Bits| *bits == Bits::default();
        none(&self.low[row]) && self.high[row].iter().all(none)
    }

    /// Removes everything from one column.
    pub(super) fn clear(&mut self, column: usize) {
        for bits in self.low.iter_mut().chain(self.high.iter_mut().flatten()) {
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
