//! The last event of each of several threads on one object. Of threads that have ended it keeps only those that
//! still matter, so that its length is within twice the number of threads that have a row, whatever came before.

use crate::event::ThreadId;
use crate::hb::access::Access;
use crate::hb::table::ThreadTable;

/// The length up to which it is not worth looking for threads that have ended.
const SHORT: usize = 4;

#[derive(Default)]
pub(crate) struct Last {
    /// The threads of `events`, apart so that the search for one of them touches little memory.
    threads: Vec<ThreadId>,
    events: Vec<Access>,
    /// How many were dropped.
    dropped: u64,
    /// The length at which to look for threads that have ended.
    limit: usize,
}

impl Last {
    /// Remembers the event; tells whether it is the first of its thread.
    pub(crate) fn put(&mut self, event: &Access, table: &ThreadTable) -> bool {
        self.put_and_drop(event, table, |_| {})
    }

    /// As `put`; `drop` is told of each event that does not matter any more.
    pub(crate) fn put_and_drop(
        &mut self,
        event: &Access,
        table: &ThreadTable,
        drop: impl FnMut(&Access),
    ) -> bool {
        let thread = event.thread();
        if let Some(place) = self.threads.iter().position(|&other| other == thread) {
            self.events[place] = *event;
            return false;
        }
        if self.events.len() >= self.limit.max(SHORT) {
            self.sweep(table, drop);
        }
        self.threads.push(thread);
        self.events.push(*event);
        true
    }

    #[cold]
    fn sweep(&mut self, table: &ThreadTable, mut drop: impl FnMut(&Access)) {
        let before = self.events.len();
        self.events.retain(|event| {
            let keep = table.row(event.thread()).is_some();
            if !keep {
                drop(event);
            }
            keep
        });
        self.dropped += (before - self.events.len()) as u64;
        self.threads.clear();
        self.threads.extend(self.events.iter().map(Access::thread));
        self.limit = 2 * self.events.len();
    }

    pub(crate) fn contains(&self, thread: ThreadId) -> bool {
        self.threads.contains(&thread)
    }

    pub(crate) fn of_others(&self, thread: ThreadId) -> impl Iterator<Item = &Access> {
        self.events.iter().filter(move |event| event.thread() != thread)
    }

    /// How many threads there were whose events do not matter any more.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.dropped == 0
    }

    pub(crate) fn clear(&mut self) {
        self.threads.clear();
        self.events.clear();
        self.dropped = 0;
        self.limit = 0;
    }

    /// How many events are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }
}
