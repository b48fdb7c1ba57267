//! Memory as the checker's variables. The bytes that were touched are divided into cells, each a variable for one
//! lifetime of its memory; `blocks` maps addresses to blocks of memory. Records, locks and names are unknown here.
//!
//! Two accesses are of one variable where they share bytes, and only there: when something touches a part of a cell,
//! the cell is split, and both parts keep its past. Untouched memory has no cells, and one access makes one cell,
//! however large: splitting comes later, if ever.
//!
//! A free is an access to all cells of the block. A cell ends when its memory is given out again or unmapped; until
//! then an access of a thread that did not free it is a use after the free. Where memory may be given out
//! unseen, a cell ends when it is freed. Its id is reused if only one thread has ever touched it: such a cell has no
//! dependencies, and no finding can name it. So a program that allocates and frees unshared memory needs no more ids
//! than it has had cells at a time.

mod blocks;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, ops::Range};

use checker::event::{EventNumber, Op, ThreadId, VarId};

use self::blocks::Blocks;
pub use self::blocks::{Birth, Block, Origin};

/// Number of cells that are found without a search.
const RECENT: usize = 1 << 15;

/// In place of a thread: none, and more than one.
const NOBODY: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

/// In place of the number of a block that has ended: the cell has not, or was in none.
const LIVES: u32 = u32::MAX;
const NOWHERE: u32 = u32::MAX - 1;

/// In place of the number of a watched range.
const UNWATCHED: u32 = u32::MAX;

/// Description of a variable, past or present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    /// Process address of its first byte.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// The block that it is a part of.
    pub block: Option<&'a Block>,
    /// The number of the watched range that it was accessed by.
    pub watch: Option<usize>,
}

/// Act by which memory is given back.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    /// The thread that frees it.
    pub thread: ThreadId,
    /// Position of the free in the stream.
    pub event: EventNumber,
    /// Set if it is seen when the memory is given out again.
    pub is_given_out_seen: bool,
}

/// A cell that has not ended, where cells are ordered by their addresses.
#[derive(Clone, Copy, Debug)]
struct Live {
    length: u64,
    variable: VarId,
}

#[derive(Clone, Copy, Debug)]
struct VariableState {
    address: u64,
    length: u64,
    /// The thread that has touched it, `NOBODY` or `SEVERAL`.
    toucher: u32,
    /// The block that it ended with, `LIVES` or `NOWHERE`.
    block: u32,
    watch: u32,
    /// The thread that has freed its memory, or `NOBODY`.
    freed_by: u32,
}

/// A cell that was touched as a whole not long ago.
#[derive(Clone, Copy, Debug)]
struct Recent {
    address: u64,
    /// 0 for an empty entry.
    length: u64,
    variable: VarId,
}

const NONE: Recent = Recent { address: 0, length: 0, variable: VarId(0) };

/// The memory of a process.
#[derive(Debug)]
pub struct Memory {
    cells: BTreeMap<u64, Live>,
    /// By variable.
    states: Vec<VariableState>,
    unused: Vec<VarId>,
    blocks: Blocks,
    recent: Box<[Recent]>,
    /// The first event since the last loss of events.
    complete_since: EventNumber,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            cells: BTreeMap::new(),
            states: Vec::new(),
            unused: Vec::new(),
            blocks: Blocks::default(),
            recent: vec![NONE; RECENT].into_boxed_slice(),
            complete_since: 0,
        }
    }
}

impl Memory {
    /// Adds to `variables` the variables that together are exactly the `size` bytes at `address`, for an access by
    /// `thread`. `sink` gets the operations that must precede the access.
    ///
    /// Memory that was given back, and not given out again, has no variables: an access there is made by the allocator,
    /// which keeps its lists there, or is a [use after the free](Self::use_freed).
    pub fn touch(
        &mut self,
        thread: ThreadId,
        address: u64,
        size: u64,
        sink: &mut impl FnMut(Op),
        variables: &mut Vec<VarId>,
    ) {
        let recent = self.recent[place(address)];
        if recent.length == size && recent.address == address && size > 0 {
            self.states[recent.variable.index()].touched_by(thread);
            variables.push(recent.variable);
            return;
        }
        if self.blocks.is_freed(address) {
            return;
        }
        // Most often it is one cell, which is just not recent.
        if let Some(&Live { length, variable }) = self.cells.get(&address)
            && length == size
        {
            self.states[variable.index()].touched_by(thread);
            variables.push(variable);
            self.recent[place(address)] = Recent { address, length, variable };
            return;
        }
        let end = address.saturating_add(size);
        self.split_at(address, sink);
        self.split_at(end, sink);
        let first = variables.len();
        let mut at = address;
        while at < end {
            let next = self.cells.range(at..end).next().map(|(&start, &live)| (start, live));
            let (length, variable) = match next {
                Some((start, live)) if start == at => (live.length, live.variable),
                Some((start, _)) => (start - at, self.new_cell(at, start - at)),
                None => (end - at, self.new_cell(at, end - at)),
            };
            self.states[variable.index()].touched_by(thread);
            variables.push(variable);
            at += length;
        }
        if let &[variable] = &variables[first..] {
            self.recent[place(address)] = Recent { address, length: size, variable };
        }
    }

