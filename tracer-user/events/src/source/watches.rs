//! Watched ranges: their names, their values around accesses, and the accesses that they report instead of probes.

use std::{collections::BTreeSet, ops::Range};

use checker::{
    event::{EventNumber, ThreadId},
    format::ObservedValue,
};
use rustc_hash::FxHashSet;
use symbolize::ProcessAddr;

use crate::{extent::Extent, values::ObservedValues};

/// A watched range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedRange {
    /// Process address of the first byte.
    pub address: ProcessAddr,
    /// Length in bytes: 1, 2, 4 or 8.
    pub length: u64,
    /// Name given by the user or the program.
    pub label: String,
    /// Set for a sampling watchpoint, which nobody has named and which moves on.
    pub is_sample: bool,
    /// Set if the watchpoint is known to work from the program's first instruction on.
    pub from_start: bool,
}

#[derive(Debug)]
struct Watch {
    range: WatchedRange,
    last_value: Option<u64>,
    /// Set when its memory is gone.
    is_unloaded: bool,
    /// Set when its label is of the memory that was there before.
    is_outdated: bool,
}

/// Watched ranges of a process, numbered in the order in which they were added.
#[derive(Debug, Default)]
pub struct Watches {
    watches: Vec<Watch>,
    /// Numbers of the ranges that the user or the program has named.
    named: Vec<usize>,
    /// Values at the latest accesses.
    values: ObservedValues,
    hits: u64,
    /// Numbers of ranges whose memory was given back, until they are taken.
    freed: BTreeSet<usize>,
    /// Accesses to named ranges that counted from probes since the watchpoints were not seen to work yet: hits of the
    /// same accesses are to come. By thread, instruction and the range's number.
    counted_early: FxHashSet<(ThreadId, u64, usize)>,
}

impl Watches {
    /// Adds a range.
    pub fn add(&mut self, range: WatchedRange) {
        tracing::debug!(number = self.watches.len(), ?range, "watching a range");
        if !range.is_sample {
            self.named.push(self.watches.len());
        }
        let (last_value, is_unloaded, is_outdated) = (None, false, false);
        self.watches.push(Watch { range, last_value, is_unloaded, is_outdated });
    }

    /// Adds the range that a sampling watchpoint is moved to.
    pub fn add_sample(&mut self, address: u64, length: u64) {
        let is_known =
            |watch: &&mut Watch| watch.range.is_sample && watch.range.address.0 == address;
        if let Some(known) = self.watches.iter_mut().find(is_known) {
            known.range.length = length;
            (known.last_value, known.is_unloaded) = (None, false);
            return;
        }
        let (address, label) = (ProcessAddr(address), String::new());
        self.add(WatchedRange { address, length, label, is_sample: true, from_start: false });
    }

    /// Names the range that a marker gives a name to.
    pub fn name(&mut self, number: usize, label: &str) {
        let Some(watch) = self.watches.get_mut(number) else { return };
        watch.is_outdated = false;
        if watch.range.label != label {
            label.clone_into(&mut watch.range.label);
        }
    }

