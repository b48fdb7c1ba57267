//! Values of variables around accesses. A watchpoint reads the value after the access, a probe the value before or
//! after it. If the probe comes before a write, the next access to the variable shows the value written; if it comes
//! after, the latest read shows the value overwritten.

use std::collections::VecDeque;

use checker::{
    event::{EventNumber, VarId},
    format::ObservedValue,
};
use rustc_hash::FxHashMap;

/// Maximal number of stored values; older ones are dropped.
const MAX_VALUES: usize = 1 << 13;

/// Variables whose last access is remembered at most.
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
    last: FxHashMap<VarId, Last>,
    /// Accesses are left out for a time: between two that are seen, another thread may change the variable.
    is_partial: bool,
    /// The first event whose value was not there when values were taken.
    taken: EventNumber,
    /// Writes before that event whose values were shown since: each is one of the stored ones, and shown once.
    shown_late: Vec<EventNumber>,
}

/// Last access to a variable.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// Read of that value.
    Read(u64),
    /// Write whose value the next access shows.
    Write(EventNumber),
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
        self.remember(at.variable, Last::Read(at.masked()));
        self.push(at.seen(None, Some(at.masked()), false));
    }

    /// Notes a write, by the value of the variable before it.
    pub fn written_over(&mut self, at: ValueAt) {
        self.shows(at);
        self.remember(at.variable, Last::Write(at.event));
        self.push(at.seen(Some(at.masked()), None, true));
    }

    /// Notes a write, by the value of the variable after it. The value before it is the value of the latest read, if
    /// no write was made since: repeated writes make no record.
    pub fn written(&mut self, at: ValueAt) {
        let before = match self.last.remove(&at.variable) {
            Some(Last::Read(value)) => Some(value),
            Some(Last::Write(_)) | None => None,
        };
        self.push(at.seen(before, Some(at.masked()), true));
    }

    /// Notes a write of an unknown value: the value seen next does not belong to an earlier write.
    pub fn written_unseen(&mut self, variable: VarId) {
        self.last.remove(&variable);
    }

    /// Takes in the value of a variable as the value of its last write.
    fn shows(&mut self, at: ValueAt) {
        if let Some(&Last::Write(write)) = self.last.get(&at.variable)
            && let Ok(index) = self.seen.binary_search_by_key(&write, |seen| seen.event)
        {
            self.seen[index].after = Some(at.masked());
            if write < self.taken {
                self.shown_late.push(write);
            }
        }
    }

    /// From now on accesses are left out for a time.
    pub fn become_partial(&mut self) {
        self.is_partial = true;
        self.last.clear();
    }

    /// Events were lost, or were not captured for a time: any variable may have been changed meanwhile.
    pub fn gap(&mut self) {
        self.last.clear();
    }

    fn remember(&mut self, variable: VarId, last: Last) {
        if self.is_partial {
            return;
        }
        if self.last.len() >= MAX_VARIABLES {
            self.last.clear();
        }
        self.last.insert(variable, last);
    }

    /// Returns the value that was observed at an event, if it is known and among the latest.
    #[must_use]
    pub fn get(&self, event: EventNumber) -> Option<ObservedValue> {
        let index = self.seen.binary_search_by_key(&event, |seen| seen.event).ok()?;
        self.seen.get(index)?.observed()
    }

    /// Takes the values of the latest accesses that have become known since the last call.
    pub fn take_new(&mut self) -> Vec<ObservedValue> {
        let late = std::mem::take(&mut self.shown_late);
        let late = late.into_iter().filter_map(|event| self.get(event));
        let first = self.seen.partition_point(|seen| seen.event < self.taken);
        let new = late.chain(self.seen.range(first..).filter_map(Seen::observed)).collect();
        self.taken = self.seen.back().map_or(self.taken, |seen| seen.event + 1);
        new
    }

    /// Iterates over the known values of variables that threads share.
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

/// Values of accesses that a report may show, by their events.
#[derive(Debug, Default)]
pub struct RetainedValues(Vec<ObservedValue>);

impl RetainedValues {
    /// Adds values. Most of them are of later events than those that are there: they are not searched for a place.
    pub fn add(&mut self, new: Vec<ObservedValue>) {
        let last = self.0.last().map_or(0, |last| last.event);
        let first = new.iter().map(|value| value.event).min();
        self.0.extend(new);
        if let Some(first) = first.filter(|&first| first <= last) {
            // Only the last ones before are later.
            let rest = self.0.iter().rposition(|value| value.event < first).map_or(0, |at| at + 1);
            self.0[rest..].sort_by_key(|value| value.event);
        }
    }

