//! Reservations that a signal interrupts: a thread gives its slots back before it receives a signal in the code of a
//! record, and reserves slots again when it goes on there, or publishes a slot that it has written. So a handler that
//! jumps out of the probe leaves no unpublished slot behind.

use core::{mem::offset_of, ops::Range};

use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

use super::frame::RSP;
use crate::{
    encoding::{OWNED, VOID},
    layout::{SLOT_BYTES, ThreadBlock, head},
    memory::{Offset, SharedWords},
};

/// Size of a pushed word in bytes.
const WORD: u64 = 8;

/// Processor's numbers of registers.
const RAX: usize = 0;
pub(super) const RDX: usize = 2;
pub(super) const RSI: usize = 6;
const R12: usize = 12;
const R13: usize = 13;

/// Registers that the routine `wait` pushes in its order, by the processor's numbers: all but the first
/// [`WAIT_CHANGES`] only before it sleeps.
pub(super) const WAIT_PUSHES: [u8; 10] = [0, 1, 3, 11, 2, 6, 7, 8, 9, 10];

/// Number of registers that `wait` pushes at once.
pub(super) const WAIT_CHANGES: usize = 4;

/// Thread that is about to receive a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// General registers by the processor's numbers.
    pub general: [u64; 16],
    /// Address of the next instruction.
    pub place: u64,
}

/// Code of a record, between the reservation of its slots and their publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Addresses of its instructions.
    pub(super) code: Range<u64>,
    /// Number of slots.
    pub(super) slots: u64,
    /// Register with the number of the first one.
    pub(super) number: usize,
    pub(super) resume: Resume<u64>,
}

/// Address at which a thread goes on that gets a signal while it has reserved slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume<Address> {
    /// From there on it reserves slots anew: it has given its slots back.
    Restart(Address),
    /// Its slot is published: the record of a deferred access, which is in no cell any more if `rax` and `rdx` are
    /// `r12` and `r13`, and void otherwise.
    Publish(Address),
}

impl<Address> Resume<Address> {
    pub fn map<Other, E>(
        self,
        map: impl FnOnce(Address) -> Result<Other, E>,
    ) -> Result<Resume<Other>, E> {
        Ok(match self {
            Self::Restart(address) => Resume::Restart(map(address)?),
            Self::Publish(address) => Resume::Publish(map(address)?),
        })
    }
}

impl Reserved {
    /// Has a thread in this code, with its block at a place of the shared memory, publish its slot, or give its slots
    /// back and reserve them again when it goes on. Returns false where it has none.
    ///
    /// With its slots goes the epoch that their record would have begun: no record begins the one that follows, so that
    /// no access is deferred in it.
    pub fn give_back(
        &self,
        thread: &mut Interrupted,
        block: Offset,
        memory: &impl SharedWords,
    ) -> bool {
        let field = |offset: usize| block.plus(offset as u64);
        let load = |offset: usize| memory.load(field(offset));
        let first = thread.general[self.number];
        // Else the event is lost already.
        if load(offset_of!(ThreadBlock, reserved)) != first.wrapping_add(self.slots) {
            return false;
        }
        let (slots, own) =
            (load(offset_of!(ThreadBlock, slots)), load(offset_of!(ThreadBlock, own)));
        let distance = slots.wrapping_sub(own);
        let mask = load(offset_of!(ThreadBlock, mask));
        let slot = |number: u64| {
            let slot = distance.wrapping_add((number & mask).wrapping_mul(SLOT_BYTES));
            Offset(block.0.wrapping_add(slot))
        };
        let restart = match self.resume {
            Resume::Restart(restart) => restart,
            Resume::Publish(published) => {
                let [rax, rdx, r12, r13] =
                    [RAX, RDX, R12, R13].map(|number| thread.general[number]);
                let site = if (rax, rdx) == (r12, r13) { OWNED } else { VOID };
                memory.store(slot(first), head(first, site));
                thread.place = published;
                return true;
            }
        };
        // Slots that are published already would continue the next record that has one slot.
        for further in 1..self.slots {
            memory.store(slot(first.wrapping_add(further)), 0);
        }
        memory.store(field(offset_of!(ThreadBlock, reserved)), first);
        memory.add(field(offset_of!(ThreadBlock, epoch)), 1);
        memory.store(field(offset_of!(ThreadBlock, epoch_sp)), 0);
        thread.place = restart;
        true
    }
}

/// Thread that is out of the routine that waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The thread behind its call.
    pub thread: Interrupted,
    /// It has counted itself as waiting ([`Control::waiting`](crate::layout::Control::waiting)).
    pub is_counted: bool,
}

/// Has a thread that is about to receive a signal leave the wait for room, with its caller behind that, and give back
/// the slots that are reserved at that address. Returns whether it had counted itself as waiting
/// ([`Caller::is_counted`]); `None` if it neither waits nor has slots.
pub fn give_up(
    thread: &mut Interrupted,
    caller: Option<Caller>,
    reserved: impl FnOnce(u64) -> Option<Reserved>,
    block: Offset,
    memory: &impl SharedWords,
) -> Option<bool> {
    let waits = caller.is_some();
    let Caller { thread: mut left, is_counted } =
        caller.unwrap_or(Caller { thread: *thread, is_counted: false });
    let reserved = reserved(left.place);
    let slots = match &reserved {
        Some(reserved) => reserved.give_back(&mut left, block, memory),
        None => false,
    };
    // Where no slot is reserved yet, the caller finds no room, and waits when it reserves.
    (slots || waits && reserved.is_none()).then(|| {
        *thread = left;
        is_counted
    })
}

/// The routine `wait`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    /// Its instructions, each with the number of words that are on the stack before it.
    instructions: Vec<(u64, usize)>,
    /// Addresses of the instructions before which a thread counts as waiting.
    counted: Range<u64>,
}

impl Waits {
    /// Instructions of code that begins behind a call, and whose jumps go to where as many words are on the stack.
    pub fn of(code: &[u8], address: u64) -> Self {
        let (mut words, mut counted) = (1, 0..0);
        let mut instructions = Vec::new();
        for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
            instructions.push((instruction.ip(), words));
            let is_locked = instruction.has_lock_prefix();
            match instruction.mnemonic() {
                Mnemonic::Push => words += 1,
                Mnemonic::Pop => words -= 1,
                Mnemonic::Add if instruction.op0_register() == Register::RSP => {
                    words -= (instruction.immediate(1) / WORD) as usize;
                }
                Mnemonic::Inc if is_locked => counted.start = instruction.next_ip(),
                Mnemonic::Dec if is_locked => counted.end = instruction.next_ip(),
                _ => {}
            }
        }
        Self { instructions, counted }
    }

    /// Has a thread in this code go back to its caller, with the registers that it had there. `read` reads a word of
    /// its stack.
    pub fn leave(&self, thread: &Interrupted, read: impl Fn(u64) -> Option<u64>) -> Option<Caller> {
        let found = self.instructions.binary_search_by_key(&thread.place, |&(at, _)| at).ok()?;
        let (_, words) = self.instructions[found];
        let mut left = *thread;
        let top = thread.general[usize::from(RSP)].wrapping_add(words as u64 * WORD);
        let word = |number: usize| read(top.wrapping_sub((number as u64 + 1) * WORD));
        left.general[usize::from(RSP)] = top;
        left.place = word(0)?;
        for (number, &register) in (1..words).zip(&WAIT_PUSHES) {
            left.general[usize::from(register)] = word(number)?;
        }
        Some(Caller { thread: left, is_counted: self.counted.contains(&thread.place) })
    }
}
