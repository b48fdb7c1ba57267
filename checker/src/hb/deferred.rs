//! Deferred accesses. A source of events may defer the accesses of a thread to memory that no other thread
//! accesses, and insert the last of them when another thread does: nothing can have depended on them
//! before.

use crate::event::{EventNumber, LocationId, SyncId, ThreadId, VarId};
use crate::finding::Action;
use crate::hb::Engine;
use crate::hb::stamp::EventStamp;

/// A point in a thread's program order: after one of its events and before its next.
#[derive(Clone, Copy)]
pub struct Timestamp(EventStamp);

impl Timestamp {
    /// Returns the number of the event that it follows.
    #[must_use]
    pub fn event(&self) -> EventNumber {
        self.0.event()
    }
}

impl Engine {
    /// Returns the current point of a thread; `None` before its first event and after its last.
    pub(crate) fn timestamp(&self, thread: ThreadId) -> Option<Timestamp> {
        let thread = &self.threads.rows[self.row(thread)?];
        if !thread.ready {
            return None;
        }
        let mut now = thread.now;
        if thread.open.is_empty() {
            // After the end of a transaction comes another one.
            now.set_tx(thread.id, thread.transactions, None, now.event());
        }
        Some(Timestamp(now))
    }

    /// Inserts an access as the last one of its thread to the variable, or as the last write. Returns it, and the row
    /// of its thread if that has not ended.
    pub(crate) fn insert_deferred_access(
        &mut self,
        timestamp: &Timestamp,
        variable: VarId,
        writes: bool,
        location: LocationId,
    ) -> (EventStamp, Option<usize>) {
        let action = if writes { Action::Write } else { Action::Read };
        let access = timestamp.0.deferred(action, location);
        self.variables.ensure(variable);
        self.variables.insert_deferred_access(variable, &access, writes, &self.threads.table);
        let row = self.row(access.thread());
        if let Some(row) = row.filter(|_| writes) {
            self.threads.rows[row].last_writes.add(variable, access.event() + 1);
        }
        (access, row)
    }

    /// Inserts a signal as the last one of its thread to the object. The knowledge of its thread is not
    /// passed on: a waiting thread is ordered after the signal only, and not after the events before it.
    pub(crate) fn insert_deferred_signal(
        &mut self,
        timestamp: &Timestamp,
        object: SyncId,
        location: LocationId,
    ) {
        let access = timestamp.0.deferred(Action::Signal, location);
        self.syncs.insert_deferred_signal(object, &access, &self.threads.table);
    }
}
