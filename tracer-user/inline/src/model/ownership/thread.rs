//! Threads that access one word, step by step, as trampolines would.

use core::cell::Cell as Local;
use std::sync::Arc;

use super::{
    history::{Happened, History, ModelRecord, Published},
    mistakes::OwnershipMistake,
};
use crate::{
    cell::{AccessKind, Cell, CellAccess, KINDS},
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

/// State that all threads have in common: two cells and the slot of the word, which says whose it is, then for each
/// thread the number of reserved slots.
pub struct OwnershipWorld {
    pub machine: Machine,
    pub history: History,
    pub mistake: Option<OwnershipMistake>,
    pub signal: Option<Signal>,
}

/// Point of a thread's steps at which a signal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before the reservation for an access.
    Settled,
    /// Between the reservation and the publication of a record.
    Reserved,
    /// Between the reservation for a deferred access of another thread and the exchange.
    FlushReserved,
    /// Between that exchange and the publication.
    FlushChanged,
}

/// Signal.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    pub thread: usize,
    pub point: Point,
    /// Number of times that the thread has passed the point before.
    pub pass: usize,
    pub handler: &'static [Op],
    /// The handler does not return.
    pub jumps: bool,
}

/// End of an access or a record out of which a handler has jumped.
struct Jumped;

/// Number of words before those of the threads.
pub const WORDS: usize = 5;

/// Place of the slot of the word.
const SLOT: Offset = Offset(4 * WORD);

/// Slot that no thread has accessed, and that of a word that threads share.
const EMPTY: u64 = 0;
const TOUCHED: u64 = u64::MAX;

/// Place of the number of slots that a thread has reserved.
pub const fn reserved(thread: usize) -> Offset {
    Offset((WORDS + thread) as u64 * WORD)
}

const fn place(kind: AccessKind) -> Offset {
    Offset(2 * WORD * kind as u64)
}

/// The word that is accessed.
const ACCESSED: u64 = 0x7f12_3456_789a >> 3;

/// Most times that an order is read, and that a cell is changed.
const MOST: usize = 8;

/// Thread of the model. Its processor and ring have its number.
pub struct ModelThread {
    pub world: Arc<OwnershipWorld>,
    pub number: usize,
    epoch: Local<u64>,
    /// A record has begun the epoch: accesses may be deferred.
    has_begun: Local<bool>,
    passes: Local<usize>,
}

impl ModelThread {
    pub fn new(world: &Arc<OwnershipWorld>, number: usize) -> Self {
        let (epoch, has_begun, passes) = (Local::new(1), Local::new(false), Local::new(0));
        Self { world: Arc::clone(world), number, epoch, has_begun, passes }
    }

    /// Executes a thread's program.
    pub fn run(&self, ops: &[Op]) {
        self.execute(ops);
        self.world.machine.flush(self.number);
    }

    fn execute(&self, ops: &[Op]) {
        for &op in ops {
            match op {
                Op::Read(mask) => self.access(AccessKind::Read, mask),
                Op::Write(mask) => self.access(AccessKind::Write, mask),
                // One that a handler jumps out of is not recorded.
                Op::Epoch => drop(self.emit(self.order(), 0, ModelRecord::Other)),
            }
        }
    }

    /// Returns whether the signal comes at a point.
    fn comes(&self, point: Point) -> bool {
        let is_here = |signal: Signal| (signal.thread, signal.point) == (self.number, point);
        let Some(signal) = self.world.signal.filter(|&signal| is_here(signal)) else {
            return false;
        };
        let passes = self.passes.get();
        self.passes.set(passes + 1);
        passes == signal.pass
    }

    fn handle(&self) -> Result<(), Jumped> {
        let Some(signal) = self.world.signal else { return Ok(()) };
        self.world.history.interrupted(self.id());
        self.execute(signal.handler);
        if signal.jumps { Err(Jumped) } else { Ok(()) }
    }

    /// Number of the thread in cells.
    const fn id(&self) -> u64 {
        self.number as u64 + 1
    }

