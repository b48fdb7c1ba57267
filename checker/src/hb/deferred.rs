//! Accesses that are told late. A source of events may leave out what a thread does to memory that it has to itself, and
//! tell the last of it when another thread comes: nothing can have depended on it before.

use crate::event::{EventNumber, LocationId, SyncId, ThreadId, VarId};
use crate::finding::Action;
use crate::hb::Engine;
use crate::hb::stamp::EventStamp;

/// A moment of a thread: after one of its events, and before its next.
#[derive(Clone, Copy)]
pub struct Timestamp(EventStamp);

impl Timestamp {
    /// The event that it is after.
    #[must_use]
    pub fn event(&self) -> EventNumber {
        self.0.event()
    }
}

impl Engine {
    /// The present of a thread; none before its first event, and after its last.
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

    /// Takes an access for the last one of its thread to the variable, or the last that wrote.
    pub(crate) fn insert_deferred_access(
        &mut self,
        timestamp: &Timestamp,
        variable: VarId,
        writes: bool,
        location: LocationId,
    ) {
        let action = if writes { Action::Write } else { Action::Read };
        let access = timestamp.0.deferred(action, location);
        self.variables.ensure(variable);
        self.variables.insert_deferred_access(variable, &access, writes, &self.threads.table);
    }

    /// Takes a post for the last one of its thread to the object. What its thread knew then is not passed on: who waits
    /// comes after the post, and knows of nothing before it.
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