    /// Adds the variables of memory that was freed, and not given out again, for an access of the program's code: those
    /// that it had before, and none for the thread that has freed it.
    pub fn use_freed(
        &mut self,
        thread: ThreadId,
        address: u64,
        size: u64,
        sink: &mut impl FnMut(Op),
        variables: &mut Vec<VarId>,
    ) {
        let block = self.blocks.freed_around(address);
        if block.is_none_or(|block| block.born.event < self.complete_since) {
            return;
        }
        let end = address.saturating_add(size);
        self.split_at(address, sink);
        self.split_at(end, sink);
        for live in self.cells.range(address..end).map(|(_, live)| live) {
            let state = &mut self.states[live.variable.index()];
            if ![thread.0, NOBODY].contains(&state.freed_by) {
                state.touched_by(thread);
                variables.push(live.variable);
            }
        }
    }

    /// Notes an access to the variable by way of a watched range.
    pub fn watched(&mut self, variable: VarId, watch: usize) {
        if let Some(state) = self.states.get_mut(variable.index()) {
            state.watch = watch as u32;
        }
    }

    /// Adds a block that was given out: earlier blocks and cells there have ended, also if their end was not seen.
    pub fn allocated(&mut self, block: Block, sink: &mut impl FnMut(Op)) {
        self.forget(block.range(), sink);
        self.blocks.add(block);
    }

    /// Handles the free of the block that begins at an address. Returns its range.
    ///
    /// Of a block that is not known the size is not either. Its cells live on until their memory is given out again.
    pub fn freed(
        &mut self,
        address: u64,
        free: Free,
        sink: &mut impl FnMut(Op),
    ) -> Option<Range<u64>> {
        let Some(&block) = self.blocks.beginning_at(address) else {
            // It may be freed already: by another thread, or by the function that has called this one.
            let freed = self.blocks.freed_around(address);
            let freed = freed.filter(|block| block.address == address).map(Block::range);
            self.free_cells(freed?, free, sink);
            return None;
        };
        self.given_back(block, free, sink);
        Some(block.range())
    }

    /// Handles the free of memory, whatever is known of it.
    pub fn given_back(&mut self, block: Block, free: Free, sink: &mut impl FnMut(Op)) {
        self.free_cells(block.range(), free, sink);
        let born = Birth { event: free.event, ..block.born };
        self.blocks.give_back(Block { born, ..block });
    }

    /// Notes that events were lost, the last of them before the next one: memory may have been given out unseen.
    pub const fn lost(&mut self, next: EventNumber) {
        self.complete_since = next;
    }

    /// Emits the free of each cell in a range, unless this thread has freed it already.
    fn free_cells(&mut self, range: Range<u64>, free: Free, sink: &mut impl FnMut(Op)) {
        let Free { thread, is_given_out_seen, .. } = free;
        if !is_given_out_seen {
            return self.forget(range, sink);
        }
        self.split_at(range.start, sink);
        self.split_at(range.end, sink);
        for (&start, live) in self.cells.range(range) {
            let state = &mut self.states[live.variable.index()];
            if state.freed_by == thread.0 {
                continue;
            }
            state.touched_by(thread);
            state.freed_by = thread.0;
            sink(Op::Free(live.variable));
            remove_recent(&mut self.recent, start);
        }
    }

    /// Ends all cells of a range of a stack whose frames were left.
    pub fn frames_left(&mut self, range: Range<u64>, sink: &mut impl FnMut(Op)) {
        self.forget(range, sink);
    }

    /// Ends all cells and blocks of a range that is no longer mapped.
    pub fn unmapped(&mut self, range: &Range<u64>, sink: &mut impl FnMut(Op)) {
        self.forget(range.clone(), sink);
        self.blocks.cut_out(range);
    }

    /// Adds the stack of a thread that is about to start: below its thread pointer, in the memory that was mapped or
    /// allocated for it. Where that was not seen, it has the default size of a stack. Earlier cells there have ended:
    /// the C library reuses the stacks of threads that have ended, which is not seen otherwise.
    ///
    /// Returns the range that is assumed to be the stack.
    pub fn stack_begins(
        &mut self,
        thread: ThreadId,
        pointer: u64,
        born: Birth,
        sink: &mut impl FnMut(Op),
    ) -> Range<u64> {
        let range = self.blocks.around_stack(pointer);
        self.forget(range.clone(), sink);
        self.blocks.add_stack(thread, range.clone(), born);
        range
    }

