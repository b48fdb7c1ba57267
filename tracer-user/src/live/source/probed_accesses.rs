//! Accesses of probed instructions, and the addresses that sampling watchpoints are moved to. An access that both see
//! counts once.

use checker::event::{Op, ThreadId, VarId};
use tracer_ebpf::{AccessDescriptor, AccessRecord};

use super::{Item, Source, WatchedRange};
use crate::{
    live::location::Location,
    probes::memory::site::{AccessPlace, MemorySite},
    symbolize::ProcessAddr,
};

/// Makes an operation on a variable.
type Operation = fn(VarId) -> Op;

impl Source {
    /// Handles an access by a probed instruction, before or after it is made.
    pub(super) fn instruction(&mut self, record: &AccessRecord, sink: &mut impl FnMut(Item)) {
        let header = record.header;
        let site = self.sites.get(header.site.number() as usize);
        let Some(&MemorySite::Access(place)) = site.and_then(|site| site.kind.memory()) else {
            self.omissions.foreign_records += 1;
            return;
        };
        let thread = self.thread(header.tid);
        self.acts_at(thread, record.sp, sink);
        self.at(thread, record.sp, sink);
        let (address, bytes) = (record.address, record.size);
        if !self.touch_counts(thread, place, (address, bytes)) {
            return;
        }
        let mut frames = record.frames;
        frames[0] = place.instruction.0;
        let location = self.locations.stack(Location::Access(frames), &mut self.symbolizer);
        self.touch(thread, address, bytes, sink);
        if self.touched.is_empty() {
            self.omissions.freed_accesses += 1;
            return;
        }
        let done = record.flags as u8;
        let use_of_memory =
            (done & AccessDescriptor::READ != 0, done & AccessDescriptor::WRITE != 0);
        let instruction = place.instruction.0;
        if self.synchronises(thread, instruction, (address, bytes), use_of_memory, location, sink) {
            return;
        }
        let both = AccessDescriptor::READ | AccessDescriptor::WRITE;
        let ops: [Option<Operation>; 2] = match done & (both | AccessDescriptor::ATOMIC) {
            AccessDescriptor::READ => [Some(Op::Read), None],
            AccessDescriptor::WRITE => [Some(Op::Write), None],
            done if done == both => [Some(Op::Read), Some(Op::Write)],
            _ => [Some(Op::Update), None],
        };
        for op in ops.into_iter().flatten() {
            for index in 0..self.touched.len() {
                self.emit(thread, op(self.touched[index]), location, sink);
            }
        }
        self.shared_words.touched(thread, address, bytes, done & AccessDescriptor::WRITE != 0);
    }

    /// Returns whether an access that a probe has seen counts: it is not to a lock's own memory, and no watchpoint
    /// reports it.
    pub(super) fn touch_counts(
        &mut self,
        thread: ThreadId,
        place: AccessPlace,
        (address, bytes): (u64, u64),
    ) -> bool {
        if self.syncs.is_at(address) {
            self.omissions.lock_accesses += 1;
            return false;
        }
        // What the user has named is seen by its watchpoint, in its order and with its value.
        let instruction = place.instruction.0;
        !self.is_left_to_watchpoints(thread, instruction, address, bytes)
            && self.dedup.admit_probe(thread, (place.group, instruction), (address, bytes))
    }

    /// Returns whether the user or the program has named anything to be watched.
    #[must_use]
    pub fn has_named_watches(&self) -> bool {
        !self.named_watches.is_empty()
    }

    /// Returns whether the watchpoint of a named range reports an access that a probe has seen. A watchpoint that is
    /// set while the program runs takes a moment: until it is seen to work the probe's record counts, and the hit
    /// that may still follow does not.
    fn is_left_to_watchpoints(
        &mut self,
        thread: ThreadId,
        instruction: u64,
        address: u64,
        bytes: u64,
    ) -> bool {
        if self.named_watches.is_empty() {
            return false;
        }
        let named: Vec<usize> = self.named_at(address, bytes).collect();
        let works =
            |&index: &usize| self.watches[index].from_start || self.last_values[index].is_some();
        if named.iter().any(works) {
            return true;
        }
        self.counted_early.extend(named.into_iter().map(|index| (thread, instruction, index)));
        false
    }

    /// Returns whether the user or the program has named some of these bytes to be watched.
    #[must_use]
    pub fn is_named(&self, address: u64, bytes: u64) -> bool {
        self.named_at(address, bytes).next().is_some()
    }

    /// Iterates over the indices of the named ranges with some of these bytes.
    fn named_at(&self, address: u64, bytes: u64) -> impl Iterator<Item = usize> {
        let end = address.saturating_add(bytes);
        self.named_watches.iter().copied().filter(move |&index| {
            let watch = &self.watches[index];
            let start = watch.address.0;
            start < end
                && address < start.saturating_add(watch.length)
                && !self.unloaded_watches.contains(&index)
        })
    }

    /// Adds the range that a sampling watchpoint is moved to.
    pub fn add_sample(&mut self, address: u64, length: u64) {
        let is_known = |watch: &WatchedRange| watch.is_sample && watch.address.0 == address;
        let known = self.watches.iter().position(is_known);
        if let Some(known) = known {
            self.watches[known].length = length;
            self.last_values[known] = None;
            self.unloaded_watches.retain(|&index| index != known);
            return;
        }
        let (address, label) = (ProcessAddr(address), String::new());
        let range = WatchedRange { address, length, label, is_sample: true, from_start: false };
        self.add_watch(range);
    }

    /// Addresses that watchpoints are on or were, and that were given back since the last call.
    pub fn take_freed(&mut self) -> Vec<u64> {
        let freed = self.take_freed_watches().into_iter();
        freed.filter_map(|number| Some(self.watches.get(number)?.address.0)).collect()
    }

    /// Notes that the probes of a group were attached or detached.
    pub fn set_attached(&mut self, group: usize, is_attached: bool) {
        if is_attached {
            self.dedup.attached(group);
        } else {
            self.dedup.detached(group, self.threads.len());
        }
    }

    /// Returns whether the hit of a sampling watchpoint is one that no probe reports.
    pub(super) fn hit_counts(&mut self, thread: ThreadId, instruction: u64, address: u64) -> bool {
        let group = self.probed_code.get(&instruction);
        group
            .is_none_or(|&group| self.dedup.admit_watchpoint(thread, (group, instruction), address))
    }
}
