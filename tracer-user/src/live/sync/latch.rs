//! Who has counted a latch down before it lets threads through. A latch is never counted down once it has let anybody
//! through: then it is another one, at the same address. No events are made here.

use checker::event::{SyncId, ThreadId};

use super::{Known, new_id};

/// A latch.
#[derive(Debug, Default)]
pub(super) struct Latch {
    /// For each thread that has counted one at this address down: the object that stands for that, and whether it has
    /// counted down the one that is there now.
    counts: Vec<(ThreadId, SyncId, bool)>,
    /// Whether it has let anybody through.
    is_open: bool,
}

impl Latch {
    pub(super) fn count_down(
        &mut self,
        thread: ThreadId,
        (syncs, known): (&mut Vec<Known>, Known),
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

    /// What stands for those who counted it down, other than this thread, which it has let through.
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
