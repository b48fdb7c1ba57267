//! Sets of active regions as bits: one word as long as 64 regions are active at once, more words beyond.

/// The slots of active regions, as bits.
#[derive(Clone, Default)]
pub(crate) struct Mask {
    low: u64,
    high: Vec<u64>,
}

impl Mask {
    /// The bits of slots 64·`word` and up.
    #[inline]
    pub(crate) fn word(&self, word: usize) -> u64 {
        match word.checked_sub(1) {
            None => self.low,
            Some(index) => self.high.get(index).copied().unwrap_or(0),
        }
    }

    #[inline]
    pub(crate) fn contains(&self, slot: usize) -> bool {
        self.word(slot / 64) >> (slot % 64) & 1 != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.low == 0 && self.high.iter().all(|&word| word == 0)
    }

    #[inline]
    fn word_mut(&mut self, word: usize) -> &mut u64 {
        match word.checked_sub(1) {
            None => &mut self.low,
            Some(index) => {
                if index >= self.high.len() {
                    self.high.resize(index + 1, 0);
                }
                &mut self.high[index]
            }
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, slot: usize) {
        *self.word_mut(slot / 64) |= 1 << (slot % 64);
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: usize) {
        *self.word_mut(slot / 64) &= !(1 << (slot % 64));
    }
}

/// The slots of the bits of one word.
pub(crate) fn slots(word: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let slot = word * 64 + bits.trailing_zeros() as usize;
        bits &= bits - 1;
        Some(slot)
    })
}
