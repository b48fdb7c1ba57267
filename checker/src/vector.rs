//! Vector clocks of the checkers that decide by them, a component for each row of the engine. What they are clocks
//! of is decided by each checker.
//!
//! A component is an event number plus one. Event numbers grow, so that what is known of a thread that has ended is
//! never taken for something of the thread that has its row now.

use crate::event::EventNumber;

/// For each row the number, plus one, of the last event that is known; absent components are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vector(Vec<u64>);

impl Vector {
    /// Whether that event of the thread in the row is known, or a later one.
    #[inline]
    pub(crate) fn knows(&self, row: usize, event: EventNumber) -> bool {
        self.0.get(row).is_some_and(|&known| known > event)
    }

    /// That event of the thread in the row is known from now on.
    pub(crate) fn raise(&mut self, row: usize, event: EventNumber) {
        if row >= self.0.len() {
            self.0.resize(row + 1, 0);
        }
        self.0[row] = self.0[row].max(event + 1);
    }

    /// What the other knows is known from now on.
    pub(crate) fn join(&mut self, other: &Self) {
        self.join_but(other, usize::MAX);
    }

    /// As `join`, but for what the other knows of the thread in that row.
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

    /// Whether the other knows all that this one does.
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