    /// Returns a range, by its number.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&WatchedRange> {
        self.watches.get(number).map(|watch| &watch.range)
    }

    /// Returns the number of the named range that starts at an address.
    #[must_use]
    pub fn at(&self, address: ProcessAddr) -> Option<usize> {
        self.starting_at(address, false)
    }

    /// Returns whether the user or the program has named anything to be watched.
    #[must_use]
    pub const fn has_named(&self) -> bool {
        !self.named.is_empty()
    }

    /// Returns whether the user or the program has named some of these bytes to be watched.
    #[must_use]
    pub fn is_named(&self, address: u64, bytes: u64) -> bool {
        self.named_at(Extent { address, bytes }).next().is_some()
    }

    /// Takes the addresses of the ranges whose memory was given back since the last call: hits from now on are of
    /// other memory.
    pub fn take_freed(&mut self) -> Vec<u64> {
        let freed = std::mem::take(&mut self.freed).into_iter();
        freed.filter_map(|number| Some(self.get(number)?.address.0)).collect()
    }

    /// Returns the number of recorded hits.
    #[must_use]
    pub const fn hits(&self) -> u64 {
        self.hits
    }

    /// Returns the value that was observed at an event, if it is among the latest.
    #[must_use]
    pub fn value(&self, event: EventNumber) -> Option<ObservedValue> {
        self.values.get(event)
    }

    /// Takes the values observed at the latest accesses that have become known since the last call.
    pub fn take_new_values(&mut self) -> Vec<ObservedValue> {
        self.values.take_new()
    }

    /// Iterates over the values at the latest accesses to variables that threads share.
    pub fn shared_values(&self) -> impl Iterator<Item = ObservedValue> {
        self.values.shared()
    }

    /// Returns the values at accesses, to add some.
    pub(super) const fn values_mut(&mut self) -> &mut ObservedValues {
        &mut self.values
    }

    /// Counts a hit. Returns the number and the length of the range that was hit, the named ones or the others.
    pub(super) fn hit(&mut self, address: ProcessAddr, is_sample: bool) -> Option<(usize, u64)> {
        self.hits += 1;
        let number = self.starting_at(address, is_sample)?;
        Some((number, self.watches[number].range.length))
    }

    /// Returns whether a range's label is of the memory that is there.
    pub(super) fn has_label(&self, number: usize) -> bool {
        !self.watches[number].is_outdated
    }

    /// Notes the value after an access to a range. The value is of no event yet.
    pub(super) fn observe(&mut self, number: usize, value: u64, written: bool) -> ObservedValue {
        let Watch { range: WatchedRange { length, .. }, last_value, .. } =
            &mut self.watches[number];
        let mask = if *length >= 8 { u64::MAX } else { (1 << (8 * *length)) - 1 };
        let after = value & mask;
        let (before, length) = (last_value.replace(after), *length as u8);
        ObservedValue { event: 0, before, after, length, written }
    }

    /// Stores a value at its event.
    pub(super) fn store(&mut self, value: ObservedValue) {
        self.values.store(value);
    }

    /// Returns whether the watchpoint of a named range reports an access that a probe has seen. A watchpoint that is
    /// set while the program runs takes a moment: until it is seen to work the probe's record counts, and the hit
    /// that may still follow does not.
    pub(super) fn report(&mut self, thread: ThreadId, instruction: u64, extent: Extent) -> bool {
        if self.named.is_empty() {
            return false;
        }
        let named: Vec<usize> = self.named_at(extent).collect();
        let works = |&number: &usize| {
            let Watch { range, last_value, .. } = &self.watches[number];
            range.from_start || last_value.is_some()
        };
        if named.iter().any(works) {
            return true;
        }
        self.counted_early.extend(named.into_iter().map(|number| (thread, instruction, number)));
        false
    }

    /// Returns whether the access of a hit counted already, from a probe.
    pub(super) fn counted_early(
        &mut self,
        thread: ThreadId,
        instruction: u64,
        number: usize,
    ) -> bool {
        self.counted_early.remove(&(thread, instruction, number))
    }

    /// Forgets the values and labels of an earlier lifetime of a range of memory.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        for (number, watch) in self.watches.iter_mut().enumerate() {
            let (start, end) = (watch.range.address.0, watch.range.address.0 + watch.range.length);
            if start < range.end && range.start < end && !watch.is_unloaded {
                (watch.last_value, watch.is_outdated) = (None, true);
                self.freed.insert(number);
            }
        }
    }

    /// Ends the ranges in a library that was unloaded.
    pub(super) fn unload(&mut self, range: &Range<ProcessAddr>) {
        for watch in &mut self.watches {
            watch.is_unloaded |= range.contains(&watch.range.address);
        }
    }

    fn starting_at(&self, address: ProcessAddr, is_sample: bool) -> Option<usize> {
        self.watches.iter().position(|Watch { range, is_unloaded, .. }| {
            range.is_sample == is_sample && range.address == address && !is_unloaded
        })
    }

    /// Iterates over the numbers of the named ranges with some of these bytes.
    fn named_at(&self, extent: Extent) -> impl Iterator<Item = usize> {
        let Extent { address, bytes } = extent;
        let end = address.saturating_add(bytes);
        self.named.iter().copied().filter(move |&number| {
            let Watch { range, is_unloaded, .. } = &self.watches[number];
            let start = range.address.0;
            start < end && address < start.saturating_add(range.length) && !is_unloaded
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: ThreadId = ThreadId(0);
    const CODE: u64 = 0x40_1000;

    fn named(address: u64, length: u64, from_start: bool) -> WatchedRange {
        let label = "total".to_owned();
        WatchedRange { address: ProcessAddr(address), length, label, is_sample: false, from_start }
    }

    const fn extent(address: u64, bytes: u64) -> Extent {
        Extent { address, bytes }
    }

    #[test]
    fn a_range_reports_once_it_works() {
        let mut watches = Watches::default();
        assert!(!watches.report(THREAD, CODE, extent(0x1000, 4)), "nothing is named");
        watches.add(named(0x1000, 4, false));
        assert!(!watches.report(THREAD, CODE, extent(0x1002, 1)), "it has not hit yet");
        assert!(watches.counted_early(THREAD, CODE, 0), "this is the hit of the same access");
        assert!(!watches.counted_early(THREAD, CODE, 0), "this is the next one");
        watches.observe(0, 1, true);
        assert!(watches.report(THREAD, CODE, extent(0x1002, 1)));
        assert!(!watches.report(THREAD, CODE, extent(0x1004, 4)), "beside it");
        watches.add(named(0x2000, 8, true));
        assert!(watches.report(THREAD, CODE, extent(0x1ffc, 8)), "it works from the start");
    }

    #[test]
    fn values_are_those_of_the_range_s_bytes() {
        let mut watches = Watches::default();
        watches.add(named(0x1000, 2, true));
        let first = watches.observe(0, 0x1_0005, true);
        assert_eq!((first.before, first.after, first.length), (None, 5, 2));
        assert_eq!(watches.observe(0, 6, true).before, Some(5));
        let first = ObservedValue { event: 3, ..first };
        watches.store(first);
        assert_eq!((watches.value(3), watches.value(2)), (Some(first), None));
        watches.forget(&(0x1000..0x1100));
        assert!(!watches.has_label(0), "other memory");
        assert_eq!(watches.take_freed(), [0x1000]);
        assert!(watches.take_freed().is_empty());
        assert_eq!(watches.observe(0, 7, true).before, None);
        watches.name(0, "next");
        assert!(watches.has_label(0));
    }

    #[test]
    fn samples_move_and_ranges_end() {
        let mut watches = Watches::default();
        watches.add(named(0x1000, 4, true));
        watches.add_sample(0x1000, 8);
        let at = ProcessAddr(0x1000);
        assert_eq!((watches.hit(at, false), watches.hit(at, true)), (Some((0, 4)), Some((1, 8))));
        watches.unload(&(at..ProcessAddr(0x1010)));
        assert_eq!((watches.hit(at, false), watches.at(at)), (None, None));
        assert!(!watches.is_named(0x1000, 8) && watches.has_named());
        watches.add_sample(0x1000, 4);
        assert_eq!(watches.hit(at, true), Some((1, 4)), "it is set anew");
        assert_eq!(watches.hits(), 4);
    }
}
