//! Labels of the bytes of a function's stack, in the order of their places: states are copied and joined at each
//! instruction, which a tree of single bytes is slow at. Few instructions write to the stack, so that the states around
//! the others share one list.

use std::{ops::Range, sync::Arc};

use super::labels::Labels;

/// Labels of each byte that has any, by its distance from the stack pointer at the entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StackBytes(Arc<Vec<(i64, Labels)>>);

impl StackBytes {
    fn place(&self, byte: i64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&byte, |(at, _)| *at)
    }

    pub fn has(&self, byte: i64) -> bool {
        self.place(byte).is_ok()
    }

    fn between(&self, range: &Range<i64>) -> Range<usize> {
        let start = self.0.partition_point(|(at, _)| *at < range.start);
        start..self.0.partition_point(|(at, _)| *at < range.end).max(start)
    }

    /// Bytes of a range with their labels.
    pub fn range(&self, range: Range<i64>) -> &[(i64, Labels)] {
        &self.0[self.between(&range)]
    }

    pub fn range_mut(&mut self, range: Range<i64>) -> impl Iterator<Item = &mut Labels> {
        let places = self.between(&range);
        Arc::make_mut(&mut self.0)[places].iter_mut().map(|(_, labels)| labels)
    }

    /// Gives each byte that has labels other ones.
    pub fn change(&mut self, other: impl Fn(Labels) -> Labels) {
        if self.0.iter().any(|(_, labels)| other(*labels) != *labels) {
            for (_, labels) in Arc::make_mut(&mut self.0) {
                *labels = other(*labels);
            }
        }
    }

    /// Labels of a byte, which has some from then on.
    pub fn entry(&mut self, byte: i64) -> &mut Labels {
        let place = self.place(byte);
        let bytes = Arc::make_mut(&mut self.0);
        let place = place.unwrap_or_else(|place| {
            bytes.insert(place, (byte, Labels::NONE));
            place
        });
        &mut bytes[place].1
    }

    /// Takes in the labels of another path; returns whether anything changed.
    pub fn join(&mut self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) || !self.is_changed_by(other) {
            return false;
        }
        let mut all = Vec::with_capacity(self.0.len().max(other.0.len()));
        let mut mine = self.0.iter().copied().peekable();
        for &(byte, theirs) in other.0.iter() {
            while let Some(before) = mine.next_if(|(at, _)| *at < byte) {
                all.push(before);
            }
            let same = mine.next_if(|(at, _)| *at == byte);
            all.push((byte, same.map_or(theirs, |(_, mine)| mine.join(theirs))));
        }
        all.extend(mine);
        self.0 = Arc::new(all);
        true
    }

    /// Returns whether another path has a byte or a label that is missing here. At most instructions none has.
    fn is_changed_by(&self, other: &Self) -> bool {
        let mut mine = self.0.iter();
        let is_new = |&(byte, theirs): &(i64, Labels)| match mine.find(|(at, _)| *at >= byte) {
            Some(&(at, mine)) => at != byte || mine.join(theirs) != mine,
            None => true,
        };
        other.0.iter().any(is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_byte_by_byte() {
        let of = |bytes: &[(i64, usize)]| {
            let mut stack = StackBytes::default();
            bytes.iter().for_each(|&(byte, number)| *stack.entry(byte) = Labels::argument(number));
            stack
        };
        let mut one = of(&[(-8, 0), (0, 1)]);
        assert!(one.join(&of(&[(-16, 2), (0, 2), (4, 3)])));
        let both = Labels::argument(1).join(Labels::argument(2));
        let expected = [
            (-16, Labels::argument(2)),
            (-8, Labels::argument(0)),
            (0, both),
            (4, Labels::argument(3)),
        ];
        assert_eq!(one.range(-100..100), expected);
        assert_eq!(one.range(-8..1), &expected[1..3]);
        assert!(one.has(4) && !one.has(5));
        assert!(!one.join(&of(&[(-8, 0), (4, 3)])), "nothing new");
    }
}
