//! Threads of a model: they record releases and acquires step by step, as trampolines do, and may be interrupted by a
//! signal handler at each step.

use core::mem::offset_of;
use std::sync::Arc;

use abi::{FRAMES, Header, Kind, PairRecord, Record, SiteId};

use super::{history::History, machine::Machine, mistakes::RingMistake};
use crate::{
    encoding::encode,
    layout::{Clock, Control, Mode, SLOT_BYTES, SLOT_FRAMES, Slot, ThreadBlock},
    memory::{Offset, WORD},
};

/// Part of a thread's program.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Records a release and sets a flag.
    Post(usize),
    /// Looks at a flag. When it is set, records an acquire that follows from the flag's release; else the thread ends.
    Await(usize),
    /// Records a release while a signal handler comes at a stage of it.
    Interrupted(Stage, &'static [Op]),
}

/// Stage of recording, after which a signal handler comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The order is read.
    Ordered,
    /// The slots are reserved, or half of the work of it is done by mistake.
    Reserved,
    /// Nothing but the mark is missing.
    Written,
}

/// Size of the model's rings and of its records in slots.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub capacity: u64,
    /// Number of return addresses of a record.
    pub frames: usize,
}

/// Site of all records.
pub const SITE: SiteId = SiteId(0);

impl Sizes {
    /// Number of slots of a record.
    const fn slots(self) -> u64 {
        if self.frames > SLOT_FRAMES { 2 } else { 1 }
    }

    /// Place of a thread's block. The control page comes first.
    pub const fn block(self, thread: usize) -> Offset {
        let size = size_of::<ThreadBlock>() as u64 + self.capacity * SLOT_BYTES;
        Offset(SLOT_BYTES + thread as u64 * size)
    }

    /// Place of a flag, behind the blocks.
    pub const fn flag(self, threads: usize, flag: usize) -> Offset {
        self.block(threads).plus(flag as u64 * WORD)
    }
}

/// State that all threads have in common.
pub struct RingWorld {
    pub machine: Machine,
    pub history: History,
    pub sizes: Sizes,
    pub threads: usize,
    pub clock: Clock,
    pub mistake: Option<RingMistake>,
}

/// Place of the counter of [`Clock::Counter`], in the control page.
pub const COUNTER: Offset = Offset(offset_of!(Control, counter) as u64);

/// Thread of the model.
pub struct RingProgram {
    pub world: Arc<RingWorld>,
    pub thread: usize,
}

/// The thread goes no further.
struct Stopped;

impl RingProgram {
    /// Executes a thread's program to its end, or to where it would wait.
    pub fn run(&self, ops: &[Op]) {
        let _ = self.ops(ops);
        self.world.machine.flush(self.thread);
    }

    fn ops(&self, ops: &[Op]) -> Result<(), Stopped> {
        ops.iter().try_for_each(|&op| self.op(op))
    }

    fn op(&self, op: Op) -> Result<(), Stopped> {
        let number = self.world.history.new_record();
        match op {
            Op::Post(flag) => {
                let early = self.makes(RingMistake::ActionBeforeRecord);
                if early {
                    self.store(self.flag(flag), number);
                }
                self.record(number, None, None)?;
                if !early {
                    self.store(self.flag(flag), number);
                }
            }
            Op::Await(flag) => {
                let early = self.makes(RingMistake::OrderBeforeAcquire).then(|| self.order());
                let first = self.load(self.flag(flag));
                if first == 0 {
                    return Err(Stopped);
                }
                self.world.history.follows(first, number);
                self.record(number, early, None)?;
            }
            Op::Interrupted(stage, handler) => {
                self.record(number, None, Some((stage, handler)))?;
            }
        }
        Ok(())
    }

    /// Records an event, as `layout` says.
    fn record(
        &self,
        number: u64,
        order: Option<u64>,
        handler: Option<(Stage, &[Op])>,
    ) -> Result<(), Stopped> {
        let comes = |stage| match handler {
            Some((at, ops)) if at == stage => self.ops(ops),
            _ => Ok(()),
        };
        let late = self.makes(RingMistake::OrderAfterReserve);
        let mut order = if late { 0 } else { order.unwrap_or_else(|| self.order()) };
        comes(Stage::Ordered)?;
        let slots = self.world.sizes.slots();
        let first = if self.makes(RingMistake::ReserveInTwoSteps) {
            let first = self.load(self.field(offset_of!(ThreadBlock, reserved)));
            comes(Stage::Reserved)?;
            self.store(self.field(offset_of!(ThreadBlock, reserved)), first + slots);
            first
        } else {
            let first = self.change(offset_of!(ThreadBlock, reserved), |n| n + slots);
            comes(Stage::Reserved)?;
            first
        };
        if late {
            order = self.order();
        }
        if !self.has_room(first, slots)? {
            return Ok(());
        }
        self.write(first, number, order, || comes(Stage::Written))
    }

