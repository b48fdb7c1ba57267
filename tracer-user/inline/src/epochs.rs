//! Epochs of threads as the reader knows them, and the threads that own words.

use std::collections::BTreeMap;

use abi::Kind;

use crate::{
    cell::{EPOCH_BITS, WORD_BITS},
    layout::SP_BITS,
};

/// Number of lost events from which on the low bits of an epoch do not say which it is.
const MOST_LOST: u64 = 1 << 14;

/// Epoch of a thread. Its records have the low bits.
#[derive(Clone, Debug, Default)]
pub struct Epoch {
    now: u64,
    has_accessed: bool,
    /// Lost events of the thread so far.
    lost: u64,
}

impl Epoch {
    /// Epoch of a thread that begins, from its block.
    pub const fn new(thread_epoch: u64) -> Self {
        Self { now: thread_epoch & ((1 << EPOCH_BITS) - 1), has_accessed: false, lost: 0 }
    }

    /// Goes on to the epoch of a slot's `sp`. A signal handler's records are behind one that it has interrupted, and
    /// may have epochs before that one's.
    #[inline]
    pub fn advance(&mut self, sp_word: u64) {
        let ahead = (sp_word >> SP_BITS) as u16;
        let ahead = ahead.wrapping_sub(self.now as u16).cast_signed();
        self.now += ahead.max(0).cast_unsigned() as u64;
    }

    /// Epoch of a record of this kind; 0 before the thread's first access.
    #[inline]
    pub fn at(&mut self, kind: Kind) -> u64 {
        self.has_accessed |= matches!(kind, Kind::Access);
        if self.has_accessed { self.now } else { 0 }
    }

    /// Notes how many events the thread has lost so far. Returns whether its epoch is known.
    #[cold]
    pub const fn is_known_after(&mut self, lost: u64) -> bool {
        let new = lost.wrapping_sub(self.lost);
        self.lost = lost;
        new < MOST_LOST
    }
}

/// Threads that may own words, by the numbers of their blocks.
#[derive(Debug, Default)]
pub struct Owners(BTreeMap<u64, Vec<Owner>>);

/// Thread that has a block from an epoch on, unless its epochs are unknown.
#[derive(Debug)]
struct Owner {
    since: u64,
    tid: Option<u32>,
}

impl Owners {
    /// Adds a thread, whose block has this field [`owner`](crate::layout::ThreadBlock::owner).
    pub fn add(&mut self, owner: u64, epoch: &Epoch, tid: u32) {
        let threads = self.0.entry(owner >> WORD_BITS).or_default();
        threads.push(Owner { since: epoch.now, tid: Some(tid) });
    }

    /// Forgets a thread whose epochs are unknown.
    #[cold]
    pub fn forget(&mut self, tid: u32) {
        for owner in self.0.values_mut().flatten().filter(|owner| owner.tid == Some(tid)) {
            owner.tid = None;
        }
    }

    /// Returns the thread that had a block in an epoch; `None` if its epochs are unknown.
    pub fn find(&self, number: u64, epoch: u64) -> Option<u32> {
        let owner = self.0.get(&number)?.iter().rev().find(|owner| owner.since <= epoch)?;
        owner.tid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::sp_word;

    #[test]
    fn an_epoch_is_found_by_its_low_bits() {
        let mut epoch = Epoch::new(77 << EPOCH_BITS | 0x1_fffe);
        assert_eq!(epoch.at(Kind::Acquire), 0, "before the first access");
        for now in [0x1_fffe, 0x1_ffff, 0x2_0000, 0x2_0003, 0x2_7000, 0x2_9000] {
            epoch.advance(sp_word(u64::MAX, now));
            assert_eq!(epoch.at(Kind::Access), now);
        }
        epoch.advance(sp_word(0, 0x2_8fff));
        assert_eq!(epoch.at(Kind::Acquire), 0x2_9000, "of an interrupted record");
    }

    #[test]
    fn an_owner_is_known_by_block_and_epoch() {
        let mut owners = Owners::default();
        for (number, since, tid) in [(1, 10, 7), (2, 20, 8), (1, 30, 9)] {
            owners.add(number << WORD_BITS, &Epoch::new(since), tid);
        }
        let found = [(1, 10), (1, 29), (1, 30), (2, 40), (1, 9), (3, 40)];
        let found = found.map(|(number, epoch)| owners.find(number, epoch));
        assert_eq!(found, [Some(7), Some(7), Some(9), Some(8), None, None]);
        owners.forget(7);
        assert_eq!([owners.find(1, 20), owners.find(1, 40)], [None, Some(9)]);
    }

    #[test]
    fn after_many_losses_an_epoch_is_unknown() {
        let mut epoch = Epoch::new(0);
        let known = [3, MOST_LOST, 2 * MOST_LOST].map(|lost| epoch.is_known_after(lost));
        assert_eq!(known, [true, true, false]);
    }
}
