//! Vector clocks of the checkers that decide by them, with one component for each row of the engine. Each
//! checker defines the meaning of its clocks.
//!
//! A component is an event number plus one. Event numbers grow, so that knowledge of an ended thread is
//! never mistaken for knowledge of the thread that has its row now.

use crate::event::EventNumber;

/// Number plus one of the last known event, for each row; absent components are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vector(Vec<u64>);

impl Vector {
    /// Returns whether the event of the thread in `row`, or a later one, is known.
    #[inline]
    pub(crate) fn knows(&self, row: usize, event: EventNumber) -> bool {
        self.0.get(row).is_some_and(|&known| known > event)
    }

    /// Marks the event of the thread in `row`, and all its earlier ones, as known.
    pub(crate) fn raise(&mut self, row: usize, event: EventNumber) {
        if row >= self.0.len() {
            self.0.resize(row + 1, 0);
        }
        self.0[row] = self.0[row].max(event + 1);
    }

    /// Adds the knowledge of `other`.
    pub(crate) fn join(&mut self, other: &Self) {
        self.join_but(other, usize::MAX);
    }

    /// Adds the knowledge of `other`, except that of the thread in `row`.
    pub(crate) fn join_but(&mut self, other: &Self, row: usize) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (index, (mine, theirs)) in self.0.iter_mut().zip(&other.0).enumerate() {
            if index != row {
                *mine = (*mine).max(*theirs);
            }
        }
    }

    /// Returns whether `other` knows everything that `self` knows.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let theirs = other.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter().zip(theirs).all(|(&mine, theirs)| mine <= theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_components_know_nothing() {
        let (mut short, mut long) = (Vector::default(), Vector::default());
        short.raise(0, 4);
        long.raise(2, 0);
        assert!(!short.is_within(&long) && !long.is_within(&short));
        assert!(Vector::default().is_within(&short));
        short.join_but(&long, 2);
        assert!(!short.knows(2, 0) && short.knows(0, 4) && !short.knows(0, 5));
        short.join(&long);
        assert!(short.knows(2, 0) && long.is_within(&short));
    }
}
