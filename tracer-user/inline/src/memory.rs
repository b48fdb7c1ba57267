//! Words of the shared memory, as the reader uses them, and places in it. The file is mapped twice: an [`Offset`] is
//! valid on this side, a [`ProcessAddress`] in the traced process.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
};

use crate::layout::{SLOT_WORDS, Slot};

/// Size of a word in bytes.
pub const WORD: u64 = 8;

/// Address in the traced process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessAddress(pub u64);

/// Place in the shared file: a distance from its start in bytes, a multiple of [`WORD`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// Place `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// Address of the place where the traced process has mapped the file at `base`.
    #[must_use]
    pub const fn in_process(self, base: ProcessAddress) -> ProcessAddress {
        ProcessAddress(base.0 + self.0)
    }

    const fn index(self) -> usize {
        (self.0 / WORD) as usize
    }
}

/// Words of the shared memory.
///
/// The traced program can write any values to them at any time: no method panics on a value, and places beyond the end
/// read as 0.
pub trait SharedWords {
    /// Reads a word with acquire ordering: later reads see the same state or a newer one.
    fn load(&self, at: Offset) -> u64;

    /// Writes a word after all that was read and written before.
    fn store(&self, at: Offset, value: u64);

    /// Adds to a word in one step.
    fn add(&self, at: Offset, value: u64);

    /// Orders all that was written before it with all that is read after it.
    fn fence(&self);

    /// Brings the cache line of a place into the cache, or nothing.
    fn prefetch(&self, _at: Offset) {}

    /// Reads a slot whose first word, which has been read, shows that it is published.
    fn slot(&self, at: Offset, head: u64) -> Slot {
        let word = |number: u64| self.load(at.plus(number * WORD));
        Slot {
            head,
            order: word(1),
            argument: word(2),
            sp: word(3),
            extra: word(4),
            frames: [word(5), word(6), word(7)],
        }
    }
}

/// Words in memory whose cache lines can be prefetched.
pub trait Mapped: AsRef<[AtomicU64]> {
    /// Brings the cache line of a word into the cache, or nothing.
    fn prefetch(&self, _index: usize) {}
}

impl Mapped for [AtomicU64] {}

/// Memory that is mapped, or a stand-in for it.
impl<T: Mapped + ?Sized> SharedWords for Arc<T> {
    #[inline]
    fn load(&self, at: Offset) -> u64 {
        words(self).get(at.index()).map_or(0, |word| word.load(Acquire))
    }

    #[inline]
    fn store(&self, at: Offset, value: u64) {
        if let Some(word) = words(self).get(at.index()) {
            word.store(value, Release);
        }
    }

    fn add(&self, at: Offset, value: u64) {
        if let Some(word) = words(self).get(at.index()) {
            word.fetch_add(value, SeqCst);
        }
    }

    fn fence(&self) {
        fence(SeqCst);
    }

    #[inline]
    fn prefetch(&self, at: Offset) {
        (**self).prefetch(at.index());
    }

    #[inline]
    fn slot(&self, at: Offset, head: u64) -> Slot {
        let Some(words) = words(self).get(at.index()..).and_then(<[_]>::first_chunk) else {
            return Slot::default();
        };
        let words: &[AtomicU64; SLOT_WORDS] = words;
        let [_, order, argument, sp, extra, a, b, c] = words.each_ref().map(|w| w.load(Relaxed));
        Slot { head, order, argument, sp, extra, frames: [a, b, c] }
    }
}

#[inline]
fn words<T: Mapped + ?Sized>(memory: &Arc<T>) -> &[AtomicU64] {
    (**memory).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(words: u64) -> Arc<[AtomicU64]> {
        (0..words).map(AtomicU64::new).collect()
    }

    #[test]
    fn a_slot_is_read_as_a_whole() {
        let memory = memory(24);
        let slot = memory.slot(Offset(64), 7);
        assert_eq!((slot.head, slot.order, slot.argument, slot.sp), (7, 9, 10, 11));
        assert_eq!((slot.extra, slot.frames), (12, [13, 14, 15]));
    }

    #[test]
    fn places_beyond_the_end_are_empty() {
        let memory = memory(10);
        memory.store(Offset(800), 1);
        memory.add(Offset(800), 1);
        assert_eq!((memory.load(Offset(72)), memory.load(Offset(80))), (9, 0));
        assert_eq!(memory.slot(Offset(64), 7), Slot::default());
    }

    #[test]
    fn an_address_of_the_process_is_above_its_base() {
        let at = Offset(128).plus(8).in_process(ProcessAddress(0x7000_0000));
        assert_eq!(at, ProcessAddress(0x7000_0088));
    }
}