    fn access(&self, kind: AccessKind, mask: u64) {
        let (thread, epoch) = (self.id(), self.epoch.get());
        let (is_deferred, is_abandoned) = (false, false);
        let happened = Happened { thread, mask, kind, epoch, is_deferred, is_abandoned };
        let site = self.world.history.begin(happened);
        let access =
            CellAccess { thread, epoch, word: ACCESSED, mask, kind, site, is_special: false };
        if self.defer(&access) {
            self.world.history.deferred(site);
        } else if self.record(&access).is_err() {
            self.world.history.abandoned(site);
        }
    }

    /// Defers an access of the owner. One locked instruction.
    fn defer(&self, access: &CellAccess) -> bool {
        if !self.has_begun.get() {
            return false;
        }
        let cell = self.load_cell(access.kind);
        let Some(after) = cell.deferring(access, 1) else { return false };
        self.store(SLOT, self.id());
        if self.makes(OwnershipMistake::DeferredByStores) {
            self.store_cell(access.kind, after);
            return true;
        }
        self.exchange(access.kind, cell, after)
    }

    /// Makes a record of an access, after those of the deferred accesses before it.
    fn record(&self, access: &CellAccess) -> Result<(), Jumped> {
        let early = self.order_by(OwnershipMistake::OrderBeforeCells);
        let mut epoch = access.epoch;
        if self.is_others(self.load(SLOT)) || !self.has_begun.get() {
            self.begin_epoch(&mut epoch);
        }
        if self.is_others(self.world.machine.change_locked(self.number, SLOT, |_| self.id())) {
            self.begin_late(&mut epoch);
        }
        for _ in 0..MOST {
            let Some(left) = self.take_both(access)? else { break };
            let order = early.unwrap_or_else(|| self.order());
            let is_touched = !self.makes(OwnershipMistake::NotLookedAgain) && self.touch();
            if !is_touched && self.is_unchanged(left) {
                if self.comes(Point::Settled) {
                    self.handle()?;
                }
                return self.emit(order, epoch, ModelRecord::Access(access.site));
            }
            self.begin_late(&mut epoch);
        }
        self.world.history.lost();
        Ok(())
    }

    /// Returns whether the content of the slot is another thread's.
    const fn is_others(&self, slot: u64) -> bool {
        slot != EMPTY && slot != self.id()
    }

    /// Has the record that is made for an access begin an epoch. The one that it is of is given.
    fn begin_epoch(&self, epoch: &mut u64) {
        *epoch += 1;
        self.epoch.set(self.epoch.get() + 1);
        self.has_begun.set(self.makes(OwnershipMistake::BegunBeforePublished));
    }

    /// Does so if it has not been done.
    fn begin_late(&self, epoch: &mut u64) {
        if self.has_begun.get() && !self.makes(OwnershipMistake::LateNotBegun) {
            self.begin_epoch(epoch);
        }
    }

    /// Looks if another thread has come to the slot, which is shared then.
    fn touch(&self) -> bool {
        let slot = self.load(SLOT);
        let is_taken = self.is_others(slot) && slot != TOUCHED;
        if is_taken {
            self.world.machine.change_locked(self.number, SLOT, |_| TOUCHED);
        }
        is_taken
    }

    /// Reserves a slot and publishes a record, which begins an epoch unless it is of the thread's epoch.
    fn emit(&self, order: u64, epoch: u64, record: ModelRecord) -> Result<(), Jumped> {
        loop {
            let slot = self.reserve();
            if epoch != self.epoch.get() {
                self.epoch.set(self.epoch.get() + 1);
            }
            self.has_begun.set(true);
            if !self.comes(Point::Reserved) {
                self.publish(slot, order, record);
                return Ok(());
            }
            self.give_back();
            self.handle()?;
        }
    }

    /// Gives the last slot back before a signal, as the tracer does, and leaves the epoch.
    fn give_back(&self) {
        if !self.makes(OwnershipMistake::SlotKept) {
            self.world.machine.change(self.number, reserved(self.number), |slots| slots - 1);
        }
        if !self.makes(OwnershipMistake::EpochKept) {
            self.epoch.set(self.epoch.get() + 1);
            self.has_begun.set(false);
        }
    }

    /// Ends the ownership of other threads. Returns the first words of the cells as they are left.
    fn take_both(&self, access: &CellAccess) -> Result<Option<[u64; 2]>, Jumped> {
        let [write, read] = KINDS;
        let Some(write) = self.take(access, write)? else { return Ok(None) };
        // The first thread is the one that owns the word.
        if self.makes(OwnershipMistake::ReadsNotTaken) && self.number != 0 {
            return Ok(Some([write.owner, self.load_cell(read).owner]));
        }
        let read = self.take(access, read)?;
        Ok(read.map(|read| [write.owner, read.owner]))
    }

