//! Reads of what others have written, in the critical section of a step that has closed a cycle on another variable than
//! the first step's: does the region look at the first variable again, once it has the lock back? Bounded: the latest steps, until their thread
//! releases a lock or its innermost region ends.

use super::cuts::Key;
use crate::event::ThreadId;

/// Step that has closed a cycle, in the cut that it belongs to.
struct Closed {
    thread: ThreadId,
    key: Key,
}

/// Limit of steps.
const MAX_STEPS: usize = 16;

/// Steps whose critical section goes on.
#[derive(Default)]
pub(super) struct SecondLooks(Vec<Closed>);

impl SecondLooks {
    /// Notes that a step of a thread belongs to the cut with that key.
    pub(super) fn closed(&mut self, thread: ThreadId, key: Key) {
        if self.0.iter().any(|closed| (closed.thread, closed.key) == (thread, key)) {
            return;
        }
        if self.0.len() >= MAX_STEPS {
            self.0.remove(0);
        }
        self.0.push(Closed { thread, key });
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the cuts in whose second section a read of a thread is made.
    pub(super) fn of(&self, thread: ThreadId) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(move |closed| closed.thread == thread).map(|closed| &closed.key)
    }

    /// Forgets the steps of a thread whose section ends.
    #[inline(always)]
    pub(super) fn end(&mut self, thread: ThreadId) {
        if !self.0.is_empty() {
            self.0.retain(|closed| closed.thread != thread);
        }
    }
}
