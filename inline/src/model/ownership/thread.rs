//! Threads that access one word, step by step, as trampolines would.

use core::cell::Cell as Local;
use std::sync::Arc;

use super::{
    history::{Happened, History, Published, Record},
    interleavings::Mistake,
};
use crate::{
    cell::{Access, Cell, KINDS, Kind},
    memory::{Offset, WORD},
    model::machine::Machine,
};

/// Step of a thread's program.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Accesses to bytes of the word.
    Read(u64),
    Write(u64),
    /// A record of another kind: the epoch ends.
    Epoch,
}

/// State that all threads have in common: two cells, then for each thread the number of reserved slots.
pub struct World {
    pub machine: Machine,
    pub history: History,
    pub mistake: Option<Mistake>,
}

/// Number of words before those of the threads.
pub const CELL_WORDS: usize = 4;

/// Place of the number of slots that a thread has reserved.
pub const fn reserved(thread: usize) -> Offset {
    Offset((CELL_WORDS + thread) as u64 * WORD)
}

const fn place(kind: Kind) -> Offset {
    Offset(2 * WORD * kind as u64)
}

/// The word that is accessed.
const ACCESSED: u64 = 0x7f12_3456_789a >> 3;

/// Most times that an order is read, and that a cell is changed.
const MOST: usize = 8;

/// Thread of the model. Its processor and ring have its number.
pub struct Thread {
    pub world: Arc<World>,
    pub number: usize,
    pub epoch: Local<u64>,
}

impl Thread {
    pub fn new(world: &Arc<World>, number: usize) -> Self {
        Self { world: Arc::clone(world), number, epoch: Local::new(1) }
    }

    /// Executes a thread's program.
    pub fn run(&self, ops: &[Op]) {
        for &op in ops {
            match op {
                Op::Read(mask) => self.access(Kind::Read, mask),
                Op::Write(mask) => self.access(Kind::Write, mask),
                Op::Epoch => self.epoch.set(self.epoch.get() + 1),
            }
        }
        self.world.machine.flush(self.number);
    }

    /// Number of the thread in cells.
    const fn id(&self) -> u64 {
        self.number as u64 + 1
    }

    fn access(&self, kind: Kind, mask: u64) {
        let (thread, epoch) = (self.id(), self.epoch.get());
        let happened = Happened { thread, mask, kind, epoch, is_deferred: false };
        let site = self.world.history.begin(happened);
        let access = Access { thread, epoch, word: ACCESSED, mask, kind, site, is_special: false };
        if self.defer(&access) {
            self.world.history.deferred(site);
        } else {
            self.record(&access);
        }
    }

    /// Defers an access of the owner. One locked instruction.
    fn defer(&self, access: &Access) -> bool {
        let cell = self.load_cell(access.kind);
        let Some(after) = cell.deferring(access, 1) else { return false };
        if self.makes(Mistake::DeferredByStores) {
            self.store_cell(access.kind, after);
            return true;
        }
        self.exchange(access.kind, cell, after)
    }

    /// Makes a record of an access, after those of the deferred accesses before it.
    fn record(&self, access: &Access) {
        let early = self.order_by(Mistake::OrderBeforeCells);
        for _ in 0..MOST {
            let Some(left) = self.take_both(access) else { break };
            let order = early.unwrap_or_else(|| self.order());
            if self.is_unchanged(left) {
                let slot = self.reserve();
                return self.publish(slot, order, Record::Access(access.site));
            }
        }
        self.world.history.lost();
    }

    /// Ends the ownership of other threads. Returns the first words of the cells as they are left.
    fn take_both(&self, access: &Access) -> Option<[u64; 2]> {
        let [write, read] = KINDS;
        let write = self.take(access, write)?;
        // The first thread is the one that owns the word.
        if self.makes(Mistake::ReadsNotTaken) && self.number != 0 {
            return Some([write.owner, self.load_cell(read).owner]);
        }
        Some([write.owner, self.take(access, read)?.owner])
    }

    /// Changes a cell as an access that makes a record does, and records the deferred access in it.
    ///
    /// The order of that record is read after the access was seen, and before the cell changes: what follows from the
    /// change is later. So does the reservation come before the change.
    fn take(&self, access: &Access, kind: Kind) -> Option<Cell> {
        for _ in 0..MOST {
            let early = self.order_by(Mistake::FlushOrderedBeforeLoad);
            let cell = self.load_cell(kind);
            let mut after = cell.recording(access, kind, 1);
            if after == cell {
                return Some(cell);
            }
            let Some(deferred) = cell.flushed(after) else {
                if self.exchange(kind, cell, after) {
                    return Some(after);
                }
                continue;
            };
            if self.makes(Mistake::FlushedTwice) {
                after.access = cell.access;
            }
            let late = self.makes(Mistake::FlushOrderedAfterChange);
            let mut order = early.unwrap_or_else(|| if late { 0 } else { self.order() });
            let slot = if self.makes(Mistake::FlushReservedAfterChange) {
                None
            } else {
                Some(self.reserve())
            };
            let is_taken = if self.makes(Mistake::TakenByStores) {
                self.store_cell(kind, after);
                true
            } else {
                self.exchange(kind, cell, after)
            };
            if late {
                order = self.order();
            }
            let slot = slot.unwrap_or_else(|| self.reserve());
            if is_taken || self.makes(Mistake::FailedTakeRecorded) {
                self.publish(slot, order, Record::Owned(kind, deferred));
            } else {
                self.publish(slot, order, Record::Void);
            }
            if is_taken {
                return Some(after);
            }
        }
        None
    }

    /// Looks at the cells once more, after the order was read.
    fn is_unchanged(&self, left: [u64; 2]) -> bool {
        if self.makes(Mistake::NotLookedAgain) {
            return true;
        }
        KINDS.into_iter().zip(left).all(|(kind, left)| self.load(place(kind)) == left)
    }

    /// Records what is deferred at the end of a model.
    pub fn flush_all(&self) {
        for kind in KINDS {
            let cell = self.load_cell(kind);
            if let Some(deferred) = cell.flushed(Cell::default()) {
                let (order, slot) = (self.order(), self.reserve());
                self.publish(slot, order, Record::Owned(kind, deferred));
            }
        }
    }

    fn load_cell(&self, kind: Kind) -> Cell {
        let at = place(kind);
        Cell { owner: self.load(at), access: self.load(at.plus(WORD)) }
    }

    fn store_cell(&self, kind: Kind, Cell { owner, access }: Cell) {
        self.world.machine.store(self.number, place(kind).plus(WORD), access);
        self.world.machine.store(self.number, place(kind), owner);
    }

    fn exchange(&self, kind: Kind, before: Cell, after: Cell) -> bool {
        let pair = |cell: Cell| [cell.owner, cell.access];
        self.world.machine.exchange_pair(self.number, place(kind), pair(before), pair(after))
    }

    fn reserve(&self) -> u64 {
        self.world.machine.change(self.number, reserved(self.number), |slots| slots + 1)
    }

    fn publish(&self, slot: u64, order: u64, record: Record) {
        self.world.history.publish(Published { ring: self.number, slot, order, record });
    }

    fn order(&self) -> u64 {
        self.world.machine.step(self.number, |state| state.clock)
    }

    fn order_by(&self, mistake: Mistake) -> Option<u64> {
        self.makes(mistake).then(|| self.order())
    }

    fn load(&self, at: Offset) -> u64 {
        self.world.machine.load(self.number, at)
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.world.mistake == Some(mistake)
    }
}
