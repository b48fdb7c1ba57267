//! Logic of the table of words: which accesses are repetitions within an epoch. Integers in, integers out; the maps and
//! the races on them are in the BPF programs (`epoch`).

use abi::{AccessDescriptor, SiteId};

use crate::verifier::{is_not_zero, unchecked};

/// Number of low bits of a thread epoch that are the number of the epoch; those above are the thread's id. Ids of
/// threads have at most 22 bits.
pub const EPOCH_BITS: u32 = 42;

/// Largest access that can be a repetition, in bytes.
pub const MAX_BYTES: u64 = AccessDescriptor::MAX_USUAL as u64;

/// Largest number of words of an access with [`MAX_BYTES`].
pub const MAX_WORDS: u64 = MAX_BYTES / 8 + 1;

/// Identity of a thread that accesses memory, and its epoch.
///
/// A *thread epoch* is the thread's id and the number of its epoch in one integer: see [`thread_and_epoch`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadEpochs {
    /// The thread's current thread epoch.
    pub now: u64,
    /// The thread's first thread epoch: distinguishes it from all others, also from later ones with its id.
    pub incarnation: u64,
}

/// State of a thread that has accessed memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadState {
    /// Its identity and epoch.
    pub epochs: ThreadEpochs,
    /// Highest stack pointer at an access since the last record.
    pub highest_sp: u64,
    /// The number of accesses so far that were too large for the table, when the thread last looked.
    pub large_accesses: u64,
}

/// Splits a thread epoch into the thread's id and the epoch's number.
#[inline(always)]
#[must_use]
pub fn thread_and_epoch(thread_epoch: u64) -> (u64, u64) {
    (thread_epoch >> EPOCH_BITS, thread_epoch & ((1 << EPOCH_BITS) - 1))
}

/// Access of a thread to memory.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The thread.
    pub tid: u32,
    /// First byte.
    pub address: u64,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// Flags [`AccessDescriptor::READ`], [`AccessDescriptor::WRITE`], [`AccessDescriptor::ATOMIC`] and
    /// [`AccessDescriptor::COMMUTES`].
    pub flags: u8,
    /// The site.
    pub site: SiteId,
    /// The stack pointer.
    pub sp: u64,
}

impl Access {
    /// Returns whether the access writes.
    #[inline(always)]
    #[must_use]
    pub fn writes(&self) -> bool {
        self.flags & AccessDescriptor::WRITE != 0
    }

    /// Returns whether the access commutes with others of its kind.
    #[inline(always)]
    #[must_use]
    pub fn commutes(&self) -> bool {
        self.flags & AccessDescriptor::COMMUTES != 0
    }

    /// Returns three numbers, all bits set or none: whether the access is a plain store, whether it writes, and whether
    /// it commutes. Without a jump.
    #[inline(always)]
    fn kinds(&self) -> [u64; 3] {
        let is = |flag: u8| u64::from(self.flags) >> flag.trailing_zeros() & 1;
        let (writes, commutes) = (is(AccessDescriptor::WRITE), is(AccessDescriptor::COMMUTES));
        let stores = writes & !(is(AccessDescriptor::ATOMIC) | commutes);
        [stores, writes, commutes].map(u64::wrapping_neg)
    }

    /// First and last word, as addresses divided by 8.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> (u64, u64) {
        (self.address >> 3, (self.address + self.bytes - 1) >> 3)
    }

    /// Accessed bytes of the word, one bit each, for an access to one word.
    #[inline(always)]
    #[must_use]
    pub fn byte_mask(&self) -> u64 {
        let (front, back) = self.end_masks();
        front & back
    }

    /// Bytes of the first word from the access's first byte on, and of the last word up to its last byte.
    #[inline(always)]
    fn end_masks(&self) -> (u64, u64) {
        let last = self.address + self.bytes - 1;
        (0xff << (self.address & 7) & 0xff, 0xff >> (7 - (last & 7)))
    }

    /// Visits the words, each with the mask of its accessed bytes; at most [`MAX_WORDS`].
    #[inline(always)]
    pub fn each_word(&self, mut visit: impl FnMut(u64, u64)) {
        let (first, last) = self.words();
        let last = unchecked(last);
        let (mut front, back) = self.end_masks();
        for number in 0..MAX_WORDS {
            let word = first + number;
            visit(word, front & (back | (0xff * is_not_zero(word ^ last))));
            if word == last {
                break;
            }
            front = 0xff;
        }
    }
}

