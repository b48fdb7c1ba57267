//! Accesses that are told late. A source of events may leave out what a thread does to memory that it has to itself, and
//! tell the last of it when another thread comes: nothing can have depended on it before.

use crate::event::{EventNumber, LocationId, SyncId, ThreadId, VarId};
use crate::finding::Action;
use crate::hb::Engine;
use crate::hb::access::Access;

/// A moment of a thread: after one of its events, and before its next.
#[derive(Clone, Copy)]
pub struct Mark(Access);

impl Mark {
    /// The event that it is after.
    #[must_use]
    pub fn event(&self) -> EventNumber {
        self.0.event()
    }
}

impl Engine {
    /// The present of a thread; none before its first event, and after its last.
    pub(crate) fn mark(&self, thread: ThreadId) -> Option<Mark> {
        let thread = &self.threads.rows[self.row(thread)?];
        if !thread.ready {
            return None;
        }
        let mut now = thread.now;
        if thread.open.is_empty() {
            // After the end of a transaction comes another one.
            now.set_tx(thread.id, thread.transactions, None, now.event());
        }
        Some(Mark(now))
    }

    /// Takes an access for the last one of its thread to the variable, or the last that wrote.
    pub(crate) fn told_late(
        &mut self,
        mark: &Mark,
        variable: VarId,
        writes: bool,
        location: LocationId,
    ) {
        let action = if writes { Action::Write } else { Action::Read };
        let access = mark.0.told_late(action, location);
        self.variables.ensure(variable);
        self.variables.told_late(variable, &access, writes, &self.threads.table);
    }

    /// Takes a post for the last one of its thread to the object. What its thread knew then is not passed on: who waits
    /// comes after the post, and knows of nothing before it.
    pub(crate) fn signalled_late(&mut self, mark: &Mark, object: SyncId, location: LocationId) {
        let access = mark.0.told_late(Action::Signal, location);
        self.syncs.signalled_late(object, &access, &self.threads.table);
    }
}
