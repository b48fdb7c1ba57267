//! Arena: the shared file's control page, table of words, and the blocks and rings of threads. A ring whose thread has
//! ended is used again once it has been read to its end, so that memory is bounded by the threads that run at once.

use core::{
    mem::{offset_of, size_of},
    ops::Range,
};

use abi::DELAYS_BYTES;
use thiserror::Error;

use crate::{
    cell::{self, MAX_OWNERS},
    layout::{
        Control, HASH, Mode, PENDING_BYTES, PendingCall, SLOT_BYTES, STACK_MARK_BITS, STACK_MARKS,
        STACK_PIECE_BITS, STACK_PIECE_COUNT_BITS, STACK_RANGE_BITS, STACKS_BYTES, ThreadBlock,
    },
    memory::{Offset, ProcessAddress, SharedWords, WORD},
};

/// Size of a [`ThreadBlock`] in bytes.
const BLOCK: u64 = size_of::<ThreadBlock>() as u64;

/// Size of a page in bytes.
const PAGE: u64 = 4096;

/// Offset of the [`Control`] structure.
pub const CONTROL: Offset = Offset(0);

/// Offset of the block of muted threads: the threads of child processes that are not followed.
pub const MUTED: Offset = Offset(PAGE / 2);

/// Smallest and largest number of slots of a ring.
const SLOTS: (u64, u64) = (16, 1 << 20);

/// Sizes of the parts of the shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaLayout {
    /// Size of the table of words in bytes, or 0.
    pub words: u64,
    /// Size of the cells of words that threads own in bytes. With 0 no access is deferred.
    pub cells: u64,
    /// Number of slots of each ring: a power of two from 16 to 2²⁰; others are rounded up or bounded.
    pub slots: u64,
    /// Most threads that have a ring at once; with cells, at most [`MAX_OWNERS`].
    pub threads: u64,
}

impl ArenaLayout {
    /// Size of the file in bytes. It is sparse: what no thread has used takes no memory.
    #[must_use]
    pub const fn file_size(&self) -> u64 {
        self.first_segment() + self.threads * self.segment()
    }

    /// Number of slots of each ring.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        let slots = if self.slots < SLOTS.0 { SLOTS.0 } else { self.slots };
        if slots > SLOTS.1 { SLOTS.1 } else { slots.next_power_of_two() }
    }

    /// Offset of the table of words.
    #[must_use]
    pub const fn words(&self) -> Offset {
        Offset(PAGE)
    }

    /// Offset of the cells.
    #[must_use]
    pub const fn cells(&self) -> Offset {
        Offset(PAGE + self.words.next_multiple_of(PAGE))
    }

    /// Offset of the table of stacks.
    #[must_use]
    pub const fn stacks(&self) -> Offset {
        self.cells().plus(self.cells.next_multiple_of(PAGE))
    }

    /// Offset of the table of places of delays.
    #[must_use]
    pub const fn delays(&self) -> Offset {
        self.stacks().plus(STACKS_BYTES.next_multiple_of(PAGE))
    }

    /// Offset of the first thread's block: the size of all that threads have in common.
    #[must_use]
    pub const fn first_segment(&self) -> u64 {
        self.delays().0 + DELAYS_BYTES.next_multiple_of(PAGE)
    }

    /// Bytes from a thread's block to the next one's.
    const fn segment(&self) -> u64 {
        (BLOCK + self.capacity() * SLOT_BYTES + PENDING_BYTES).next_multiple_of(PAGE)
    }
}

/// All rings of the file are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no room for the events of another thread beside {threads} others")]
pub struct ArenaFull {
    /// Number of threads that have a ring.
    pub threads: u64,
}

/// Properties of a thread that gets a ring. Addresses are in the traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStart {
    /// The thread's id.
    pub tid: u32,
    /// First [`ThreadBlock::epoch`] of the thread.
    pub epoch: u64,
    /// The thread's stack: lowest address, and the address after it; both 0 if it is unknown.
    pub stack: (ProcessAddress, ProcessAddress),
    /// Behaviour of its probes.
    pub mode: Mode,
}

/// Place of a thread's block and ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Offset of the [`ThreadBlock`].
    pub block: Offset,
    /// Number of slots of the ring, which follow the block. Behind them are the pending calls.
    pub capacity: u64,
    /// Number of the first slot that a thread writes: behind the slots of the segment's thread before.
    pub first: u64,
}

