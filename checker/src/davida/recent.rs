//! The latest of the intervals that have ended in one thread, such as holds of locks. Bounded, but it knows exactly
//! for which points intervals were dropped.

use crate::event::EventNumber;

/// Number of intervals stored.
const MAX_INTERVALS: usize = 32;

/// Interval of one thread's events, both ends included.
#[derive(Clone, Copy)]
pub(super) struct Interval<T> {
    pub(super) value: T,
    pub(super) begin: EventNumber,
    pub(super) end: EventNumber,
}

/// Latest intervals, a ring once it is full.
pub(super) struct Recent<T> {
    intervals: Vec<Interval<T>>,
    next: usize,
    /// Intervals up to this point may have been dropped; 0 if all are there.
    unknown: EventNumber,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { intervals: Vec::new(), next: 0, unknown: 0 }
    }
}

impl<T: Copy> Recent<T> {
    pub(super) fn clear(&mut self) {
        self.intervals.clear();
        self.next = 0;
        self.unknown = 0;
    }

    /// Adds an interval that ends now.
    #[inline]
    pub(super) fn push(&mut self, value: T, begin: EventNumber, end: EventNumber) {
        let interval = Interval { value, begin, end };
        if self.intervals.len() < MAX_INTERVALS {
            self.intervals.push(interval);
            return;
        }
        let oldest = std::mem::replace(&mut self.intervals[self.next], interval);
        self.unknown = oldest.end;
        self.next = (self.next + 1) % MAX_INTERVALS;
    }

    /// Returns the intervals that contain the point; `None` if some may have been dropped.
    pub(super) fn around(&self, point: EventNumber) -> Option<impl Iterator<Item = &Interval<T>>> {
        let contains =
            move |interval: &&Interval<T>| (interval.begin..=interval.end).contains(&point);
        (self.unknown < point).then(|| self.intervals.iter().filter(contains))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_before_the_end_of_a_dropped_interval_are_unknown() {
        let mut recent = Recent::default();
        for index in 0..=MAX_INTERVALS as u64 {
            recent.push(index, 10 * index + 1, 10 * index + 5);
        }
        let at = |point| {
            recent.around(point).map(|found| found.map(|interval| interval.value).collect())
        };
        assert_eq!(at(5), None);
        assert_eq!(at(6), Some(vec![]));
        assert_eq!(at(13), Some(vec![1]));
    }
}
