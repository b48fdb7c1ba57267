//! Critical sections in which a step has closed a cycle: does the section change anything in the end? If it looked at
//! the variable of the first step again, the look may have decided that there is no more to do. Bounded: the latest
//! steps, until the outermost lock around them is released.

use super::locks::Locks;
use crate::event::EventNumber;

/// Step that has closed a cycle under a lock, in the cut with a key.
struct Closed<K> {
    row: usize,
    event: EventNumber,
    key: K,
}

/// Limit of steps of one thread.
const MAX_STEPS: usize = 64;

/// Steps whose critical section goes on.
pub(super) struct SecondSections<K>(Vec<Closed<K>>);

impl<K> Default for SecondSections<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Copy + PartialEq> SecondSections<K> {
    /// Notes that a step of a thread, which holds a lock, belongs to the cut with that key.
    pub(super) fn closed(&mut self, row: usize, event: EventNumber, key: K) {
        let of_thread = || self.0.iter().filter(|closed| closed.row == row);
        if of_thread().all(|closed| closed.key != key) && of_thread().count() < MAX_STEPS {
            self.0.push(Closed { row, event, key });
        }
    }

    /// Removes the steps of a thread whose section ends with a hold that began at `since`, and returns their cuts.
    /// `locks` are the thread's locks without that hold.
    #[inline]
    pub(super) fn end(&mut self, row: usize, since: EventNumber, locks: &Locks) -> Vec<K> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let ends = |closed: &mut Closed<K>| {
            closed.row == row && since < closed.event && !locks.holds_before(closed.event)
        };
        self.0.extract_if(.., ends).map(|closed| closed.key).collect()
    }

    /// Forgets the steps of a thread that has ended.
    pub(super) fn forget(&mut self, row: usize) {
        self.0.retain(|closed| closed.row != row);
    }
}
