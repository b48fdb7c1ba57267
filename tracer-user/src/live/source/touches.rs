//! What instructions touch that are probed, and which addresses watchpoints are moved to. What both see counts once.

use checker::event::{Op, VarId};
use tracer_ebpf::{PairRecord, Touch};

use super::{Item, Source, WatchedRange};
use crate::{live::location::Location, probes::plan::SiteKind, symbolize::ProcessAddr};

/// Makes an operation on a variable.
type Operation = fn(VarId) -> Op;

impl Source {
    /// An instruction has touched memory, or is about to.
    pub(super) fn instruction(&mut self, record: &PairRecord, sink: &mut impl FnMut(Item)) {
        let header = record.call.header;
        let site = self.sites.get(header.site as usize).map(|site| &site.kind);
        let Some(&SiteKind::Touch(place)) = site else {
            self.omissions.foreign_records += 1;
            return;
        };
        let thread = self.thread(header.tid);
        self.acts_at(thread, record.call.sp, sink);
        self.at(thread, record.call.sp, sink);
        let (address, bytes) = (record.call.object, record.second);
        if self.syncs.is_at(address) {
            self.omissions.lock_accesses += 1;
            return;
        }
        // What the user has named is seen by its watchpoint, in its order and with its value.
        if self.is_named(address, bytes) {
            return;
        }
        let mut frames = record.call.frames;
        frames[0] = place.instruction.0;
        let location = self.locations.stack(Location::Access(frames), &mut self.symbolizer);
        self.touch(thread, address, bytes, sink);
        if self.touched.is_empty() {
            self.omissions.freed_accesses += 1;
            return;
        }
        let done = header.detail as u8;
        let both = Touch::READ | Touch::WRITE;
        let ops: [Option<Operation>; 2] = match done & (both | Touch::ATOMIC) {
            Touch::READ => [Some(Op::Read), None],
            // As a read it conflicts with what overwrites it, and with no other addition.
            _ if place.adds => [Some(Op::Read), None],
            Touch::WRITE => [Some(Op::Write), None],
            done if done == both => [Some(Op::Read), Some(Op::Write)],
            _ => [Some(Op::Update), None],
        };
        for op in ops.into_iter().flatten() {
            for index in 0..self.touched.len() {
                self.emit(thread, op(self.touched[index]), location, sink);
            }
        }
        self.sharing.touched(thread, address, bytes, done & Touch::WRITE != 0);
    }

    /// Whether the user or the program has named anything to be watched.
    #[must_use]
    pub fn has_named_watches(&self) -> bool {
        !self.named_watches.is_empty()
    }

    /// Whether the user or the program has named some of these bytes to be watched, and the watchpoint is seen to work:
    /// one that is set while the program runs takes a moment.
    fn is_named(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        self.named_watches.iter().any(|&index| {
            let watch = &self.watches[index];
            let start = watch.address.0;
            self.last_values[index].is_some()
                && start < end
                && address < start + watch.length
                && !self.unloaded_watches.contains(&index)
        })
    }

    /// A watchpoint is moved to a range that nobody has named.
    pub fn add_sample(&mut self, address: u64, length: u64) {
        let known = self.watches.iter().position(|watch| watch.address.0 == address);
        if let Some(known) = known {
            self.watches[known].length = length;
            self.last_values[known] = None;
            self.unloaded_watches.retain(|&index| index != known);
            return;
        }
        let (address, label) = (ProcessAddr(address), String::new());
        self.add_watch(WatchedRange { address, length, label, is_sample: true });
    }

    /// Addresses that watchpoints are on or were, and that were given back since the last call.
    pub fn take_freed(&mut self) -> Vec<u64> {
        let freed = self.take_freed_watches().into_iter();
        freed.filter_map(|number| Some(self.watches.get(number)?.address.0)).collect()
    }

    /// The probes of a group were attached or detached.
    pub fn set_attached(&mut self, group: usize, is_attached: bool) {
        if is_attached {
            self.detached.remove(&group);
        } else {
            self.detached.insert(group);
        }
    }

    /// Whether an instruction is seen by a probe of its own.
    pub(super) fn is_probed(&self, instruction: u64) -> bool {
        let group = self.probed_code.get(&instruction);
        group.is_some_and(|group| !self.detached.contains(group))
    }
}
