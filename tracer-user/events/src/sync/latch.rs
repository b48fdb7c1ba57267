//! Threads that have counted a latch down before it releases its waiters. A latch is never counted down once a waiter
//! has returned: then it is another latch at the same address. Makes no events.

use checker::event::{SyncId, ThreadId};

use super::{Known, new_id};

#[derive(Debug, Default)]
pub(super) struct Latch {
    /// For each thread that has counted a latch at this address down: the object for its counts, and whether it has
    /// counted the present latch down.
    counts: Vec<(ThreadId, SyncId, bool)>,
    /// Set once a waiter has returned.
    is_open: bool,
}

impl Latch {
    pub(super) fn count_down(
        &mut self,
        thread: ThreadId,
        syncs: &mut Vec<Known>,
        known: Known,
    ) -> SyncId {
        if std::mem::take(&mut self.is_open) {
            self.gap();
        }
        if let Some((_, id, counts)) = self.counts.iter_mut().find(|(by, ..)| *by == thread) {
            *counts = true;
            return *id;
        }
        let id = new_id(syncs, known);
        self.counts.push((thread, id, true));
        id
    }

    /// Iterates over the objects of the other threads that counted it down, for a waiter that returns.
    pub(super) fn pass(&mut self, thread: ThreadId) -> impl Iterator<Item = SyncId> {
        self.is_open = true;
        self.counts
            .iter()
            .filter(move |(by, _, counts)| *counts && *by != thread)
            .map(|&(_, id, _)| id)
    }

    /// Events were lost, or it is another one.
    pub(super) fn gap(&mut self) {
        self.counts.iter_mut().for_each(|(.., counts)| *counts = false);
    }
}
