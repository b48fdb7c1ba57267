//! Memory as the source sees it: the variables of an access, and the effect of blocks being given out and given back.
//! The division of memory is decided in `live::memory`.

use std::ops::Range;

use checker::{
    event::{Event, EventNumber, LocationId, Op, ThreadId, VarId},
    format::NO_LOCATION,
};
use rustc_hash::FxHashMap;
use tracer_ebpf::{BlockRecord, Kind};

use super::{Item, Source, WatchedRange};
use crate::{
    live::{
        location::Location,
        memory::{Birth, Block, Cell, Origin},
    },
    probes::memory::site::MemorySite,
};

/// The calls that gave memory out and back.
#[derive(Debug, Default)]
pub(super) struct MemoryCalls {
    allocated: u64,
    freed: u64,
    /// Block that each thread gives back in a reallocation, which may fail.
    reallocating: FxHashMap<ThreadId, Block>,
}

impl Source {
    /// Handles memory being given out, or about to be given back.
    pub(super) fn memory_call(
        &mut self,
        kind: Kind,
        record: &BlockRecord,
        sink: &mut impl FnMut(Item),
    ) {
        let address = record.address;
        let site = self.sites.get(record.header.site.number() as usize);
        let Some(&MemorySite::Allocator { role }) = site.and_then(|site| site.kind.memory()) else {
            self.omissions.foreign_records += 1;
            return;
        };
        let thread = self.thread(record.header.tid);
        let location = self.locations.stack(Location::Call(record.frames), &mut self.symbolizer);
        self.acts_at(thread, record.sp, sink);
        self.at(thread, record.sp, sink);
        let size = if role.is_mapping() { whole_pages(record.size) } else { record.size };
        if kind == Kind::Free {
            if role.may_fail()
                && let Some(block) = self.memory.block_at(address)
            {
                self.memory_calls.reallocating.insert(thread, *block);
            }
            let known = (size > 0).then_some(size);
            let Self { memory, events, .. } = self;
            let mut sink_of = passed_on(events, thread, location, sink);
            let range = match known {
                Some(size) if !role.is_mapping() => {
                    let origin = Origin::Allocated(location);
                    let born = Birth::default();
                    let block = Block { address, size, thread, origin, born };
                    memory.given_back(block, &mut sink_of);
                    Some(block.range())
                }
                _ => memory.freed(address, known, &mut sink_of),
            };
            drop(sink_of);
            if let Some(range) = range {
                self.memory_calls.freed += 1;
                self.forget_objects(thread, location, &range, sink);
            }
            return;
        }
        // The old block of a reallocation that has failed lives on.
        let lives_on = kind == Kind::ReallocFailure;
        let before =
            if role.may_fail() { self.memory_calls.reallocating.remove(&thread) } else { None };
        let block = match before.filter(|block| lives_on && block.address == address) {
            Some(block) => block,
            None if lives_on && size == 0 => return,
            None => {
                let origin = if role.is_mapping() {
                    Origin::Mapped(location)
                } else {
                    Origin::Allocated(location)
                };
                let born = Birth { event: self.events, epoch: record.epoch };
                Block { address, size: size.max(1), thread, origin, born }
            }
        };
        self.memory_calls.allocated += 1;
        let Self { memory, events, .. } = self;
        memory.allocated(block, &mut passed_on(events, thread, location, sink));
        self.forget_objects(thread, location, &block.range(), sink);
    }

    /// Handles a thread that is about to start: its stack is memory that was another thread's, or unused.
    pub(super) fn stack_begins(
        &mut self,
        parent: ThreadId,
        child: ThreadId,
        pointer: u64,
        location: LocationId,
        sink: &mut impl FnMut(Item),
    ) {
        if self.threads[child.index()].pthread != Some(pointer) || pointer == 0 {
            return;
        }
        let Self { memory, events, .. } = self;
        let born = Birth { event: *events, epoch: 0 };
        let mut pass_on = |op| passed_on(events, parent, location, sink)(op);
        let range = memory.stack_begins(child, pointer, born, &mut pass_on);
        self.forget_objects(parent, location, &range, sink);
    }

