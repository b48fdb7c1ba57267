//! Critical sections in which a step has closed a cycle: does the section change anything in the end? If it looked at
//! the variable of the first step again, the look may have decided that there is no more to do. Bounded: the latest
//! steps, until the outermost lock around them is released.

use super::locks::Locks;
use crate::event::EventNumber;

/// Limit of steps.
const MAX_STEPS: usize = 64;

/// Steps of a thread, by event, whose critical section goes on, with the keys of their cuts.
pub(super) struct SecondSections<K>(Vec<(EventNumber, K)>);

impl<K> Default for SecondSections<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Copy + PartialEq> SecondSections<K> {
    /// Notes that a step under a lock belongs to the cut with that key.
    pub(super) fn closed(&mut self, event: EventNumber, key: K) {
        if self.0.len() < MAX_STEPS && self.0.iter().all(|closed| closed.1 != key) {
            self.0.push((event, key));
        }
    }

    /// Removes the steps whose section ends with a hold that began at `since`, and returns their cuts. `locks` are the
    /// thread's locks without that hold.
    #[inline]
    pub(super) fn end<'a>(
        &'a mut self,
        since: EventNumber,
        locks: &'a Locks,
    ) -> impl Iterator<Item = K> + 'a
    where
        K: 'a,
    {
        let ends = move |&mut (event, _): &mut (EventNumber, K)| {
            since < event && !locks.holds_before(event)
        };
        self.0.extract_if(.., ends).map(|(_, key)| key)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