    /// Returns the value of the access that an event was, if it is retained.
    #[must_use]
    pub fn get(&self, event: EventNumber) -> Option<ObservedValue> {
        let next = self.0.partition_point(|value| value.event <= event);
        self.0[..next].last().filter(|value| value.event == event).copied()
    }

    /// Returns whether there are at least that many values.
    #[must_use]
    pub const fn are_many(&self, limit: usize) -> bool {
        self.0.len() >= limit
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
        let new = values.take_new().into_iter().map(|value| value.event);
        assert_eq!(new.collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(values.shared().map(|value| value.event).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn each_value_is_taken_once_when_it_is_known() {
        let mut values = ObservedValues::default();
        let new = |values: &mut ObservedValues| {
            values.take_new().into_iter().map(|value| value.event).collect::<Vec<_>>()
        };
        values.read(at(1, 5));
        values.written_over(at(2, 5));
        assert_eq!(new(&mut values), [1]);
        assert_eq!(new(&mut values), [0; 0]);
        values.written_over(at(3, 6));
        values.read(ValueAt { variable: VarId(4), ..at(4, 9) });
        assert_eq!(new(&mut values), [2, 4], "the last write is not known");
        values.read(at(5, 7));
        assert_eq!(new(&mut values), [3, 5]);
        values.written_over(at(6, 7));
        assert_eq!(new(&mut values), [0; 0]);
        for event in 7..7 + MAX_VALUES as u64 {
            values.read(ValueAt { variable: VarId(4), ..at(event, 1) });
        }
        values.read(at(7 + MAX_VALUES as u64, 8));
        assert_eq!(new(&mut values).len(), MAX_VALUES, "the write has been dropped");
    }

    #[test]
    fn values_are_retained_by_their_events() {
        let value =
            |event, after| ObservedValue { event, before: None, after, length: 8, written: false };
        let mut values = RetainedValues::default();
        assert_eq!(values.get(0), None);
        values.add(vec![value(0, 1), value(3, 2), value(5, 3), value(8, 4)]);
        values.add(vec![value(4, 5), value(2, 6), value(9, 7), value(11, 8)]);
        let found = |event| values.get(event).map(|value| value.after);
        assert_eq!(
            [0, 2, 3, 4, 5, 8, 9, 11].map(found),
            [1, 6, 2, 5, 3, 4, 7, 8].map(Some),
            "late ones have their places"
        );
        assert_eq!([1, 6, 10, 12].map(found), [None; 4]);
        assert!(values.are_many(8) && !values.are_many(9));
    }

    #[test]
    fn a_read_has_the_value_before_a_write_that_is_seen_afterwards() {
        let mut values = ObservedValues::default();
        values.read(at(1, 5));
        values.written(at(2, 8));
        assert_eq!(values.get(2).map(|value| (value.before, value.after)), Some((Some(5), 8)));
        values.written(at(3, 9));
        let last = values.get(3).map(|value| (value.before, value.after));
        assert_eq!(last, Some((None, 9)), "repetitions of the other write make no record");
        values.read(at(4, 9));
        values.written_unseen(X);
        values.written(at(6, 9));
        assert_eq!(values.get(6).map(|value| value.before), Some(None));
    }

    #[test]
    fn a_value_from_before_a_gap_is_none_of_behind_it() {
        let mut values = ObservedValues::default();
        values.read(at(1, 5));
        values.gap();
        values.written(at(3, 8));
        assert_eq!(values.get(3).map(|value| (value.before, value.after)), Some((None, 8)));
        values.read(at(4, 8));
        values.written(at(5, 9));
        assert_eq!(values.get(5).map(|value| value.before), Some(Some(8)), "known again");
    }

    #[test]
    fn between_two_accesses_others_may_have_written_that_are_left_out() {
        let mut values = ObservedValues::default();
        values.read(at(1, 5));
        values.become_partial();
        values.written(at(2, 7));
        assert_eq!(values.get(2).map(|value| (value.before, value.after)), Some((None, 7)));
        values.read(at(3, 7));
        values.written(at(4, 7));
        assert_eq!(values.get(4).map(|value| value.before), Some(None), "it may have changed it");
        values.written_over(at(5, 7));
        values.read(at(6, 9));
        assert_eq!(values.get(5), None, "9 may be a later one's");
        assert_eq!(values.get(6).map(|value| value.after), Some(9));
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
