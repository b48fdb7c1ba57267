//! Matches waits on a semaphore with posts: the oldest post that no wait has consumed yet, after the semaphore's
//! initial value. Makes no events.

use std::collections::VecDeque;

use checker::event::{SyncId, ThreadId};

use super::{Known, new_id};

/// Maximal number of ids for the unconsumed posts of one thread. Further posts share them: a wait may then depend on a
/// later post of the thread instead of the post that ended it.
const MAX_IDS: usize = 64;

/// Maximal number of stored posts: the latest of the unconsumed ones.
const MAX_POSTS: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Semaphore {
    /// Remaining initial value, as far as that is known.
    initial: u64,
    /// Unconsumed posts, oldest first: the thread's place in `posters`, and the id.
    posts: VecDeque<(usize, SyncId)>,
    posters: Vec<Poster>,
}

/// A thread that posts. Its ids stand for its posts in turn.
#[derive(Debug)]
struct Poster {
    thread: ThreadId,
    ids: Vec<SyncId>,
    next: usize,
    /// Number of its posts that no wait has consumed.
    open: usize,
}

impl Semaphore {
    pub(super) fn post(
        &mut self,
        thread: ThreadId,
        syncs: &mut Vec<Known>,
        known: Known,
    ) -> SyncId {
        if self.posts.len() >= MAX_POSTS {
            self.take();
        }
        let place = self.posters.iter().position(|poster| poster.thread == thread);
        let place = place.unwrap_or_else(|| {
            self.posters.push(Poster { thread, ids: Vec::new(), next: 0, open: 0 });
            self.posters.len() - 1
        });
        let poster = &mut self.posters[place];
        if poster.open >= poster.ids.len() && poster.ids.len() < MAX_IDS {
            // Before the oldest one, which is the next in turn.
            poster.ids.insert(poster.next, new_id(syncs, known));
        }
        let id = poster.ids[poster.next];
        poster.next = (poster.next + 1) % poster.ids.len();
        poster.open += 1;
        self.posts.push_back((place, id));
        id
    }

    /// Returns the post that a wait consumes; `None` when it consumes a part of the initial value.
    pub(super) fn wait(&mut self) -> Option<SyncId> {
        if self.initial > 0 {
            self.initial -= 1;
            return None;
        }
        self.take()
    }

    /// Matches a wait on a semaphore whose initial value is not seen; `value` is its value before the wait. The wait
    /// consumed a post for certain only if that value equals the number of unconsumed posts.
    pub(super) fn taken(&mut self, value: Option<usize>) -> Option<SyncId> {
        let open = self.posts.len();
        match value {
            Some(value) if value > open => {
                self.initial = (value - open - 1) as u64;
                None
            }
            Some(value) if value == open => {
                if self.initial == 0 {
                    return self.take();
                }
                self.initial -= 1;
                None
            }
            _ => {
                // Some have let others through that were not seen, or are of an object that was there before.
                let left = value.map_or(open, |value| value.max(1)) - usize::from(open > 0);
                while self.posts.len() > left {
                    self.take();
                }
                None
            }
        }
    }

    fn take(&mut self) -> Option<SyncId> {
        let (place, id) = self.posts.pop_front()?;
        self.posters[place].open -= 1;
        Some(id)
    }

    pub(super) fn reset(&mut self, value: u64) {
        self.initial = value;
        self.posts.clear();
        self.posters.iter_mut().for_each(|poster| poster.open = 0);
    }
}