    /// Returns the description of a variable, past or present.
    #[must_use]
    pub fn cell(&self, variable: VarId) -> Option<Cell<'_>> {
        let state = self.states.get(variable.index())?;
        let block = match state.block {
            LIVES if state.freed_by != NOBODY => self.blocks.freed_around(state.address),
            LIVES => self.blocks.around(state.address),
            NOWHERE => None,
            ended => self.blocks.ended(ended),
        };
        let watch = (state.watch != UNWATCHED).then_some(state.watch as usize);
        Some(Cell { address: state.address, length: state.length, block, watch })
    }

    /// Returns whether more than one thread has accessed a variable: a finding may name it.
    #[must_use]
    pub fn is_shared(&self, variable: VarId) -> bool {
        self.states.get(variable.index()).is_some_and(|state| state.toucher == SEVERAL)
    }

    /// Returns the innermost block that an address is in now.
    #[must_use]
    pub fn block(&self, address: u64) -> Option<&Block> {
        self.blocks.around(address)
    }

    /// Returns the allocated block that begins at an address.
    #[must_use]
    pub fn block_at(&self, address: u64) -> Option<&Block> {
        self.blocks.beginning_at(address)
    }

    /// Returns the number of ids given out.
    #[must_use]
    pub fn variable_count(&self) -> usize {
        self.states.len()
    }

    /// Creates a variable for the state of a synchronisation object. It is no cell: code accesses it by calls alone.
    pub fn add_state(&mut self, address: u64, length: u64) -> VarId {
        self.states.push(VariableState {
            address,
            length,
            toucher: SEVERAL,
            block: NOWHERE,
            watch: UNWATCHED,
            freed_by: NOBODY,
        });
        VarId((self.states.len() - 1) as u32)
    }

    fn new_cell(&mut self, address: u64, length: u64) -> VarId {
        let state = VariableState {
            address,
            length,
            toucher: NOBODY,
            block: LIVES,
            watch: UNWATCHED,
            freed_by: NOBODY,
        };
        self.insert(address, state)
    }

    fn insert(&mut self, address: u64, state: VariableState) -> VarId {
        let variable = match self.unused.pop() {
            Some(variable) => {
                self.states[variable.index()] = state;
                variable
            }
            None => {
                self.states.push(state);
                VarId((self.states.len() - 1) as u32)
            }
        };
        self.cells.insert(address, Live { length: state.length, variable });
        variable
    }

    /// Returns the cell that begins before an address and ends behind it.
    fn across(&self, address: u64) -> Option<(u64, Live)> {
        let (&start, &live) = self.cells.range(..address).next_back()?;
        (start + live.length > address).then_some((start, live))
    }

    /// Splits the cell that an address is inside of.
    fn split_at(&mut self, address: u64, sink: &mut impl FnMut(Op)) {
        let Some((start, Live { length, variable })) = self.across(address) else { return };
        self.resize(start, address - start);
        let state = self.states[variable.index()];
        let part = self
            .insert(address, VariableState { address, length: start + length - address, ..state });
        sink(Op::SplitVariable { from: variable, to: part });
    }

    /// Gives a cell another length.
    fn resize(&mut self, start: u64, length: u64) {
        let Some(live) = self.cells.get_mut(&start) else { return };
        live.length = length;
        self.states[live.variable.index()].length = length;
        self.not_recent(start);
    }

    fn not_recent(&mut self, start: u64) {
        remove_recent(&mut self.recent, start);
    }

    /// Ends the lives of all cells in a range. A cell that reaches beyond the range keeps its part outside.
    fn forget(&mut self, range: Range<u64>, sink: &mut impl FnMut(Op)) {
        if range.is_empty() {
            return;
        }
        if let Some((start, Live { length, .. })) = self.across(range.start) {
            if start + length > range.end {
                self.split_at(range.end, sink);
            }
            self.resize(start, range.start - start);
        }
        // Of a cell across the end it is the first part that ends; the rest keeps the id.
        if let Some((start, Live { length, variable })) = self.across(range.end) {
            self.cells.remove(&start);
            self.not_recent(start);
            let (address, length) = (range.end, start + length - range.end);
            self.cells.insert(address, Live { length, variable });
            let state = &mut self.states[variable.index()];
            (state.address, state.length) = (address, length);
        }
        let Self { cells, states, unused, blocks, recent, .. } = self;
        for (start, Live { variable, .. }) in cells.extract_if(range, |_, _| true) {
            remove_recent(recent, start);
            sink(Op::Alloc(variable));
            let state = &mut states[variable.index()];
            if state.toucher == SEVERAL {
                let is_freed = state.freed_by != NOBODY;
                state.block = blocks.end_of(start, is_freed).unwrap_or(NOWHERE);
            } else {
                state.block = NOWHERE;
                unused.push(variable);
            }
        }
    }
}

/// Removes the cell that begins at an address from the recent ones.
#[inline]
fn remove_recent(recent: &mut [Recent], start: u64) {
    let recent = &mut recent[place(start)];
    if recent.address == start {
        *recent = NONE;
    }
}

impl VariableState {
    #[inline]
    fn touched_by(&mut self, thread: ThreadId) {
        if self.toucher != thread.0 {
            self.toucher = if self.toucher == NOBODY { thread.0 } else { SEVERAL };
        }
    }
}

/// Returns the index among the recent cells for a cell that begins at an address.
#[inline]
const fn place(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49) as usize % RECENT
}
