//! Memory as the source sees it: the variables of an access, and the effect of blocks being given out and given back.
//! The division of memory is decided in [`crate::memory`].

use std::{collections::BTreeSet, ops::Range};

use abi::{BlockRecord, Kind};
use checker::{
    event::{ThreadId, VarId},
    format::NO_LOCATION,
};
use rustc_hash::FxHashMap;

use crate::{
    extent::Extent,
    memory::{Birth, Block, Cell, Free, Memory, Origin},
    stream::{Cause, Stream},
};
use plan::memory::site::AllocatorSite;

/// Memory of a process.
#[derive(Debug, Default)]
pub struct ProcessMemory {
    memory: Memory,
    /// The variables of the access under way.
    touched: Vec<VarId>,
    allocated: u64,
    freed: u64,
    /// Addresses on its own stack that each thread has accessed.
    own_stacks: FxHashMap<ThreadId, BTreeSet<u64>>,
    /// Block that each thread gives back in a reallocation, which may fail.
    reallocating: FxHashMap<ThreadId, Block>,
}

impl ProcessMemory {
    /// Finds the variables of an access by `thread`, whose record is read while `acting` acts: another thread for a
    /// deferred access. [`touched`](Self::touched) returns the variables; memory that was given back has no variables.
    pub(super) fn touch(
        &mut self,
        thread: ThreadId,
        acting: ThreadId,
        extent: Extent,
        stream: &mut Stream,
    ) {
        self.touched.clear();
        let cause = Cause { thread: acting, location: NO_LOCATION };
        let mut divided = |op| stream.emit_change(cause, op);
        let Extent { address, bytes } = extent;
        self.memory.touch(thread, address, bytes, &mut divided, &mut self.touched);
    }

    /// Finds the variables of an access of the program's code to memory that was freed. Other accesses to it may be the
    /// allocator's.
    pub(super) fn use_freed(&mut self, thread: ThreadId, extent: Extent, stream: &mut Stream) {
        let cause = Cause { thread, location: NO_LOCATION };
        let mut divided = |op| stream.emit_change(cause, op);
        let Extent { address, bytes } = extent;
        self.memory.use_freed(thread, address, bytes, &mut divided, &mut self.touched);
    }

    /// Notes a loss of events, by which memory may have been given out unseen.
    pub(super) const fn lost(&mut self, stream: &Stream) {
        self.memory.lost(stream.events());
    }

    /// Returns the variables of the access under way.
    pub(super) fn touched(&self) -> &[VarId] {
        &self.touched
    }

    /// Notes that the access under way is to a watched range, by its number.
    pub(super) fn touched_as(&mut self, watch: usize) {
        for &variable in &self.touched {
            self.memory.watched(variable, watch);
        }
    }

    /// Notes that a thread has accessed an address on its own stack.
    pub(super) fn touched_own_stack(&mut self, thread: ThreadId, address: u64) {
        self.own_stacks.entry(thread).or_default().insert(address);
    }

    /// Returns whether any thread has accessed its own stack.
    pub(super) fn has_own_stacks(&self) -> bool {
        !self.own_stacks.is_empty()
    }

    /// Returns whether a thread has accessed an address on its own stack, in a frame that it was not seen to leave.
    pub(super) fn is_on_own_stack(&self, thread: ThreadId, address: u64) -> bool {
        self.own_stacks.get(&thread).is_some_and(|accessed| accessed.contains(&address))
    }

    /// Returns for each thread that has accessed its own stack a stack pointer above these places.
    pub(super) fn above_own_stacks(&self) -> Vec<(ThreadId, u64)> {
        let above = |(&thread, accessed): (&ThreadId, &BTreeSet<u64>)| {
            Some((thread, accessed.last()?.saturating_add(RED_ZONE + LARGEST)))
        };
        self.own_stacks.iter().filter_map(above).collect()
    }

