//! What became of each thread id, in memory that does not grow with the ids of threads that have ended: pages in
//! which every entry is the same take no space of their own.

use crate::event::ThreadId;

/// Ids in one page.
const PAGE: usize = 256;

/// Values that are not rows.
const UNSEEN: u32 = u32::MAX;
const ENDED: u32 = u32::MAX - 1;
const JOINED: u32 = u32::MAX - 2;

/// What is known of a thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// No event has named it.
    Unseen,
    /// It has a row among the threads.
    Row(usize),
    /// The thread has ended, and nothing that it did matters any more.
    Ended,
    /// It was joined, and nothing that it did matters any more.
    Joined,
}

/// Pages that are the same for all of their entries; the others follow them.
const SAME: [u32; 3] = [UNSEEN, ENDED, JOINED];

/// The entries of all thread ids.
pub(crate) struct ThreadTable {
    /// Which of `entries` is the page of each range of ids.
    pages: Vec<u32>,
    entries: Vec<[u32; PAGE]>,
    /// Those of `entries` that no range has.
    free: Vec<u32>,
}

impl Default for ThreadTable {
    fn default() -> Self {
        let entries = SAME.iter().map(|&value| [value; PAGE]).collect();
        Self { pages: Vec::new(), entries, free: Vec::new() }
    }
}

impl ThreadTable {
    #[inline]
    fn value(&self, thread: ThreadId) -> u32 {
        let page = self.pages.get(thread.index() / PAGE).map_or(0, |&page| page as usize);
        self.entries.get(page).map_or(UNSEEN, |entries| entries[thread.index() % PAGE])
    }

    /// The thread's row, when it has one.
    #[inline]
    pub(crate) fn row(&self, thread: ThreadId) -> Option<usize> {
        let value = self.value(thread);
        (value < JOINED).then_some(value as usize)
    }

    #[inline]
    pub(crate) fn get(&self, thread: ThreadId) -> Entry {
        match self.value(thread) {
            UNSEEN => Entry::Unseen,
            ENDED => Entry::Ended,
            JOINED => Entry::Joined,
            row => Entry::Row(row as usize),
        }
    }

    pub(crate) fn set(&mut self, thread: ThreadId, entry: Entry) {
        let value = match entry {
            Entry::Unseen => UNSEEN,
            Entry::Ended => ENDED,
            Entry::Joined => JOINED,
            Entry::Row(row) => row as u32,
        };
        let index = thread.index() / PAGE;
        if index >= self.pages.len() {
            self.pages.resize(index + 1, 0);
        }
        let page = &mut self.pages[index];
        if let Some(&same) = SAME.get(*page as usize) {
            if same == value {
                return;
            }
            let entries = [same; PAGE];
            *page = match self.free.pop() {
                Some(page) => {
                    self.entries[page as usize] = entries;
                    page
                }
                None => {
                    self.entries.push(entries);
                    (self.entries.len() - 1) as u32
                }
            };
        }
        let entries = &mut self.entries[*page as usize];
        entries[thread.index() % PAGE] = value;
        if let Some(same) = SAME.iter().position(|&same| same == value)
            && entries.iter().all(|&other| other == value)
        {
            self.free.push(std::mem::replace(page, same as u32));
        }
    }

    /// How many pages take space of their own.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        self.entries.len() - SAME.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_apart_and_full_pages_of_ended_threads_cost_nothing() {
        let mut table = ThreadTable::default();
        assert_eq!(table.get(ThreadId(70_000)), Entry::Unseen);
        for id in 0..1000 {
            table.set(ThreadId(id), Entry::Row(id as usize % 7));
            assert_eq!(table.get(ThreadId(id)), Entry::Row(id as usize % 7));
            assert_eq!(table.row(ThreadId(id + 1)), None);
            table.set(ThreadId(id), Entry::Joined);
        }
        assert_eq!(table.get(ThreadId(0)), Entry::Joined);
        assert_eq!(table.get(ThreadId(999)), Entry::Joined);
        assert_eq!(table.get(ThreadId(1000)), Entry::Unseen);
        assert_eq!(table.pages(), 1);
        table.set(ThreadId(3), Entry::Ended);
        assert_eq!(table.get(ThreadId(3)), Entry::Ended);
        assert_eq!(table.get(ThreadId(4)), Entry::Joined);
        assert_eq!(table.pages(), 2);
    }
}
