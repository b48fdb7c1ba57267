//! Rounds of a barrier. The checker has rounds too, but does not know the number of threads that a barrier waits for:
//! it would count a thread that arrives for the next round, before any has left the last one, among the last. So each
//! round that is under way has its own id.

use checker::event::{SyncId, ThreadId};

use super::{Known, new_id};

#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// For how many threads it waits, if its start was seen.
    threads: Option<u64>,
    rounds: Vec<Round>,
    /// The round that is being gathered, and how many have arrived.
    open: Option<(usize, u64)>,
    /// Threads that have arrived and not departed, with their round.
    inside: Vec<(ThreadId, usize)>,
}

/// Object for one round at a time.
#[derive(Debug)]
struct Round {
    id: SyncId,
    /// Threads that have not departed.
    inside: u64,
    /// A thread that arrived will not depart: the id cannot stand for another round.
    is_spoilt: bool,
}

impl Barrier {
    pub(super) fn arrive(
        &mut self,
        thread: ThreadId,
        syncs: &mut Vec<Known>,
        known: Known,
    ) -> SyncId {
        if let Some(index) = self.leave(thread) {
            // It was unwound inside.
            self.rounds[index].is_spoilt = true;
        }
        let (index, arrived) = self.open.unwrap_or_else(|| {
            let free = self.rounds.iter().position(|round| round.inside == 0 && !round.is_spoilt);
            let index = free.unwrap_or_else(|| {
                self.rounds.push(Round { id: new_id(syncs, known), inside: 0, is_spoilt: false });
                self.rounds.len() - 1
            });
            (index, 0)
        });
        let arrived = arrived + 1;
        self.open = (Some(arrived) != self.threads).then_some((index, arrived));
        self.rounds[index].inside += 1;
        self.inside.push((thread, index));
        self.rounds[index].id
    }

    /// Ends the thread's stay in its round and returns the round; `None` when its arrival was not seen.
    pub(super) fn depart(&mut self, thread: ThreadId) -> Option<SyncId> {
        let left = self.leave(thread);
        // Whoever departs, its round is complete; if it is not known which, the open one must not go on.
        if left.is_none() || self.open.map(|(index, _)| index) == left {
            self.open = None;
        }
        left.map(|index| self.rounds[index].id)
    }

    fn leave(&mut self, thread: ThreadId) -> Option<usize> {
        let place = self.inside.iter().position(|(inside, _)| *inside == thread)?;
        let (_, index) = self.inside.swap_remove(place);
        self.rounds[index].inside -= 1;
        Some(index)
    }

    pub(super) fn reset(&mut self, threads: Option<u64>) {
        self.gap();
        self.threads = threads;
    }

    pub(super) fn gap(&mut self) {
        self.open = None;
        self.inside.clear();
        for round in &mut self.rounds {
            round.is_spoilt |= round.inside > 0;
            round.inside = 0;
        }
    }
}