    /// Changes a cell as an access that makes a record does, and records the deferred access in it.
    ///
    /// The order of that record is read after the access was seen, and before the cell changes: what follows from the
    /// change is later. So does the reservation come before the change.
    fn take(&self, access: &CellAccess, kind: AccessKind) -> Result<Option<Cell>, Jumped> {
        for _ in 0..MOST {
            let early = self.order_by(OwnershipMistake::FlushOrderedBeforeLoad);
            let cell = self.load_cell(kind);
            let mut after = cell.recording(access, kind, 1);
            if after == cell {
                return Ok(Some(cell));
            }
            let Some(deferred) = cell.flushed(after) else {
                if self.exchange(kind, cell, after) {
                    return Ok(Some(after));
                }
                continue;
            };
            if self.makes(OwnershipMistake::FlushedTwice) {
                after.access = cell.access;
            }
            let late = self.makes(OwnershipMistake::FlushOrderedAfterChange);
            let mut order = early.unwrap_or_else(|| if late { 0 } else { self.order() });
            let slot = if self.makes(OwnershipMistake::FlushReservedAfterChange) {
                None
            } else {
                Some(self.reserve())
            };
            if self.comes(Point::FlushReserved) {
                self.give_back();
                self.handle()?;
                continue;
            }
            let is_taken = if self.makes(OwnershipMistake::TakenByStores) {
                self.store_cell(kind, after);
                true
            } else {
                self.exchange(kind, cell, after)
            };
            if late {
                order = self.order();
            }
            let slot = slot.unwrap_or_else(|| self.reserve());
            let comes = self.comes(Point::FlushChanged);
            if comes && self.makes(OwnershipMistake::ExchangeRewound) {
                self.give_back();
                self.handle()?;
                continue;
            }
            if is_taken || self.makes(OwnershipMistake::FailedTakeRecorded) {
                self.publish(slot, order, ModelRecord::Owned(kind, deferred));
            } else {
                self.publish(slot, order, ModelRecord::Void);
            }
            if comes {
                self.handle()?;
            }
            if is_taken {
                return Ok(Some(after));
            }
        }
        Ok(None)
    }

    /// Looks at the cells once more, after the order was read.
    fn is_unchanged(&self, left: [u64; 2]) -> bool {
        if self.makes(OwnershipMistake::NotLookedAgain) {
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
                self.publish(slot, order, ModelRecord::Owned(kind, deferred));
            }
        }
    }

    fn load_cell(&self, kind: AccessKind) -> Cell {
        let at = place(kind);
        Cell { owner: self.load(at), access: self.load(at.plus(WORD)) }
    }

    fn store_cell(&self, kind: AccessKind, Cell { owner, access }: Cell) {
        self.store(place(kind).plus(WORD), access);
        self.store(place(kind), owner);
    }

    fn exchange(&self, kind: AccessKind, before: Cell, after: Cell) -> bool {
        let pair = |cell: Cell| [cell.owner, cell.access];
        self.world.machine.exchange_pair(self.number, place(kind), pair(before), pair(after))
    }

    fn reserve(&self) -> u64 {
        self.world.machine.change(self.number, reserved(self.number), |slots| slots + 1)
    }

    fn publish(&self, slot: u64, order: u64, record: ModelRecord) {
        let (ring, epoch) = (self.number, self.epoch.get());
        self.world.history.publish(Published { ring, slot, order, epoch, record });
    }

    fn order(&self) -> u64 {
        self.world.machine.step(self.number, |state| state.clock)
    }

    fn order_by(&self, mistake: OwnershipMistake) -> Option<u64> {
        self.makes(mistake).then(|| self.order())
    }

    fn store(&self, at: Offset, value: u64) {
        self.world.machine.store(self.number, at, value);
    }

    fn load(&self, at: Offset) -> u64 {
        self.world.machine.load(self.number, at)
    }

    fn makes(&self, mistake: OwnershipMistake) -> bool {
        self.world.mistake == Some(mistake)
    }
}
