//! Words that threads have read in their current region. An update of such a word may depend on the value read: a
//! counter, for example, is compared with its limit before it is changed. Each thread has a fixed amount of memory; a
//! word that was displaced by another one counts as not read.

use checker::event::ThreadId;

/// Number of words stored for a thread.
const WORDS: usize = 256;

/// Words that each thread has read, with the number of the region's execution.
#[derive(Debug, Default)]
pub struct ReadWords {
    /// By thread; by the lowest bits of the word's number.
    threads: Vec<Vec<Option<(u64, u64)>>>,
}

impl ReadWords {
    /// Notes that a thread reads a word in an execution of a region.
    pub fn read(&mut self, thread: ThreadId, execution: u64, address: u64) {
        if self.threads.len() <= thread.index() {
            self.threads.resize_with(thread.index() + 1, Vec::new);
        }
        let words = &mut self.threads[thread.index()];
        if words.is_empty() {
            words.resize(WORDS, None);
        }
        words[place(address)] = Some((address & !7, execution));
    }

    /// Returns whether a thread has read a word in this execution of a region, which is still open, or in one that was
    /// nested in it: those have higher numbers.
    #[must_use]
    pub fn contains(&self, thread: ThreadId, execution: u64, address: u64) -> bool {
        let words = self.threads.get(thread.index()).map_or(&[][..], Vec::as_slice);
        let last = words.get(place(address)).copied().flatten();
        last.is_some_and(|(word, since)| word == address & !7 && since >= execution)
    }
}

const fn place(address: u64) -> usize {
    (address >> 3) as usize % WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_in_this_execution_is_known() {
        let (mut words, one, other) = (ReadWords::default(), ThreadId(0), ThreadId(1));
        assert!(!words.contains(one, 7, 0x1000));
        words.read(one, 7, 0x1004);
        assert!(words.contains(one, 7, 0x1000), "of the same word");
        assert!(!words.contains(one, 8, 0x1000), "in another execution");
        assert!(words.contains(one, 6, 0x1000), "in a nested execution");
        assert!(!words.contains(other, 7, 0x1000) && !words.contains(one, 7, 0x1008));
        words.read(one, 8, 0x1000 + 8 * WORDS as u64);
        assert!(!words.contains(one, 7, 0x1000), "displaced");
    }
}
