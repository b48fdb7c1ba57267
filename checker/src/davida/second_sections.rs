//! Critical sections in which a step has closed a cycle: does the section change anything in the end, or the region
//! around it? If the section looked at the variable of the first step again, the look may have decided that there is no
//! more to do. Bounded: the latest steps, until the outermost lock around them is released, and then until their region
//! ends.

use super::locks::Locks;
use crate::event::EventNumber;

/// Limit of steps.
const MAX_STEPS: usize = 64;

/// Step that has closed a cycle within a critical section.
#[derive(Clone, Copy)]
pub(super) struct SecondStep<K> {
    pub(super) event: EventNumber,
    /// First step of the cycle.
    pub(super) left: EventNumber,
    /// Begin of the execution of the region; `None` for one that is followed, whose end is of no interest.
    pub(super) begin: Option<EventNumber>,
    /// Key of the cut.
    pub(super) key: K,
}

/// Second steps of a thread.
pub(super) struct SecondSections<K> {
    /// Steps whose critical section goes on.
    open: Vec<SecondStep<K>>,
    /// Steps whose critical section ended without a change, and whose region goes on.
    unchanged: Vec<SecondStep<K>>,
}

impl<K> Default for SecondSections<K> {
    fn default() -> Self {
        Self { open: Vec::new(), unchanged: Vec::new() }
    }
}

impl<K: Copy + PartialEq> SecondSections<K> {
    /// Notes a step under a lock.
    pub(super) fn closed(&mut self, step: SecondStep<K>) {
        if self.open.len() < MAX_STEPS && self.open.iter().all(|open| open.key != step.key) {
            self.open.push(step);
        }
    }

    /// Removes the steps whose section ends with a hold that began at `since`, and returns their cuts. `locks` are the
    /// thread's locks without that hold.
    #[inline]
    pub(super) fn end<'a>(
        &'a mut self,
        since: EventNumber,
        locks: &'a Locks,
        changes: bool,
    ) -> impl Iterator<Item = K> + 'a
    where
        K: 'a,
    {
        let Self { open, unchanged } = self;
        let ends =
            move |step: &mut SecondStep<K>| since < step.event && !locks.holds_before(step.event);
        open.extract_if(.., ends).map(move |step| {
            if !changes && step.begin.is_some() && unchanged.len() < MAX_STEPS {
                unchanged.push(step);
            }
            step.key
        })
    }

    /// Removes the steps of an execution that has ended, and whose sections made no change. Returns their first steps,
    /// and their cuts.
    #[inline]
    pub(super) fn region_ends(
        &mut self,
        begin: EventNumber,
    ) -> impl Iterator<Item = (EventNumber, K)> + '_ {
        let ends = move |step: &mut SecondStep<K>| step.begin == Some(begin);
        self.unchanged.extract_if(.., ends).map(|step| (step.left, step.key))
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.unchanged.clear();
    }
}
