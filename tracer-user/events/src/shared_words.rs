//! Memory worth a watchpoint: words that threads share, as far as accesses have shown.

use std::ops::Range;

use super::word_map::{WordMap, remove_words};
use checker::event::ThreadId;

/// Maximal number of stored words; beyond it, words that only one thread has touched are forgotten.
const MAX_WORDS: usize = 1 << 14;

/// Accesses seen to an aligned word of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// First thread that touched it; `None` so far for a word that the code of regions is expected to touch.
    first: Option<ThreadId>,
    /// Set if another thread touched it as well.
    pub is_shared: bool,
    /// Set if any thread wrote it.
    pub is_written: bool,
    /// The least that was touched at once: its offset and its length in bytes.
    least: (u8, u8),
}

/// Accesses seen to all words.
#[derive(Debug, Default)]
pub struct SharedWords {
    words: WordMap<Word>,
}

impl SharedWords {
    /// Notes an access of a thread.
    pub fn touched(&mut self, thread: ThreadId, address: u64, bytes: u64, writes: bool) {
        self.note(Some(thread), address, bytes, writes);
    }

    /// Notes a global variable that the code of regions accesses.
    pub fn expected(&mut self, address: u64, bytes: u64, writes: bool) {
        self.note(None, address, bytes, writes);
    }

    fn note(&mut self, thread: Option<ThreadId>, address: u64, bytes: u64, writes: bool) {
        /// Counted prefix of longer accesses, in bytes.
        const MAX_BYTES: u64 = 64;
        let end = address.saturating_add(bytes.min(MAX_BYTES));
        let mut at = address;
        while at < end {
            let start = at & !7;
            let stop = end.min(start.saturating_add(8));
            let touched = ((at - start) as u8, (stop - at) as u8);
            let word = self.words.entry(start).or_insert(Word {
                first: thread,
                is_shared: false,
                is_written: false,
                least: touched,
            });
            word.first = word.first.or(thread);
            word.is_shared |= thread.is_some() && word.first != thread;
            word.is_written |= writes;
            if touched.1 < word.least.1 {
                word.least = touched;
            }
            at = stop;
        }
        if self.words.len() > MAX_WORDS {
            self.words.retain(|_, word| word.is_shared);
            // If most words are shared, there is no order in which to drop some.
            if self.words.len() > MAX_WORDS / 2 {
                self.words.clear();
            }
        }
    }

    /// Forgets memory that was given back.
    pub fn forget(&mut self, range: &Range<u64>) {
        remove_words(&mut self.words, range);
    }

    /// Returns whether more than one thread has touched the word at an address.
    #[must_use]
    pub fn is_shared(&self, address: u64) -> bool {
        self.words.get(&(address & !7)).is_some_and(|word| word.is_shared)
    }

    /// Iterates over the words worth watching, in no order: shared words that are written, with their addresses.
    pub fn candidates(&self) -> impl Iterator<Item = (u64, Word)> {
        let worth = self.words.iter().filter(|(_, word)| word.is_written);
        worth.map(|(&address, &word)| (address, word))
    }
}

impl Word {
    /// Returns the part of the word for a watchpoint: its offset and length, 1, 2, 4 or 8 and aligned to that.
    #[must_use]
    pub fn part(self) -> (u64, u64) {
        let low = u64::from(self.least.0);
        let high = u64::from(self.least.0 + self.least.1 - 1);
        let fits = |length: u64| low / length == high / length;
        let length = [1, 2, 4, 8].into_iter().find(|&length| fits(length)).unwrap_or(8);
        (low / length * length, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ThreadId = ThreadId(0);
    const B: ThreadId = ThreadId(1);

    #[test]
    fn words_are_shared_by_two_threads_and_worth_watching_when_written() {
        let mut sharing = SharedWords::default();
        sharing.touched(A, 0x1004, 4, false);
        sharing.touched(B, 0x1004, 4, false);
        assert_eq!(sharing.candidates().count(), 0, "nobody writes it");
        sharing.touched(A, 0x2000, 8, true);
        sharing.touched(B, 0x1004, 4, true);
        sharing.expected(0x2000, 8, true);
        sharing.touched(A, 0x2000, 8, true);
        let mut found: Vec<(u64, bool)> =
            sharing.candidates().map(|(address, word)| (address, word.is_shared)).collect();
        found.sort_unstable();
        assert_eq!(found, [(0x1000, true), (0x2000, false)]);
        sharing.forget(&(0x1000..0x1008));
        assert_eq!(sharing.candidates().count(), 1);
    }

    #[test]
    fn an_access_to_the_last_bytes_of_all_ends() {
        let mut sharing = SharedWords::default();
        for address in [u64::MAX - 20, u64::MAX - 7, u64::MAX] {
            sharing.touched(A, address, u64::MAX, true);
        }
        assert!(sharing.candidates().all(|(word, _)| word >= u64::MAX - 23));
        sharing.forget(&(u64::MAX - 20..u64::MAX));
        assert_eq!(sharing.candidates().count(), 0);
    }

    #[test]
    fn a_watchpoint_holds_what_was_touched() {
        let part = |address, bytes| {
            let mut sharing = SharedWords::default();
            sharing.touched(A, address, bytes, true);
            sharing.candidates().next().unwrap().1.part()
        };
        assert_eq!(part(0x1004, 4), (4, 4));
        assert_eq!(part(0x1006, 1), (6, 1));
        assert_eq!(part(0x1003, 2), (0, 8), "no aligned range of 2 or 4 bytes has both");
        assert_eq!(part(0x1001, 2), (0, 4));
        assert_eq!(part(0x1000, 16), (0, 8));
    }
}
