//! The reader in a model: its memory and surroundings, with mistakes.

use core::{mem::offset_of, time::Duration};
use std::sync::Arc;

use super::{
    machine::Cpu,
    mistakes::RingMistake,
    program::{COUNTER, RingWorld, Sizes},
};
use crate::{
    layout::{Clock, SLOT_BYTES, Slot, ThreadBlock},
    memory::{Offset, SharedWords, WORD},
    merge::Surroundings,
};

/// The reader's view of the machine.
#[derive(Clone)]
pub struct Reader {
    pub world: Arc<RingWorld>,
    pub cpu: Cpu,
    /// Number of steps by which the processor may read the clock later than the program says, if no barrier is there.
    pub late: u64,
}

/// Part of the shared memory that an offset is in.
enum ReaderPart {
    Field(usize, usize),
    /// First word of a slot of a thread.
    Head(usize),
    Other,
}

impl Reader {
    fn makes(&self, mistake: RingMistake) -> bool {
        self.world.mistake == Some(mistake)
    }

    fn part(&self, at: Offset) -> ReaderPart {
        let Sizes { capacity, .. } = self.world.sizes;
        for thread in 0..self.world.threads {
            let block = self.world.sizes.block(thread).0;
            let slots = block + size_of::<ThreadBlock>() as u64;
            if (block..slots).contains(&at.0) {
                return ReaderPart::Field(thread, (at.0 - block) as usize);
            }
            if (slots..slots + capacity * SLOT_BYTES).contains(&at.0)
                && (at.0 - slots).is_multiple_of(SLOT_BYTES)
            {
                return ReaderPart::Head(thread);
            }
        }
        ReaderPart::Other
    }

    fn field(&self, thread: usize, offset: usize) -> Offset {
        self.world.sizes.block(thread).plus(offset as u64)
    }

    /// Number of slots of a ring that are published, up to the first one that is not.
    fn published(&self, thread: usize, reserved: u64) -> u64 {
        let state = self.world.machine.state();
        let Sizes { capacity, .. } = self.world.sizes;
        let slots = self.field(thread, size_of::<ThreadBlock>());
        let is_published = |&number: &u64| {
            let head = state.load(self.cpu, slots.plus(number % capacity * SLOT_BYTES));
            head as u32 == crate::layout::mark(number)
        };
        let limit = state.load(self.cpu, self.field(thread, offset_of!(ThreadBlock, limit)));
        let first = limit.saturating_sub(capacity);
        (first..reserved).take_while(is_published).last().map_or(first, |last| last + 1)
    }
}

impl SharedWords for Reader {
    fn load(&self, at: Offset) -> u64 {
        const RESERVED: usize = offset_of!(ThreadBlock, reserved);
        const LOST: usize = offset_of!(ThreadBlock, lost);
        let value = self.world.machine.load(self.cpu, at);
        match self.part(at) {
            ReaderPart::Field(_, LOST) if self.makes(RingMistake::LossesNotSeen) => 0,
            ReaderPart::Field(thread, RESERVED) if self.makes(RingMistake::ReservationsNotSeen) => {
                self.published(thread, value)
            }
            ReaderPart::Head(_) if self.makes(RingMistake::MarkNotCompared) && value != 0 => {
                // The mark of the next lap.
                value + self.world.sizes.capacity
            }
            ReaderPart::Head(thread) if self.makes(RingMistake::LimitTooEarly) && value != 0 => {
                let limit = self.field(thread, offset_of!(ThreadBlock, limit));
                self.world.machine.change(self.cpu, limit, |limit| limit + 1);
                value
            }
            _ => value,
        }
    }

    fn store(&self, at: Offset, value: u64) {
        self.world.machine.step(self.cpu, |state| state.store(self.cpu, at, value, 0));
    }

    fn add(&self, at: Offset, value: u64) {
        self.world.machine.change(self.cpu, at, |before| before + value);
    }

    fn fence(&self) {}

    /// Words are read in two steps, as they are written.
    fn slot(&self, at: Offset, head: u64) -> Slot {
        let word = |state: &super::machine::MachineState, number: u64| {
            state.load(self.cpu, at.plus(number * WORD))
        };
        let machine = &self.world.machine;
        let [order, argument, sp] =
            machine.step(self.cpu, |state| [1, 2, 3].map(|number| word(state, number)));
        let [extra, frames @ ..] =
            machine.step(self.cpu, |state| [4, 5, 6, 7].map(|number| word(state, number)));
        Slot { head, order, argument, sp, extra, frames }
    }
}

impl Surroundings for Reader {
    fn now(&mut self) -> u64 {
        if self.makes(RingMistake::TimeAfterBarrier) {
            self.world.machine.step(self.cpu, |state| state.barrier());
        }
        match self.world.clock {
            Clock::Tsc => self.world.machine.step(self.cpu, |state| state.clock + self.late),
            Clock::Counter => self.world.machine.load(self.cpu, COUNTER),
        }
    }

    fn barrier(&mut self) {
        if self.makes(RingMistake::NoBarrier) || self.makes(RingMistake::TimeAfterBarrier) {
            return;
        }
        let late = self.late;
        self.world.machine.step(self.cpu, |state| {
            // The clock was read before.
            state.clock += late;
            state.barrier();
        });
    }

    fn elapsed(&mut self) -> Duration {
        Duration::ZERO
    }

    fn wake(&mut self) {}
}
