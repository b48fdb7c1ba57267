//! Common code: what trampolines call. Emitted once for each area of trampolines.
//!
//! [`Entries`] says which registers each routine takes and changes; all change the flags. None uses the stack above
//! its arguments.

use core::{mem::offset_of, ops::Range};

use abi::FRAMES;
use iced_x86::{
    BlockEncoderOptions, IcedError,
    code_asm::{
        AsmMemoryOperand, CodeAssembler, CodeLabel, dword_ptr, eax, edx, esi, ptr, qword_ptr, r8,
        r8d, r9, r9d, r10, r10d, r11, rax, rbx, rcx, rdi, rdx, rsi, rsp,
    },
};

use super::{
    EmitError,
    assembler::{Emitted, block, place, wide},
    calls, cells, delay,
    reserved::{Caller, Interrupted, RDX, Reserved, Resume, WAIT_CHANGES, WAIT_PUSHES, Waits},
    stacks, words,
};
use crate::{
    encoding::{CONTINUATION, MAX_SLOTS},
    layout::{Clock, Control, Mode, PENDING_TABLE_BYTES, SLOT_BYTES, SLOT_FRAMES, SP_BITS, Slot},
};

/// Common code of the trampolines of an area, with the addresses of its routines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonCode {
    /// Address of the first byte.
    pub address: u64,
    /// Machine code.
    pub code: Vec<u8>,
    pub(super) entries: Entries<u64>,
    /// Loads by pointers of the program, and the addresses at which the code goes on without them.
    loads: Vec<(u64, u64)>,
    /// Code with reserved slots.
    reserved: Vec<Reserved>,
    waits: Waits,
}

/// Labels of code with reserved slots: see [`Reserved`].
pub(super) struct ReservedLabels {
    pub parts: Vec<(Range<CodeLabel>, Resume<CodeLabel>)>,
    pub slots: u64,
    pub number: usize,
}

/// Defines the routines from a list of their names.
macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Routines. Those that make records take the site in `eax`, the argument in `rcx`, the extra word in `rdx`,
        /// the stack pointer in `rsi`, the first frame in `rdi`, and the frame pointer from which the other frames are
        /// found in `r9`. They change these, and `r8` and `r10`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct Entries<Address> {
            $($(#[$doc])* pub $name: Address,)*
        }

        impl<Address> Entries<Address> {
            fn with(mut new: impl FnMut() -> Address) -> Self {
                Self { $($name: new(),)* }
            }

            fn map<Other, E>(
                self,
                mut map: impl FnMut(Address) -> Result<Other, E>,
            ) -> Result<Entries<Other>, E> {
                Ok(Entries { $($name: map(self.$name)?,)* })
            }
        }
    };
}

entries! {
    /// Makes a record of another kind than an access: the epoch ends.
    record,
    /// Variant of `record` for an acquire.
    record_fenced,
    /// Makes a record of an access, with the order in `r11`, which is of the epoch in `r10`.
    access,
    /// Waits for room for the reserved slots from the number in `rdx` up to that in `r10`, or loses the event, if
    /// there are any: then `r10` is 0.
    wait,
    /// Waits for room for the record of an access that has reserved no slot yet: its order and value are read behind
    /// the wait. Changes nothing.
    room,
    /// Reads the order to `rax`. Changes `rdx`.
    order,
    /// Stores a call: its stack pointer in `rsi`, cookie in `rdx`, argument in `rcx`, first word in `r9`. Changes
    /// `rax`, `r8` and `r10`.
    call_insert,
    /// Finds the call with the stack pointer in `rsi`: its entry in `r10`, or 0. Changes `r8`.
    call_find,
    /// Records the return of the call with the stack pointer in `rsi`, if there is one and its result in `rax` counts.
    /// The frame pointer is in `r9`. Changes what a record changes.
    call_end,
    /// Stores an allocation, as `call_insert` does, with a second word in `rdi`.
    alloc_insert,
    /// Records an allocation, as `call_end` does.
    alloc_end,
    /// Records the access to the address in `rcx`, to the bytes `esi` of one word with the slot `rdx`, which is no
    /// repetition. The access word is in `rax`; the site and the stack pointer are above the return address. Changes
    /// `rax`, `rcx`, `rdx` and `rsi`.
    access_one,
    /// Records the access to the address in `rcx` if it is no repetition. The access word is in `rax`; the rest is as
    /// for `access_one`.
    access_many,
    /// Changes the cells at `rbx` of the word in `r11`, which has the thread's number above it, as the record of an
    /// access does that covers the bytes `r12` of writes and `r13` of reads, as they are in cells; both are 1 for an
    /// access to several words. `r12` and `r13` become the first words of the cells. `r8d` is reduced by the number of
    /// failed attempts; at 0 it ends. Changes `rax`, `rdx` and `r9`.
    cells_take,
    /// Changes the cells of all words from `r12` up to `r13`, of an access to them; a sum of their first words becomes
    /// `r15`. `r8d` is as for `cells_take`. Changes `rax`, `rdx`, `r9`, `r10`, `r11` and `r14`.
    cells_take_all,
    /// Computes that sum of the words as they are. Changes `rax`, `rdx`, `r10` and `r14`.
    cells_add_all,
    /// Delays the thread at the place in `rcx`, if it may; the control structure is in `rdx`. Changes what a record
    /// changes.
    delay,
    /// Compares the access to the own stack from the address in `rcx` to that in `rax` with the marks: the zero flag
    /// is set if another thread was seen there. Changes `rax`, `rdx` and `rsi`.
    stack_is_shared,
}

