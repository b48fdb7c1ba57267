//! Arrivals at a barrier, grouped by round, and within a round by the departures between them. The caller defines the
//! data that is stored for a group.

use crate::event::{EventNumber, ThreadId};

pub(super) struct Barrier<S> {
    open: u64,
    /// Threads that have arrived and not departed, with their round.
    inside: Vec<(ThreadId, u64)>,
    groups: Vec<Group<S>>,
    /// Set if the last group takes no more arrivals.
    closed: bool,
    /// Groups that nobody can depend on any more.
    left: Vec<S>,
}

struct Group<S> {
    round: u64,
    first: EventNumber,
    sources: S,
}

impl<S> Default for Barrier<S> {
    fn default() -> Self {
        Self { open: 0, inside: Vec::new(), groups: Vec::new(), closed: false, left: Vec::new() }
    }
}

impl<S: Default> Barrier<S> {
    /// Notes that the thread arrives with the event of that number; returns the group that it belongs to.
    pub(super) fn arrive(&mut self, thread: ThreadId, event: EventNumber) -> Option<&mut S> {
        self.remove(thread);
        let round = self.open;
        self.inside.push((thread, round));
        let last = self.groups.last().map(|group| group.round);
        if last != Some(round) || std::mem::take(&mut self.closed) {
            self.groups.push(Group { round, first: event, sources: S::default() });
            self.closed = false;
        }
        self.groups.last_mut().map(|group| &mut group.sources)
    }

    /// Notes that the thread departs.
    pub(super) fn depart(&mut self, thread: ThreadId) {
        self.closed = true;
        if self.remove(thread) == Some(self.open) {
            self.next_round();
        } else {
            self.forget_empty_rounds();
        }
    }

    /// Notes that a thread that has ended will not depart.
    pub(super) fn leave(&mut self, thread: ThreadId) {
        if self.remove(thread).is_some() {
            self.forget_empty_rounds();
        }
    }

    /// Starts another round: the departure of one whose arrival was missed.
    pub(super) fn next_round(&mut self) {
        self.open += 1;
        self.forget_empty_rounds();
    }

    /// Notes that arrivals or departures were lost: current rounds cannot be distinguished.
    pub(super) fn gap(&mut self) {
        self.inside.clear();
        self.next_round();
    }

    /// Returns the group of an arrival, and its index.
    pub(super) fn group(&self, event: EventNumber) -> Option<(usize, &S)> {
        let index = self.groups.partition_point(|group| group.first <= event).checked_sub(1)?;
        self.groups.get(index).map(|group| (index, &group.sources))
    }

    /// Iterates over all groups.
    pub(super) fn groups_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.groups.iter_mut().map(|group| &mut group.sources)
    }

    /// Returns the groups that nobody can depend on any more.
    pub(super) fn take_left(&mut self) -> Vec<S> {
        std::mem::take(&mut self.left)
    }

    fn remove(&mut self, thread: ThreadId) -> Option<u64> {
        let index = self.inside.iter().position(|&(inside, _)| inside == thread)?;
        Some(self.inside.swap_remove(index).1)
    }

    fn forget_empty_rounds(&mut self) {
        let Self { open, inside, groups, left, .. } = self;
        groups.retain_mut(|group| {
            let needed =
                group.round == *open || inside.iter().any(|&(_, round)| round == group.round);
            if !needed {
                left.push(std::mem::take(&mut group.sources));
            }
            needed
        });
    }
}