    /// Forgets the objects and watched ranges of an earlier lifetime of a range of memory.
    fn forget_objects(
        &mut self,
        thread: ThreadId,
        location: LocationId,
        range: &Range<u64>,
        sink: &mut impl FnMut(Item),
    ) {
        let Self { syncs, events, .. } = self;
        syncs.forget_memory(range, &mut passed_on(events, thread, location, sink));
        self.shared_words.forget(range);
        self.words.forget(range);
        for (index, watch) in self.watches.iter().enumerate() {
            let (start, end) = (watch.address.0, watch.address.0 + watch.length);
            if start < range.end && range.start < end && !self.unloaded_watches.contains(&index) {
                self.last_values[index] = None;
                self.nameless_watches.insert(index);
                if !self.freed_watches.contains(&index) {
                    self.freed_watches.push(index);
                }
            }
        }
    }

    /// Makes the variables of a watched range those that are touched now.
    pub(super) fn touch_watched(
        &mut self,
        thread: ThreadId,
        watch: usize,
        sink: &mut impl FnMut(Item),
    ) {
        let WatchedRange { address, length, .. } = self.watches[watch];
        self.touch(thread, address.0, length, sink);
        if self.nameless_watches.contains(&watch) {
            return;
        }
        for &variable in &self.touched {
            self.memory.watched(variable, watch);
        }
    }

    /// Names the watched range that a marker gives a name to.
    pub fn name_watch(&mut self, number: usize, label: &str) {
        self.nameless_watches.remove(&number);
        if let Some(range) = self.watches.get_mut(number).filter(|range| range.label != label) {
            label.clone_into(&mut range.label);
        }
    }

    /// Sets `touched` to the variables of `bytes` bytes at an address.
    pub(super) fn touch(
        &mut self,
        thread: ThreadId,
        address: u64,
        size: u64,
        sink: &mut impl FnMut(Item),
    ) {
        self.touch_for(thread, thread, (address, size), sink);
    }

    /// Does so for a deferred access, which is read while another thread acts.
    pub(super) fn touch_for(
        &mut self,
        thread: ThreadId,
        acting: ThreadId,
        (address, size): (u64, u64),
        sink: &mut impl FnMut(Item),
    ) {
        let Self { memory, touched, events, .. } = self;
        touched.clear();
        let mut divided = passed_on(events, acting, NO_LOCATION, sink);
        memory.touch(thread, address, size, &mut divided, touched);
    }

    /// Takes the numbers of the watched ranges whose memory was given back since the last call: hits from now on are
    /// of other memory.
    pub fn take_freed_watches(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.freed_watches)
    }

    /// Returns the description of a variable, past or present.
    #[must_use]
    pub fn variable(&self, variable: VarId) -> Option<Cell<'_>> {
        self.memory.cell(variable)
    }

    /// Returns the block that an address is in now.
    #[must_use]
    pub fn block(&self, address: u64) -> Option<&Block> {
        self.memory.block(address)
    }

    /// Returns a watched range, by its number.
    #[must_use]
    pub fn watched(&self, number: usize) -> Option<&WatchedRange> {
        self.watches.get(number)
    }

    /// Returns the numbers of blocks given out, and of known blocks given back.
    #[must_use]
    pub const fn memory_calls(&self) -> (u64, u64) {
        (self.memory_calls.allocated, self.memory_calls.freed)
    }
}

/// Makes operations events of a thread, and counts them.
pub(super) fn passed_on(
    events: &mut EventNumber,
    thread: ThreadId,
    location: LocationId,
    sink: &mut impl FnMut(Item),
) -> impl FnMut(Op) {
    move |op| {
        *events += 1;
        let nowhere = matches!(op, Op::SplitVariable { .. });
        let location = if nowhere { NO_LOCATION } else { location };
        sink(Item::Event(Event { thread, op, location }));
    }
}

/// Mappings are of whole pages.
const fn whole_pages(bytes: u64) -> u64 {
    const PAGE: u64 = 4096;
    bytes.saturating_add(PAGE - 1) & !(PAGE - 1)
}