/// Number of looks at the limit before a thread sleeps: the reader gives back many slots at once, which takes longer
/// where it is slower than the thread.
const SPINS: i32 = 32;

/// Longest sleep, in nanoseconds: the reader's death is noticed after it.
const SLEEP: i32 = 10_000_000;

/// Bits of a robust futex with the id of its owner (`FUTEX_TID_MASK` in `include/uapi/linux/futex.h`). The kernel
/// clears them when the owner dies.
pub(super) const TID: i32 = 0x3fff_ffff;

/// Number of the system call `futex`; its operation `FUTEX_WAIT` is 0.
pub(super) const FUTEX: i32 = 202;

/// Largest distance of a saved frame pointer from the stack pointer, in bytes, as in the BPF programs.
const MAX_FRAME: i32 = 1 << 20;

impl CommonCode {
    /// Emits the code to an address.
    ///
    /// # Errors
    ///
    /// No error is known: the code has a form at each address.
    pub fn emit(address: u64, clock: Clock) -> Result<Self, EmitError> {
        Self::assemble(address, clock).map_err(|source| EmitError::Encode { address, source })
    }

    fn assemble(address: u64, clock: Clock) -> Result<Self, IcedError> {
        let mut code = CodeAssembler::new(64)?;
        let mut labels = Entries::with(|| code.create_label());
        let records = record(&mut code, clock, &mut labels)?;
        room(&mut code, &mut labels)?;
        wait(&mut code, &mut labels)?;
        place(&mut code, &mut labels.order)?;
        order(&mut code, clock)?;
        code.ret()?;
        let mut alloc_find = code.create_label();
        calls::find(&mut code, &mut labels.call_find, 0)?;
        calls::find(&mut code, &mut alloc_find, PENDING_TABLE_BYTES)?;
        calls::insert(&mut code, &mut labels.call_insert, 0)?;
        calls::insert(&mut code, &mut labels.alloc_insert, PENDING_TABLE_BYTES)?;
        calls::call_end(&mut code, &mut labels)?;
        calls::alloc_end(&mut code, &mut labels, alloc_find)?;
        let mut loads = Vec::new();
        let owned = cells::routines(&mut code, &mut labels)?;
        words::access_one(&mut code, &mut labels, &mut loads)?;
        words::access_many(&mut code, &mut labels, &mut loads)?;
        delay::routine(&mut code, &mut labels.delay)?;
        stacks::is_shared(&mut code, &mut labels.stack_is_shared)?;
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let assembled = code.assemble_options(address, options)?;
        let entries = labels.map(|label| assembled.label_ip(&label))?;
        let mut both = Vec::new();
        for (load, resume) in loads {
            both.push((assembled.label_ip(&load)?, assembled.label_ip(&resume)?));
        }
        let mut reserved = Vec::new();
        for ReservedLabels { parts, slots, number } in records.into_iter().chain([owned]) {
            for (part, resume) in parts {
                let code = assembled.label_ip(&part.start)?..assembled.label_ip(&part.end)?;
                let resume = resume.map(|label| assembled.label_ip(&label))?;
                reserved.push(Reserved { code, slots, number, resume });
            }
        }
        let code = assembled.inner.code_buffer;
        let part = (entries.wait - address) as usize..(entries.order - address) as usize;
        let waits = Waits::of(&code[part], entries.wait);
        Ok(Self { address, code, entries, loads: both, reserved, waits })
    }