impl Segment {
    /// Number of the first slot that a new thread may not write before others were read.
    #[must_use]
    pub const fn limit(self) -> u64 {
        self.first.wrapping_add(self.capacity)
    }

    /// Offset of the first slot.
    #[must_use]
    pub const fn slots(self) -> Offset {
        self.block.plus(BLOCK)
    }

    /// Offset of the first [`PendingCall`].
    const fn pending(self) -> Offset {
        self.slots().plus(self.capacity * SLOT_BYTES)
    }
}

/// Segments of the shared file: in use, and free.
#[derive(Debug)]
pub struct Arena {
    layout: ArenaLayout,
    base: ProcessAddress,
    /// Number of segments that were ever used.
    used: u64,
    free: Vec<Segment>,
    /// Threads have cells, if the file does.
    defers: bool,
}

impl Arena {
    /// Prepares a new file, of which all words are 0 and which the traced process has mapped at `base`.
    #[must_use]
    pub fn new(layout: ArenaLayout, base: ProcessAddress, memory: &impl SharedWords) -> Self {
        let arena = Self { layout, base, used: 0, free: Vec::new(), defers: true };
        let (low, high) = (ProcessAddress(0), ProcessAddress(u64::MAX));
        let muted = ThreadStart { tid: 0, epoch: 0, stack: (low, high), mode: Mode::Muted };
        // It has no room, so that nothing is written even where the mode is not looked at first.
        arena.write_block(Segment { block: MUTED, capacity: 0, first: 0 }, muted, memory);
        arena
    }

    /// Sizes of the file's parts.
    #[must_use]
    pub const fn layout(&self) -> &ArenaLayout {
        &self.layout
    }

    /// Address in the traced process of a place in the file.
    #[must_use]
    pub const fn address(&self, at: Offset) -> ProcessAddress {
        at.in_process(self.base)
    }

    /// Gives a thread a block and a ring. Before the thread executes a probe, its GS base is set to the block.
    ///
    /// # Errors
    ///
    /// When all rings are in use: then the thread uses the block [`MUTED`].
    pub fn start(
        &mut self,
        thread: ThreadStart,
        memory: &impl SharedWords,
    ) -> Result<Segment, ArenaFull> {
        let segment = match self.free.pop() {
            Some(segment) => segment,
            None if self.used < self.most() => {
                let block = Offset(self.layout.first_segment() + self.used * self.layout.segment());
                self.used += 1;
                Segment { block, capacity: self.layout.capacity(), first: 0 }
            }
            None => return Err(ArenaFull { threads: self.used }),
        };
        self.write_block(segment, thread, memory);
        self.note_stack(thread, memory);
        Ok(segment)
    }

    /// Has no thread defer accesses, neither present nor future ones. To be called before any probe was executed.
    pub fn defer_nothing(&mut self, memory: &impl SharedWords) {
        self.defers = false;
        for block in self.blocks() {
            memory.store(block.plus(offset_of!(ThreadBlock, cells) as u64), 0);
        }
    }

    /// Has no thread record anything, nor wait, as far as it has a ring.
    pub fn mute_all(&self, memory: &impl SharedWords) {
        for block in self.blocks() {
            memory.store(block.plus(offset_of!(ThreadBlock, mode) as u64), Mode::Muted as u64);
            memory.store(block.plus(offset_of!(ThreadBlock, limit) as u64), 0);
        }
    }

    /// Returns the places of all blocks that threads have, or have had.
    pub fn blocks(&self) -> impl Iterator<Item = Offset> {
        let (first, length) = (self.layout.first_segment(), self.layout.segment());
        (0..self.used).map(move |number| Offset(first + number * length))
    }

    const fn most(&self) -> u64 {
        let threads = self.layout.threads;
        if self.layout.cells != 0 && threads > MAX_OWNERS { MAX_OWNERS } else { threads }
    }

    /// Number of a segment's block in cells.
    const fn owner(&self, Segment { block, .. }: Segment) -> u64 {
        1 + (block.0 - self.layout.first_segment()) / self.layout.segment()
    }