    /// Waits for room, and returns whether there is any; if not, the event is lost.
    fn has_room(&self, first: u64, slots: u64) -> Result<bool, Stopped> {
        if self.makes(RingMistake::LimitNotAwaited) {
            return Ok(true);
        }
        for _ in 0..3 {
            if first + slots <= self.load(self.field(offset_of!(ThreadBlock, limit))) {
                return Ok(true);
            }
            if self.load(self.field(offset_of!(ThreadBlock, mode))) != Mode::Drop as u64 {
                continue;
            }
            if self.makes(RingMistake::ReservationKept) {
                self.lose(first);
                return Ok(false);
            }
            let reserved = offset_of!(ThreadBlock, reserved);
            let mine = first + slots;
            if self.change(reserved, |n| if n == mine { first } else { n }) == mine {
                self.lose(first);
                return Ok(false);
            }
        }
        // It waits for longer than the model goes on.
        self.world.history.stopped(slots);
        Err(Stopped)
    }

    fn lose(&self, slot: u64) {
        self.world.history.lost(self.thread, slot);
        self.change(offset_of!(ThreadBlock, lost), |lost| lost + 1);
    }

    fn write(
        &self,
        first: u64,
        number: u64,
        order: u64,
        before_mark: impl FnOnce() -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let header = Header { kind: Kind::Init as u32, site: SITE, ..Header::default() };
        let mut frames = [0; FRAMES];
        frames[..self.world.sizes.frames].fill(number);
        let record = PairRecord {
            header,
            argument: number,
            sp: number,
            other: number,
            frames,
            ..PairRecord::default()
        };
        let record = Record::Pair(Kind::Init, record);
        let encoded = encode(&record, order).unwrap();
        let mut slots: Vec<(u64, Slot)> = encoded.numbered(first).rev().collect();
        if self.makes(RingMistake::ContinuationAfterFirst) {
            slots.reverse();
        }
        let (last, earlier) = slots.split_last().unwrap();
        for &(number, slot) in earlier {
            self.write_words(number, slot);
            self.write_head(number, slot);
        }
        let &(last, slot) = last;
        if self.makes(RingMistake::PublishBeforeWrite) {
            self.write_head(last, slot);
            self.write_words(last, slot);
            before_mark()?;
        } else {
            self.write_words(last, slot);
            before_mark()?;
            self.write_head(last, slot);
        }
        self.world.history.published(self.thread, first, number);
        Ok(())
    }

    /// Writes all words but the first: in two steps, which are enough to see a half of them.
    fn write_words(&self, number: u64, slot: Slot) {
        let at = self.slot(number);
        let Slot { order, argument, sp, extra, frames: [a, b, c], .. } = slot;
        let words = [order, argument, sp, extra, a, b, c];
        let (near, far) = words.split_at(3);
        for (place, words) in [(1, near), (4, far)] {
            self.world.machine.store_all(self.thread, at.plus(place * WORD), words);
        }
    }

    fn write_head(&self, number: u64, slot: Slot) {
        self.store(self.slot(number), slot.head);
    }

    fn order(&self) -> u64 {
        let machine = &self.world.machine;
        match self.world.clock {
            Clock::Tsc => machine.step(self.thread, |state| state.clock),
            Clock::Counter => machine.change_locked(self.thread, COUNTER, |order| order + 1),
        }
    }

    fn makes(&self, mistake: RingMistake) -> bool {
        self.world.mistake == Some(mistake)
    }

    fn load(&self, at: Offset) -> u64 {
        self.world.machine.load(self.thread, at)
    }

    fn store(&self, at: Offset, value: u64) {
        self.world.machine.store(self.thread, at, value);
    }

    fn change(&self, field: usize, change: impl FnOnce(u64) -> u64) -> u64 {
        self.world.machine.change(self.thread, self.field(field), change)
    }

    fn field(&self, offset: usize) -> Offset {
        self.world.sizes.block(self.thread).plus(offset as u64)
    }

    fn slot(&self, number: u64) -> Offset {
        let Sizes { capacity, .. } = self.world.sizes;
        self.field(size_of::<ThreadBlock>()).plus(number % capacity * SLOT_BYTES)
    }

    fn flag(&self, flag: usize) -> Offset {
        self.world.sizes.flag(self.world.threads, flag)
    }
}