    /// Returns a thread as it is after it has left the wait for room that it is in, which it may call again; `None`
    /// where it is elsewhere. `read` reads a word of its stack.
    #[must_use]
    pub fn leave_wait(
        &self,
        thread: &Interrupted,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<Caller> {
        self.waits.leave(thread, read)
    }

    /// Returns the code of a record that an address is in, if slots are reserved there.
    #[must_use]
    pub fn reserved(&self, address: u64) -> Option<&Reserved> {
        self.reserved.iter().find(|reserved| reserved.code.contains(&address))
    }

    /// Returns where a thread goes on that gets `SIGSEGV` or `SIGBUS` in the code, as
    /// [`Trampoline::fault`](super::Trampoline::fault) does. The value of the access is not recorded then.
    #[must_use]
    pub fn fault(&self, address: u64) -> Option<u64> {
        self.loads.iter().find(|&&(load, _)| load == address).map(|&(_, resume)| resume)
    }
}

/// Reads the order to `rax`; changes `rdx`.
fn order(code: &mut CodeAssembler, clock: Clock) -> Emitted {
    match clock {
        Clock::Tsc => {
            code.rdtsc()?;
            code.shl(rdx, 32)?;
            code.or(rax, rdx)
        }
        Clock::Counter => {
            code.mov(rax, block!(control))?;
            code.mov(edx, 1)?;
            code.lock().xadd(qword_ptr(rax + offset_of!(Control, counter)), rdx)?;
            code.mov(rax, rdx)
        }
    }
}

/// Field of the slot at `r10`.
macro_rules! slot {
    ($field:ident) => {
        ::iced_x86::code_asm::qword_ptr(
            ::iced_x86::code_asm::r10 + ::core::mem::offset_of!($crate::layout::Slot, $field),
        )
    };
}
pub(super) use slot;

/// Sets `r10`, the number of a slot, to its address.
pub(super) fn slot_address(code: &mut CodeAssembler) -> Emitted {
    code.and(r10, block!(mask))?;
    code.shl(r10, SLOT_BYTES.trailing_zeros())?;
    code.add(r10, block!(slots))
}

/// The routines that make records of one slot, or of two where there are more return addresses.
fn record(
    code: &mut CodeAssembler,
    clock: Clock,
    labels: &mut Entries<CodeLabel>,
) -> Emitted<[ReservedLabels; 2]> {
    let [mut walk, mut many] = [(); 2].map(|()| code.create_label());
    place(code, &mut labels.access)?;
    code.push(r10)?;
    code.push(rdx)?;
    code.mov(r8d, eax)?;
    code.mov(rax, r11)?;
    code.jmp(walk)?;
    place(code, &mut labels.record_fenced)?;
    code.lfence()?;
    place(code, &mut labels.record)?;
    // Of no epoch: the record begins one.
    code.push(0)?;
    code.push(rdx)?;
    code.mov(r8d, eax)?;
    order(code, clock)?;
    place(code, &mut walk)?;
    code.shl(r8, 32)?;
    push_frames(code, many)?;
    let near = publish(code, labels, NEAR)?;
    place(code, &mut many)?;
    Ok([near, publish(code, labels, ALL)?])
}

/// Number of return addresses after the first in the first slot of a record.
const NEAR: usize = SLOT_FRAMES - 1;

/// Number of return addresses after the first in a record.
const ALL: usize = FRAMES - 1;

/// Pushes return addresses along the chain of frame pointers in `r9`, from the stack pointer in `rsi` on: as many as
/// the first slot has room for beside the first one, 0 where there are fewer; or all that a record has, and jumps to
/// `many`. Changes `rdx`, `r9` and `r10`.
///
/// The stack from the thread's own stack pointer up to its end is mapped, so that nothing faults.
fn push_frames(code: &mut CodeAssembler, many: CodeLabel) -> Emitted {
    let ends = [(); ALL].map(|()| code.create_label());
    code.mov(r10, rsi)?;
    code.cmp(r10, block!(stack_low))?;
    code.jb(ends[0])?;
    for end in ends {
        code.mov(rdx, r9)?;
        code.sub(rdx, r10)?;
        code.cmp(rdx, MAX_FRAME)?;
        code.ja(end)?;
        code.test(r9d, 7)?;
        code.jne(end)?;
        code.lea(r10, qword_ptr(r9 + 16))?;
        code.cmp(r10, block!(stack_high))?;
        code.ja(end)?;
        code.push(qword_ptr(r9 + 8))?;
        code.mov(r9, qword_ptr(r9))?;
    }
    let [mut none, mut one, mut two, mut three, mut four] = ends;
    code.jmp(many)?;
    place(code, &mut three)?;
    code.push(0)?;
    place(code, &mut four)?;
    code.push(0)?;
    code.jmp(many)?;
    place(code, &mut none)?;
    code.push(0)?;
    place(code, &mut one)?;
    code.push(0)?;
    place(code, &mut two)
}

/// Reserves, writes and publishes the slots of a record with so many return addresses on the stack, above them the
/// extra word and the epoch that it is of, and the order in `rax`, the site in the upper half of `r8`; then returns. If
/// that is not the thread's epoch, as with records of signal handlers that have interrupted the code, the record begins
/// one.
///
/// What has been pushed stays on the stack, and the registers that count stay as they are, until the record is
/// published: it may begin anew from the reservation on ([`Reserved`]).
fn publish(
    code: &mut CodeAssembler,
    labels: &Entries<CodeLabel>,
    pushed: usize,
) -> Emitted<ReservedLabels> {
    let [mut write, mut full, mut restart, mut reserved, mut published, mut again] =
        [(); 6].map(|()| code.create_label());
    let [mut begins, mut begun, mut same] = [(); 3].map(|()| code.create_label());
    let slots = if pushed > NEAR { 2 } else { 1 };
    place(code, &mut restart)?;
    code.mov(edx, slots)?;
    code.xadd(block!(reserved), rdx)?;
    place(code, &mut reserved)?;
    code.lea(r10, qword_ptr(rdx + slots))?;
    code.cmp(r10, block!(limit))?;
    code.ja(full)?;
    place(code, &mut write)?;
    let copy = |code: &mut CodeAssembler, word: usize, to: AsmMemoryOperand| -> Emitted {
        code.mov(r9, qword_ptr(rsp + 8 * word))?;
        code.mov(to, r9)
    };
    if pushed > NEAR {
        // The words 1 to 3.
        code.lea(r10, qword_ptr(rdx + 1))?;
        slot_address(code)?;
        copy(code, 0, slot!(sp))?;
        copy(code, 1, slot!(argument))?;
        copy(code, 2, slot!(order))?;
        // The mark, and all bits of the site.
        code.lea(r9d, qword_ptr(rdx + 2))?;
        code.not(r9d)?;
        code.not(r9)?;
        code.mov(slot!(head), r9)?;
    }
    code.mov(r10, rdx)?;
    slot_address(code)?;
    for frame in 1..SLOT_FRAMES {
        let to = qword_ptr(r10 + (offset_of!(Slot, frames) + 8 * frame));
        copy(code, pushed - frame, to)?;
    }
    copy(code, pushed, slot!(extra))?;
    code.mov(slot!(order), rax)?;
    code.mov(slot!(argument), rcx)?;
    code.mov(slot!(frames), rdi)?;
    // `epoch_sp` is set behind the reservation: accesses are deferred in epochs that a published record has begun.
    code.mov(r9, qword_ptr(rsp + 8 * (pushed + 1)))?;
    code.cmp(r9, block!(epoch))?;
    code.jne(begins)?;
    code.cmp(block!(epoch_sp), 0)?;
    code.jne(same)?;
    code.jmp(begun)?;
    place(code, &mut begins)?;
    code.inc(block!(epoch))?;
    place(code, &mut begun)?;
    code.mov(block!(epoch_sp), rsi)?;
    place(code, &mut same)?;
    code.mov(r9, block!(epoch))?;
    code.shl(r9, SP_BITS)?;
    code.or(r9, rsi)?;
    code.mov(slot!(sp), r9)?;
    code.lea(r9d, qword_ptr(rdx + 1))?;
    code.or(r9, r8)?;
    code.mov(slot!(head), r9)?;
    place(code, &mut published)?;
    code.lea(rsp, qword_ptr(rsp + 8 * (pushed + 2)))?;
    code.ret()?;
    place(code, &mut full)?;
    code.call(labels.wait)?;
    code.test(r10, r10)?;
    code.jne(write)?;
    place(code, &mut again)?;
    // No record begins the next epoch.
    code.inc(block!(epoch))?;
    code.mov(block!(epoch_sp), 0)?;
    code.lea(rsp, qword_ptr(rsp + 8 * (pushed + 2)))?;
    code.ret()?;
    let parts = [reserved..published, full..again].map(|part| (part, Resume::Restart(restart)));
    Ok(ReservedLabels { parts: parts.into(), slots: slots as u64, number: RDX })
}

const _: () = assert!(FRAMES == SLOT_FRAMES + 3 && SLOT_FRAMES == 3 && CONTINUATION.0 == u32::MAX);

/// The routine that waits for room before an access. If there is none yet where it returns, as the thread may lose
/// events or was taken out of the wait for a signal, the record is lost or waits.
fn room(code: &mut CodeAssembler, labels: &mut Entries<CodeLabel>) -> Emitted {
    let mut out = code.create_label();
    place(code, &mut labels.room)?;
    code.push(r10)?;
    code.push(rdx)?;
    code.mov(r10, block!(reserved))?;
    code.add(r10, MAX_SLOTS as i32)?;
    code.cmp(r10, block!(limit))?;
    code.jbe(out)?;
    code.cmp(block!(mode), Mode::Lossless as i32)?;
    code.jne(out)?;
    code.mov(rdx, r10)?;
    code.call(labels.wait)?;
    place(code, &mut out)?;
    code.pop(rdx)?;
    code.pop(r10)?;
    code.ret()
}

/// The routine that waits for the reader.
fn wait(code: &mut CodeAssembler, labels: &mut Entries<CodeLabel>) -> Emitted {
    let [mut again, mut spin, mut sleep, mut woken, mut dead, mut lose, mut none, mut out] =
        [(); 8].map(|()| code.create_label());
    let reader = || dword_ptr(rbx + offset_of!(Control, reader));
    let waiting = || dword_ptr(rbx + offset_of!(Control, waiting));
    place(code, &mut labels.wait)?;
    let (changed, others) = WAIT_PUSHES.split_at(WAIT_CHANGES);
    for &register in changed {
        code.push(wide(register))?;
    }
    code.mov(rbx, block!(control))?;
    place(code, &mut again)?;
    code.cmp(r10, block!(limit))?;
    code.jbe(out)?;
    code.cmp(block!(mode), Mode::Drop as i32)?;
    code.je(lose)?;
    code.ja(none)?;
    code.test(reader(), TID)?;
    code.je(dead)?;
    code.inc(block!(waits))?;
    code.mov(eax, SPINS)?;
    place(code, &mut spin)?;
    code.pause()?;
    code.cmp(r10, block!(limit))?;
    code.jbe(out)?;
    code.dec(eax)?;
    code.jne(spin)?;
    for &register in others {
        code.push(wide(register))?;
    }
    // A `timespec`.
    code.push(SLEEP)?;
    code.push(0)?;
    code.lock().inc(waiting())?;
    place(code, &mut sleep)?;
    code.mov(edx, dword_ptr(rbx + offset_of!(Control, progress)))?;
    code.mov(r10, qword_ptr(rsp + 16))?;
    code.cmp(r10, block!(limit))?;
    code.jbe(woken)?;
    code.cmp(block!(mode), Mode::Lossless as i32)?;
    code.jne(woken)?;
    code.test(reader(), TID)?;
    code.je(woken)?;
    code.mov(eax, FUTEX)?;
    code.lea(rdi, ptr(rbx + offset_of!(Control, progress)))?;
    code.xor(esi, esi)?;
    code.mov(r10, rsp)?;
    code.xor(r8d, r8d)?;
    code.xor(r9d, r9d)?;
    code.syscall()?;
    code.jmp(sleep)?;
    place(code, &mut woken)?;
    code.lock().dec(waiting())?;
    code.add(rsp, 16)?;
    for &register in others.iter().rev() {
        code.pop(wide(register))?;
    }
    code.jmp(again)?;
    // Nobody reads what a muted thread has reserved.
    place(code, &mut dead)?;
    code.mov(block!(mode), Mode::Muted as i32)?;
    code.mov(block!(limit), 0)?;
    code.jmp(none)?;
    place(code, &mut lose)?;
    code.cmp(rdx, r10)?;
    code.je(none)?;
    code.mov(rax, r10)?;
    code.cmpxchg(block!(reserved), rdx)?;
    code.jne(again)?;
    code.inc(block!(lost))?;
    place(code, &mut none)?;
    code.xor(r10d, r10d)?;
    place(code, &mut out)?;
    for &register in changed.iter().rev() {
        code.pop(wide(register))?;
    }
    code.ret()
}