/// Slot of the table: the last thread that accessed a word, and its accesses.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WordAccesses {
    /// The thread epoch. Written first and read last, so that no thread finds its own there together with the
    /// accesses of another one.
    pub thread_epoch: u64,
    /// From the top: the low bits of the thread's id (4 bits), the word's address divided by 8 (44), and two bits for
    /// each byte, in two masks of 8: the last access of the thread that covers later ones. Both are set after a plain
    /// store, which covers all; the upper one after a commuting update and the lower one after a read or an atomic
    /// write, which cover their own kind.
    pub accesses: u64,
}

impl WordAccesses {
    /// Content of the slot of a shared word: for each thread, another one has accessed it. No thread has the number 0.
    pub const SHARED: Self = Self { thread_epoch: 0, accesses: u64::MAX << 16 };

    /// Compares an access to the bytes `mask` of a word with the slot of that word. Returns two numbers: not 0 if
    /// the access is no repetition in its epoch, and not 0 if another thread may have accessed the bytes since
    /// this one has.
    #[inline(always)]
    #[must_use]
    pub fn compare(
        self,
        thread: ThreadEpochs,
        access: &Access,
        word: u64,
        mask: u64,
    ) -> (u64, u64) {
        let Self { thread_epoch, accesses } = self;
        let [_, writes, commutes] = access.kinds();
        let covered = (accesses | commutes) & (accesses >> 8 | !writes);
        // Not 0 if the slot is another word's or another thread's, also one that had this one's id before: of
        // threads with one id the later has the higher thread epochs.
        let foreign = accesses >> 16 ^ tagged(access.tid, word)
            | thread_epoch >> EPOCH_BITS ^ u64::from(access.tid)
            | thread_epoch.wrapping_sub(thread.incarnation) >> 63;
        let uncovered = foreign | mask & !covered;
        // Others may have accessed the other bytes of the word before, and those that were only read.
        (uncovered | thread_epoch ^ thread.now, is_not_zero(accesses) & is_not_zero(uncovered))
    }

    /// Content of the slot after an access to the bytes `mask` of a word in the thread epoch `now`. Writes of atomic
    /// instructions are not added: a lock is released by a plain store, which its acquire must not cover.
    #[inline(always)]
    #[must_use]
    pub fn after(self, now: u64, access: &Access, word: u64, mask: u64) -> Self {
        let [stores, _, commutes] = access.kinds();
        let reads = !(stores | commutes);
        let tag = tagged(access.tid, word);
        let foreign = is_not_zero(self.accesses >> 16 ^ tag | self.thread_epoch ^ now);
        let before = self.accesses & 0xffff & foreign.wrapping_sub(1);
        let (low, high) = (before & 0xff, before >> 8);
        let kept = mask & low & high;
        let low = low & !(mask & commutes) | kept | mask & !commutes;
        let high = high & !(mask & reads) | kept | mask & !reads;
        Self { thread_epoch: now, accesses: tag << 16 | high << 8 | low }
    }
}

/// A word with the low bits of a thread's id above it.
#[inline(always)]
fn tagged(tid: u32, word: u64) -> u64 {
    u64::from(tid & 15) << 44 | word & ((1 << 44) - 1)
}

/// Number of a word's slot in a table of `2^BITS` slots (Fibonacci hashing).
#[inline(always)]
#[must_use]
pub fn slot<const BITS: u32>(word: u64) -> u32 {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as u32
}

#[cfg(test)]
mod tests;
