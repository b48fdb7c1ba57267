//! Values of variables around accesses. A watchpoint has the value after the access, a probe at the instruction the one
//! before it: what a write has stored is known once the next access to the variable sees it.

use std::collections::VecDeque;

use checker::{
    event::{EventNumber, VarId},
    format::ObservedValue,
};
use rustc_hash::FxHashMap;

/// Values that are stored at most: those of the latest accesses.
const MAX_VALUES: usize = 1 << 13;

/// Variables whose last write is remembered at most.
const MAX_VARIABLES: usize = 1 << 14;

/// Value around an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    event: EventNumber,
    before: Option<u64>,
    /// Value after the access; unknown for a write until the next access.
    after: Option<u64>,
    /// Length in bytes.
    length: u8,
    written: bool,
    /// Set if recordings have it: threads share the variable.
    is_shared: bool,
}

impl Seen {
    fn observed(&self) -> Option<ObservedValue> {
        let Self { event, before, after, length, written, .. } = *self;
        Some(ObservedValue { event, before, after: after?, length, written })
    }
}

/// Access to a variable at which its value was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueAt {
    /// Number of the event.
    pub event: EventNumber,
    /// The variable.
    pub variable: VarId,
    /// Its value in the lowest bytes.
    pub value: u64,
    /// Its length in bytes, 1 to 8.
    pub length: u8,
    /// Set if more than one thread has accessed the variable.
    pub is_shared: bool,
}

/// Values at the latest accesses, in the order of their events.
#[derive(Debug, Default)]
pub struct ObservedValues {
    seen: VecDeque<Seen>,
    /// Latest writes whose values the next access to the variable shows.
    pending: FxHashMap<VarId, EventNumber>,
}

impl ObservedValues {
    /// Stores the value of an access to a watched range.
    pub fn store(&mut self, value: ObservedValue) {
        let ObservedValue { event, before, after, length, written } = value;
        let after = Some(after);
        self.push(Seen { event, before, after, length, written, is_shared: true });
    }

    /// Notes a read, by the value of the variable.
    pub fn read(&mut self, at: ValueAt) {
        self.shows(at);
        self.push(at.seen(None, Some(at.masked()), false));
    }

    /// Notes a write, by the value of the variable before it.
    pub fn written_over(&mut self, at: ValueAt) {
        self.shows(at);
        self.remember(at.variable, at.event);
        self.push(at.seen(Some(at.masked()), None, true));
    }

    /// Notes a write whose value is not known: what is seen next is not the value of an earlier write.
    pub fn written_unseen(&mut self, variable: VarId) {
        self.pending.remove(&variable);
    }

    /// Takes in the value that a variable has, which is that of the last write.
    fn shows(&mut self, at: ValueAt) {
        if let Some(write) = self.pending.remove(&at.variable)
            && let Ok(index) = self.seen.binary_search_by_key(&write, |seen| seen.event)
        {
            self.seen[index].after = Some(at.masked());
        }
    }

    fn remember(&mut self, variable: VarId, write: EventNumber) {
        if self.pending.len() >= MAX_VARIABLES {
            self.pending.clear();
        }
        self.pending.insert(variable, write);
    }

    /// Returns the value that was observed at an event, if it is known and among the latest.
    #[must_use]
    pub fn get(&self, event: EventNumber) -> Option<ObservedValue> {
        let index = self.seen.binary_search_by_key(&event, |seen| seen.event).ok()?;
        self.seen.get(index)?.observed()
    }

    /// Iterates over the values that are known of the latest accesses.
    pub fn iter(&self) -> impl Iterator<Item = ObservedValue> {
        self.seen.iter().filter_map(Seen::observed)
    }

    /// Iterates over those of variables that threads share.
    pub fn shared(&self) -> impl Iterator<Item = ObservedValue> {
        self.seen.iter().filter(|seen| seen.is_shared).filter_map(Seen::observed)
    }

    fn push(&mut self, seen: Seen) {
        if self.seen.len() == MAX_VALUES {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }
}

impl ValueAt {
    /// Returns the variable's bytes of the value.
    fn masked(&self) -> u64 {
        let unused = 64 - 8 * u32::from(self.length.clamp(1, 8));
        self.value << unused >> unused
    }

    fn seen(&self, before: Option<u64>, after: Option<u64>, written: bool) -> Seen {
        let &Self { event, length, is_shared, .. } = self;
        Seen { event, before, after, length, written, is_shared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: VarId = VarId(3);

    fn at(event: u64, value: u64) -> ValueAt {
        ValueAt { event, variable: X, value, length: 4, is_shared: event > 1 }
    }

    #[test]
    fn the_next_access_shows_what_was_written() {
        let mut values = ObservedValues::default();
        values.read(at(1, 0xff_0000_0005));
        values.written_over(at(2, 5));
        assert_eq!(values.get(2), None, "not yet");
        values.read(ValueAt { variable: VarId(4), ..at(3, 9) });
        assert_eq!(values.get(2), None, "another variable");
        values.read(at(4, 7));
        let written = values.get(2).expect("a value");
        assert_eq!((written.before, written.after, written.written), (Some(5), 7, true));
        let read = values.get(1).expect("a value");
        assert_eq!((read.before, read.after, read.written), (None, 5, false), "of four bytes");
        assert_eq!(values.iter().map(|value| value.event).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(values.shared().map(|value| value.event).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn a_write_that_was_not_seen_hides_the_one_before_it() {
        let mut values = ObservedValues::default();
        values.written_over(at(1, 5));
        values.written_unseen(X);
        values.read(at(3, 9));
        assert_eq!(values.get(1), None, "9 may be the later one's");
        assert_eq!(values.get(3).map(|value| value.after), Some(9));
    }
}