    /// Ends the variables in frames that a thread has left, as it acts at a stack pointer above them: what lies there
    /// later is other data. Returns the range in which objects have ended.
    pub(super) fn leave_frames(
        &mut self,
        thread: ThreadId,
        sp: u64,
        stream: &mut Stream,
    ) -> Option<Range<u64>> {
        let accessed = self.own_stacks.get_mut(&thread)?;
        let end = sp.saturating_sub(RED_ZONE);
        let start = *accessed.first().filter(|&&first| first < end)?;
        *accessed = accessed.split_off(&end);
        let cause = Cause { thread, location: NO_LOCATION };
        let mut emit = |op| stream.emit_change(cause, op);
        self.memory.frames_left(start..end, &mut emit);
        Some(start..end)
    }

    /// Handles memory being given out, or about to be given back. Returns the range whose objects are others from now
    /// on.
    pub(super) fn allocator_call(
        &mut self,
        kind: Kind,
        AllocatorSite { role, is_complete }: AllocatorSite,
        record: &BlockRecord,
        cause: Cause,
        stream: &mut Stream,
    ) -> Option<Range<u64>> {
        let Cause { thread, location } = cause;
        let address = record.address;
        let size = if role.is_mapping() { whole_pages(record.size) } else { record.size };
        if kind == Kind::Free {
            if role.may_fail()
                && let Some(block) = self.memory.block_at(address)
            {
                self.reallocating.insert(thread, *block);
            }
            let known = (size > 0).then_some(size);
            let free = Free { thread, event: stream.events(), is_given_out_seen: is_complete };
            let mut emit = |op| stream.emit_change(cause, op);
            let range = match known {
                Some(size) if role.is_mapping() => {
                    let range = address..address.saturating_add(size);
                    self.memory.unmapped(&range, &mut emit);
                    Some(range)
                }
                Some(size) => {
                    let (origin, born) = (Origin::Allocated(location), Birth::default());
                    let block = Block { address, size, thread, origin, born };
                    self.memory.given_back(block, free, &mut emit);
                    Some(block.range())
                }
                None => self.memory.freed(address, free, &mut emit),
            };
            self.freed += u64::from(range.is_some());
            return range;
        }
        // The old block of a reallocation that has failed lives on.
        let lives_on = kind == Kind::ReallocFailure;
        let before = if role.may_fail() { self.reallocating.remove(&thread) } else { None };
        let block = match before.filter(|block| lives_on && block.address == address) {
            Some(block) => block,
            None if lives_on && size == 0 => return None,
            None => {
                let origin = if role.is_mapping() {
                    Origin::Mapped(location)
                } else {
                    Origin::Allocated(location)
                };
                let born = Birth { event: stream.events(), epoch: record.epoch };
                Block { address, size: size.max(1), thread, origin, born }
            }
        };
        self.allocated += 1;
        self.memory.allocated(block, &mut |op| stream.emit_change(cause, op));
        Some(block.range())
    }

    /// Handles a thread that is about to start: its stack is memory that was another thread's, or unused. Returns the
    /// range of the stack.
    pub(super) fn stack_begins(
        &mut self,
        child: ThreadId,
        pointer: u64,
        cause: Cause,
        stream: &mut Stream,
    ) -> Range<u64> {
        let born = Birth { event: stream.events(), epoch: 0 };
        let mut emit = |op| stream.emit_change(cause, op);
        self.memory.stack_begins(child, pointer, born, &mut emit)
    }

    /// Ends all variables and blocks of a range that is no longer mapped.
    pub(super) fn unmapped(&mut self, range: &Range<u64>, cause: Cause, stream: &mut Stream) {
        self.memory.unmapped(range, &mut |op| stream.emit_change(cause, op));
    }

    /// Returns the description of a variable, past or present.
    #[must_use]
    pub fn variable(&self, variable: VarId) -> Option<Cell<'_>> {
        self.memory.cell(variable)
    }

    /// Creates a variable for the state of a synchronisation object.
    pub(super) fn add_state(&mut self, address: u64, length: u64) -> VarId {
        self.memory.add_state(address, length)
    }

    /// Returns whether more than one thread has accessed a variable.
    #[must_use]
    pub fn is_shared(&self, variable: VarId) -> bool {
        self.memory.is_shared(variable)
    }

    /// Returns the block that an address is in now.
    #[must_use]
    pub fn block(&self, address: u64) -> Option<&Block> {
        self.memory.block(address)
    }

    /// Returns the numbers of blocks given out, and of known blocks given back.
    #[must_use]
    pub const fn calls(&self) -> (u64, u64) {
        (self.allocated, self.freed)
    }
}