    /// Notes where the top of a thread's stack lies.
    fn note_stack(&self, thread: ThreadStart, memory: &impl SharedWords) {
        let Some(last) = thread.stack.1.0.checked_sub(1) else { return };
        let piece = last >> STACK_PIECE_BITS;
        for piece in [piece, piece.wrapping_sub(1)] {
            let bit = piece & ((1 << STACK_PIECE_COUNT_BITS) - 1);
            let word = self.layout.stacks().plus(bit / 64 * WORD);
            memory.store(word, memory.load(word) | 1 << (bit % 64));
        }
    }

    /// Marks a range of addresses as shared if a stack of a thread lies around there: from then on accesses of the
    /// stack's own thread make records. Returns whether one does.
    pub fn share_stack(&self, range: Range<u64>, memory: &impl SharedWords) -> bool {
        let stacks = self.layout.stacks();
        let bit = (range.start >> STACK_PIECE_BITS) & ((1 << STACK_PIECE_COUNT_BITS) - 1);
        if memory.load(stacks.plus(bit / 64 * WORD)) >> (bit % 64) & 1 == 0 {
            return false;
        }
        for number in range.start >> STACK_RANGE_BITS..=(range.end - 1) >> STACK_RANGE_BITS {
            let mark = number.wrapping_mul(HASH) >> (64 - STACK_MARK_BITS);
            memory.store(stacks.plus(STACK_MARKS + mark * WORD), number);
        }
        true
    }

    /// Takes back the ring of a thread that has ended, after its last record was read
    /// ([`Ring::for_next`](crate::ring::Ring::for_next)).
    pub fn release(&mut self, segment: Segment) {
        self.free.push(segment);
    }

    /// Writes a thread's block.
    fn write_block(&self, segment: Segment, thread: ThreadStart, memory: &impl SharedWords) {
        let Segment { block, capacity, first } = segment;
        let field = |offset: usize, value: u64| memory.store(block.plus(offset as u64), value);
        field(offset_of!(ThreadBlock, reserved), first);
        field(offset_of!(ThreadBlock, limit), segment.limit());
        field(offset_of!(ThreadBlock, own), self.address(block).0);
        field(offset_of!(ThreadBlock, slots), self.address(segment.slots()).0);
        field(offset_of!(ThreadBlock, mask), capacity.saturating_sub(1));
        field(offset_of!(ThreadBlock, lost), 0);
        field(offset_of!(ThreadBlock, waits), 0);
        field(offset_of!(ThreadBlock, mode), thread.mode as u64);
        field(offset_of!(ThreadBlock, epoch), thread.epoch);
        field(offset_of!(ThreadBlock, incarnation), thread.epoch);
        field(offset_of!(ThreadBlock, stack_low), thread.stack.0.0);
        field(offset_of!(ThreadBlock, stack_high), thread.stack.1.0);
        field(offset_of!(ThreadBlock, control), self.address(CONTROL).0);
        field(offset_of!(ThreadBlock, words), self.address(self.layout.words()).0);
        field(offset_of!(ThreadBlock, tid), thread.tid.into());
        field(offset_of!(ThreadBlock, stacks), self.address(self.layout.stacks()).0);
        field(offset_of!(ThreadBlock, tag), ThreadBlock::tag_of(thread.tid));
        field(offset_of!(ThreadBlock, epoch_sp), 0);
        field(offset_of!(ThreadBlock, delayed), 0);
        if capacity != 0 {
            if self.layout.cells != 0 && self.defers {
                field(offset_of!(ThreadBlock, cells), self.address(self.layout.cells()).0);
            }
            field(offset_of!(ThreadBlock, owner), self.owner(segment) << cell::WORD_BITS);
            field(offset_of!(ThreadBlock, since), thread.epoch << (u64::BITS - cell::EPOCH_BITS));
            field(offset_of!(ThreadBlock, pending), self.address(segment.pending()).0);
            for call in (0..PENDING_BYTES).step_by(size_of::<PendingCall>()) {
                memory.store(segment.pending().plus(call), 0);
            }
        }
    }
}

const _: () = {
    assert!(size_of::<Control>() as u64 <= MUTED.0);
    assert!(MUTED.0 + size_of::<ThreadBlock>() as u64 <= PAGE);
    assert!((size_of::<ThreadBlock>() as u64).is_multiple_of(WORD));
};

#[cfg(test)]
mod tests;
