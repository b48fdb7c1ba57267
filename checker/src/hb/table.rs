//! State of each thread id, in memory that does not grow with the ids of ended threads: beyond the first
//! few thousand ids, a page whose entries are all equal has no allocation of its own.

use crate::event::ThreadId;

/// Number of ids in one page.
const PAGE: usize = 256;

/// Values that are not rows.
const UNSEEN: u32 = u32::MAX;
const ENDED: u32 = u32::MAX - 1;
const JOINED: u32 = u32::MAX - 2;

/// State of a thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// No event has named the id.
    Unseen,
    /// The thread has a row.
    Row(usize),
    /// The thread has ended, and its state is not retained.
    Ended,
    /// The thread was joined, and its state is not retained.
    Joined,
}

/// Limit of the ids with entries in one direct table: 16 KiB at most, and no page lookup.
const DIRECT: usize = 4096;

enum Page {
    Same(u32),
    Each(Box<[u32; PAGE]>),
}

/// Entries of all thread ids.
#[derive(Default)]
pub(crate) struct ThreadTable {
    direct: Vec<u32>,
    /// Entries of all further ids.
    pages: Vec<Page>,
}

impl ThreadTable {
    #[inline]
    fn value(&self, thread: ThreadId) -> u32 {
        match self.direct.get(thread.index()) {
            Some(&value) => value,
            None => self.paged(thread),
        }
    }

    #[inline(never)]
    fn paged(&self, thread: ThreadId) -> u32 {
        let Some(index) = thread.index().checked_sub(DIRECT) else { return UNSEEN };
        match self.pages.get(index / PAGE) {
            Some(Page::Each(entries)) => entries[index % PAGE],
            Some(Page::Same(value)) => *value,
            None => UNSEEN,
        }
    }

    /// Returns the thread's row, if it has one.
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
        let Some(index) = thread.index().checked_sub(DIRECT) else {
            let index = thread.index();
            if index >= self.direct.len() {
                self.direct.resize(index + 1, UNSEEN);
            }
            self.direct[index] = value;
            return;
        };
        let (page, index) = (index / PAGE, index % PAGE);
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || Page::Same(UNSEEN));
        }
        let page = &mut self.pages[page];
        match page {
            Page::Same(same) if *same == value => {}
            Page::Same(same) => {
                let mut entries = Box::new([*same; PAGE]);
                entries[index] = value;
                *page = Page::Each(entries);
            }
            Page::Each(entries) => {
                entries[index] = value;
                if value >= JOINED && entries.iter().all(|&other| other == value) {
                    *page = Page::Same(value);
                }
            }
        }
    }

    /// Returns the number of pages with an allocation of their own.
    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        self.pages.iter().filter(|page| matches!(page, Page::Each(_))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_apart_and_full_pages_of_ended_threads_cost_nothing() {
        for first in [0, DIRECT as u32] {
            let mut table = ThreadTable::default();
            assert_eq!(table.get(ThreadId(70_000)), Entry::Unseen);
            for id in first..first + 1000 {
                table.set(ThreadId(id), Entry::Row(id as usize % 7));
                assert_eq!(table.get(ThreadId(id)), Entry::Row(id as usize % 7));
                assert_eq!(table.row(ThreadId(id + 1)), None);
                table.set(ThreadId(id), Entry::Joined);
            }
            let paged = usize::from(first > 0);
            assert_eq!(table.get(ThreadId(first)), Entry::Joined);
            assert_eq!(table.get(ThreadId(first + 999)), Entry::Joined);
            assert_eq!(table.get(ThreadId(first + 1000)), Entry::Unseen);
            assert_eq!(table.pages(), paged);
            table.set(ThreadId(first + 3), Entry::Ended);
            assert_eq!(table.get(ThreadId(first + 3)), Entry::Ended);
            assert_eq!(table.get(ThreadId(first + 4)), Entry::Joined);
            assert_eq!(table.pages(), 2 * paged);
        }
    }

    #[test]
    fn the_first_paged_id_follows_the_last_one_that_is_not() {
        let mut table = ThreadTable::default();
        let (last, first) = (ThreadId(DIRECT as u32 - 1), ThreadId(DIRECT as u32));
        table.set(first, Entry::Row(1));
        assert_eq!(table.get(last), Entry::Unseen);
        table.set(last, Entry::Row(2));
        assert_eq!((table.row(last), table.row(first)), (Some(2), Some(1)));
    }
}