/// Size in bytes of the largest access that has one place.
const LARGEST: u64 = 64;

/// Size in bytes of the memory below the stack pointer that belongs to the innermost frame (System V ABI, AMD64
/// supplement, 3.2.2).
const RED_ZONE: u64 = 128;

/// Mappings are of whole pages.
const fn whole_pages(bytes: u64) -> u64 {
    const PAGE: u64 = 4096;
    bytes.saturating_add(PAGE - 1) & !(PAGE - 1)
}

#[cfg(test)]
mod tests {
    use checker::event::LocationId;
    use plan::memory::allocators::Allocator;

    use super::*;

    const THREAD: ThreadId = ThreadId(0);
    const HERE: Cause = Cause { thread: THREAD, location: LocationId(1) };

    fn call(
        memory: &mut ProcessMemory,
        kind: Kind,
        role: Allocator,
        address: u64,
        size: u64,
    ) -> Option<Range<u64>> {
        let record = BlockRecord { address, size, ..BlockRecord::default() };
        let site = AllocatorSite { role, is_complete: true };
        memory.allocator_call(kind, site, &record, HERE, &mut Stream::default())
    }

    const fn eight_bytes(address: u64) -> Extent {
        Extent { address, bytes: 8 }
    }

    #[test]
    fn blocks_are_given_out_and_back() {
        let mut memory = ProcessMemory::default();
        let given = call(&mut memory, Kind::Alloc, Allocator::First, 0x1000, 24);
        assert_eq!(given, Some(0x1000..0x1018));
        assert_eq!(memory.block(0x1010).map(|block| block.size), Some(24));
        assert_eq!(
            call(&mut memory, Kind::Free, Allocator::First, 0x1000, 0),
            Some(0x1000..0x1018)
        );
        assert_eq!(call(&mut memory, Kind::Free, Allocator::First, 0x9000, 0), None);
        assert_eq!(memory.calls(), (1, 1), "only known blocks count");
        memory.touch(THREAD, THREAD, eight_bytes(0x1000), &mut Stream::default());
        assert!(memory.touched().is_empty(), "it was given back");
    }

    #[test]
    fn variables_end_with_their_frame() {
        let mut memory = ProcessMemory::default();
        let mut stream = Stream::default();
        let mut touch = |memory: &mut ProcessMemory, address| {
            memory.touch(THREAD, THREAD, eight_bytes(address), &mut stream);
            memory.touch(ThreadId(1), ThreadId(1), eight_bytes(address), &mut stream);
            memory.touched_own_stack(THREAD, address);
            memory.touched()[0]
        };
        let (inner, outer) = (touch(&mut memory, 0x7000), touch(&mut memory, 0x7200));
        let left = |memory: &mut ProcessMemory, sp| {
            memory.leave_frames(THREAD, sp, &mut Stream::default())
        };
        assert_eq!(left(&mut memory, 0x7000), None, "deeper in the stack");
        assert_eq!(left(&mut memory, 0x7000 + RED_ZONE), None, "in the red zone");
        assert_eq!(left(&mut memory, 0x7180), Some(0x7000..0x7100));
        assert_eq!(left(&mut memory, 0x7180), None, "only once");
        assert_ne!(touch(&mut memory, 0x7000), inner, "another frame's");
        assert_eq!(touch(&mut memory, 0x7200), outer);
    }

    #[test]
    fn a_block_survives_its_failed_reallocation() {
        let mut memory = ProcessMemory::default();
        call(&mut memory, Kind::Alloc, Allocator::First, 0x1000, 24);
        call(&mut memory, Kind::Free, Allocator::Reallocate, 0x1000, 0);
        assert_eq!(memory.block(0x1000), None);
        let again = call(&mut memory, Kind::ReallocFailure, Allocator::Reallocate, 0x1000, 0);
        assert_eq!(again, Some(0x1000..0x1018));
        assert_eq!(memory.block(0x1000).map(|block| block.size), Some(24));
    }
}
