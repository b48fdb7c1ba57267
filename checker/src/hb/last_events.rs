//! The last event of each of several threads on one object. Of ended threads it stores, beyond a few, only
//! those that are retained, so that its length is within twice the number of threads that have a row,
//! regardless of the threads before.

use crate::event::ThreadId;
use crate::hb::stamp::EventStamp;
use crate::hb::table::ThreadTable;

/// Number of events stored in the list itself: two cache lines, mostly sufficient.
const INLINE: usize = 3;

/// Length of the rest up to which it is not searched for ended threads.
const UNSWEPT: usize = 4;

#[derive(Clone, Default)]
#[repr(align(128))]
pub(crate) struct LastEvents {
    inline: [EventStamp; INLINE],
    len: usize,
    /// Events beyond the first few.
    rest: Option<Box<Rest>>,
}

/// Allocations of lists that were long and are short again.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "lists hold boxes, which are moved without their contents")]
pub(crate) struct SpareLists(Vec<Box<Rest>>);

#[derive(Clone, Default)]
struct Rest {
    /// Threads of `events`, stored apart so that the search for one of them touches little memory.
    threads: Vec<ThreadId>,
    events: Vec<EventStamp>,
    /// Number of events that were dropped.
    dropped: u64,
    /// Length at which ended threads are searched for.
    limit: usize,
}

impl LastEvents {
    /// Stores the event; returns whether it is the first of its thread.
    pub(crate) fn put(&mut self, event: &EventStamp, table: &ThreadTable) -> bool {
        self.put_reporting_dropped(event, table, |_| {})
    }

    /// Stores the event as `put` does; calls `drop` with each event that is no longer relevant.
    pub(crate) fn put_reporting_dropped(
        &mut self,
        event: &EventStamp,
        table: &ThreadTable,
        drop: impl FnMut(&EventStamp),
    ) -> bool {
        let thread = event.thread();
        for old in self.inline.iter_mut().take(self.len) {
            if old.is_of(thread) {
                *old = *event;
                return false;
            }
        }
        match self.inline.get_mut(self.len) {
            Some(place) => {
                *place = *event;
                self.len += 1;
                true
            }
            None => self.rest.get_or_insert_default().put(event, table, drop),
        }
    }

    pub(crate) fn contains(&self, thread: ThreadId) -> bool {
        self.iter().any(|event| event.is_of(thread))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &EventStamp> {
        let rest = self.rest.iter().flat_map(|rest| &rest.events);
        self.inline[..self.len].iter().chain(rest)
    }

    pub(crate) fn all(&self, is_so: impl Fn(&EventStamp) -> bool) -> bool {
        self.iter().all(is_so)
    }

    pub(crate) fn of_others(&self, thread: ThreadId) -> impl Iterator<Item = &EventStamp> {
        self.iter().filter(move |event| !event.is_of(thread))
    }

    /// Returns the number of threads whose events were dropped as irrelevant.
    pub(crate) fn dropped(&self) -> u64 {
        self.rest.as_ref().map_or(0, |rest| rest.dropped)
    }

    /// Stores the event as `put` does, with an allocation from `spare` if the list needs one.
    pub(crate) fn put_with_spare(
        &mut self,
        event: &EventStamp,
        table: &ThreadTable,
        spare: &mut SpareLists,
    ) -> bool {
        if self.len == INLINE && self.rest.is_none() {
            self.rest = spare.0.pop();
        }
        self.put(event, table)
    }

    /// Clears the list and gives its allocation back to `spare`: otherwise every list would come to own an
    /// allocation that only a few need at a time.
    pub(crate) fn clear_into(&mut self, spare: &mut SpareLists) {
        self.clear();
        spare.0.extend(self.rest.take());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
        if let Some(rest) = &mut self.rest {
            rest.clear();
        }
    }

    /// Prefetches the list; the returned value only prevents the load from being optimised away.
    #[inline]
    pub(crate) fn prefetch(&self) -> u64 {
        self.inline[0].event() ^ self.len as u64
    }

    /// Returns the number of stored events.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }
}

impl Rest {
    fn put(
        &mut self,
        event: &EventStamp,
        table: &ThreadTable,
        drop: impl FnMut(&EventStamp),
    ) -> bool {
        let thread = event.thread();
        if let Some(place) = self.threads.iter().position(|&other| other == thread) {
            self.events[place] = *event;
            return false;
        }
        if self.events.len() >= self.limit.max(UNSWEPT) {
            self.sweep(table, drop);
        }
        self.threads.push(thread);
        self.events.push(*event);
        true
    }

    fn clear(&mut self) {
        self.threads.clear();
        self.events.clear();
        self.dropped = 0;
        self.limit = 0;
    }

    #[cold]
    fn sweep(&mut self, table: &ThreadTable, mut drop: impl FnMut(&EventStamp)) {
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
        self.threads.extend(self.events.iter().map(EventStamp::thread));
        self.limit = 2 * self.events.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_two_cache_lines() {
        assert_eq!(size_of::<LastEvents>(), 128);
    }
}
