//! Reads of what others have written, in the critical section of a step that has closed a cycle on another variable
//! than that of the first step: does the region look at the first variable again, once it has the lock back? Bounded:
//! the latest steps, until their thread releases a lock or its innermost region ends.

use crate::event::ThreadId;

/// Step that has closed a cycle, in the cut with a key.
struct Closed<K> {
    thread: ThreadId,
    key: K,
}

/// Limit of steps.
const MAX_STEPS: usize = 16;

/// Steps whose critical section goes on.
pub(super) struct SecondLooks<K>(Vec<Closed<K>>);

impl<K> Default for SecondLooks<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: PartialEq> SecondLooks<K> {
    /// Notes that a step of a thread belongs to the cut with that key.
    pub(super) fn closed(&mut self, thread: ThreadId, key: K) {
        if self.0.iter().any(|closed| closed.thread == thread && closed.key == key) {
            return;
        }
        if self.0.len() >= MAX_STEPS {
            self.0.remove(0);
        }
        self.0.push(Closed { thread, key });
    }

    /// Returns the cuts in whose second section a read of a thread is made.
    pub(super) fn of(&self, thread: ThreadId) -> impl Iterator<Item = &K> {
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
