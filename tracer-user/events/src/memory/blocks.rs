//! Maps addresses to blocks, with the location and the thread that allocated or mapped them. Blocks nest: an
//! allocator's blocks are in memory that it has mapped, and so are stacks. Accesses to blocks are unknown here.

use std::{collections::BTreeMap, ops::Range};

use checker::event::{EventNumber, LocationId, ThreadId};

/// Assumed size of a stack whose mapping is not known, in bytes: Linux's default.
const STACK: u64 = 8 << 20;

/// Origin of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An allocator gave it out at this place in the code.
    Allocated(LocationId),
    /// Mapped at this place in the code.
    Mapped(LocationId),
    /// Stack of the thread.
    Stack,
}

/// A block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Process address of the first byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// The thread that asked for it; of a stack, the thread that has it.
    pub thread: ThreadId,
    /// Origin.
    pub origin: Origin,
    /// Point at which it was given out; of memory that was given back, that point.
    pub born: Birth,
}

/// Point at which a block was given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Birth {
    /// The next event.
    pub event: EventNumber,
    /// The epoch that then began of the thread that has it ([`RegionRecord::epoch`](abi::RegionRecord::epoch)); 0
    /// where all that this thread does is later.
    pub epoch: u64,
}

impl Block {
    /// Returns the range of its addresses.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.size)
    }
}

/// Blocks that do not overlap, by their addresses.
#[derive(Debug, Default)]
struct Layer(BTreeMap<u64, Block>);

impl Layer {
    fn around(&self, address: u64) -> Option<&Block> {
        let (_, block) = self.0.range(..=address).next_back()?;
        block.range().contains(&address).then_some(block)
    }

    /// Takes a range out; what blocks have outside of it stays when they can be `divided`.
    fn cut_out(&mut self, range: &Range<u64>, divided: bool) {
        while let Some((&start, &block)) = self.0.range(..range.end).next_back() {
            let end = block.range().end;
            if end <= range.start {
                return;
            }
            self.0.remove(&start);
            if divided && end > range.end {
                let rest = Block { address: range.end, size: end - range.end, ..block };
                self.0.insert(rest.address, rest);
            }
            if divided && start < range.start {
                self.0.insert(start, Block { size: range.start - start, ..block });
            }
            if start <= range.start {
                return;
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    stacks: Layer,
    allocated: Layer,
    mapped: Layer,
    /// Blocks that were given back and whose memory was not given out again: it is the allocator's.
    freed: Layer,
    /// Blocks that have ended and that a finding may name.
    ended: Vec<Block>,
}

impl Blocks {
    /// Returns the innermost block around an address.
    pub(super) fn around(&self, address: u64) -> Option<&Block> {
        let layers = [&self.stacks, &self.allocated, &self.mapped];
        layers.into_iter().find_map(|layer| layer.around(address))
    }

    /// Returns the freed block around an address.
    pub(super) fn freed_around(&self, address: u64) -> Option<&Block> {
        self.freed.around(address)
    }

    /// Returns the allocated block that begins at an address.
    pub(super) fn beginning_at(&self, address: u64) -> Option<&Block> {
        self.allocated.0.get(&address)
    }

    /// Adds a block, in place of all that was there on its level or inside of it.
    pub(super) fn add(&mut self, block: Block) {
        self.stacks.cut_out(&block.range(), false);
        self.allocated.cut_out(&block.range(), false);
        self.freed.cut_out(&block.range(), true);
        if matches!(block.origin, Origin::Mapped(_)) {
            self.mapped.cut_out(&block.range(), true);
            self.mapped.0.insert(block.address, block);
        } else {
            self.allocated.0.insert(block.address, block);
        }
    }

    pub(super) fn add_stack(&mut self, thread: ThreadId, range: Range<u64>, born: Birth) {
        self.stacks.cut_out(&range, false);
        self.freed.cut_out(&range, true);
        let (address, size) = (range.start, range.end - range.start);
        let origin = Origin::Stack;
        self.stacks.0.insert(address, Block { address, size, thread, origin, born });
    }

    /// This range of memory is an allocator's.
    pub(super) fn give_back(&mut self, block: Block) {
        self.stacks.cut_out(&block.range(), false);
        self.allocated.cut_out(&block.range(), false);
        self.freed.cut_out(&block.range(), true);
        self.freed.0.insert(block.address, block);
    }

    /// Returns whether an address is in a block that was given back.
    pub(super) fn is_freed(&self, address: u64) -> bool {
        self.freed_around(address).is_some()
    }

    /// Removes all blocks from a range.
    pub(super) fn cut_out(&mut self, range: &Range<u64>) {
        self.stacks.cut_out(range, false);
        self.allocated.cut_out(range, false);
        self.mapped.cut_out(range, true);
        self.freed.cut_out(range, true);
    }

    /// Returns the memory for the stack of a thread with this thread pointer.
    pub(super) fn around_stack(&self, pointer: u64) -> Range<u64> {
        let layers = [&self.allocated, &self.mapped];
        let block = layers.into_iter().find_map(|layer| layer.around(pointer));
        block.map_or(pointer.saturating_sub(STACK)..pointer.saturating_add(1), Block::range)
    }

    /// Stores the block around an address for lookups after its end, and returns its number.
    pub(super) fn end_of(&mut self, address: u64, is_freed: bool) -> Option<u32> {
        let block = if is_freed { self.freed.around(address) } else { self.around(address) };
        let block = *block?;
        if self.ended.last() != Some(&block) {
            self.ended.push(block);
        }
        Some((self.ended.len() - 1) as u32)
    }

    pub(super) fn ended(&self, number: u32) -> Option<&Block> {
        self.ended.get(number as usize)
    }
}
