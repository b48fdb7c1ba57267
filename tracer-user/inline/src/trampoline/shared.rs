//! Program of variables that are named as shared: a record of all registers, in three slots (`encoding`).

use abi::SiteId;
use iced_x86::code_asm::{CodeLabel, edx, qword_ptr, r8, r8d, r9, r10, rax, rcx, rdx};

use super::{
    assembler::{Assembler, Emitted, block, place},
    common::{slot, slot_address},
    frame::{Frame, RSP},
};
use crate::{
    encoding::CONTINUATION,
    layout::{SLOT_WORDS, SP_BITS, head},
};

/// Registers in the continuation slots, by the processor's numbers.
const SECOND: [u8; 7] = [7, 5, 8, 9, 10, 11, 12];
const THIRD: [u8; 3] = [13, 14, 15];

/// Number of slots.
const SLOTS: i32 = 3;

/// Emits the program.
pub fn emit(asm: &mut Assembler<'_>, frame: &Frame, site: SiteId, skip: CodeLabel) -> Emitted {
    let mut write = asm.code.create_label();
    asm.code.call(asm.common.entries.order)?;
    asm.code.mov(r9, rax)?;
    let restart = asm.position();
    asm.code.mov(edx, SLOTS)?;
    asm.code.xadd(block!(reserved), rdx)?;
    let reserved = asm.position();
    asm.code.lea(r10, qword_ptr(rdx + SLOTS))?;
    asm.code.cmp(r10, block!(limit))?;
    asm.code.jbe(write)?;
    asm.code.call(asm.common.entries.wait)?;
    asm.code.test(r10, r10)?;
    asm.code.jne(write)?;
    // No record begins the next epoch.
    asm.code.inc(block!(epoch))?;
    asm.code.mov(block!(epoch_sp), 0)?;
    asm.code.jmp(skip)?;
    place(&mut asm.code, &mut write)?;
    continuation(asm, frame, 2, &THIRD)?;
    continuation(asm, frame, 1, &SECOND)?;
    slot_of(asm, 0)?;
    asm.code.mov(slot!(order), r9)?;
    frame.load(asm, r9, RSP)?;
    asm.code.inc(block!(epoch))?;
    asm.code.mov(block!(epoch_sp), r9)?;
    asm.code.mov(rax, block!(epoch))?;
    asm.code.shl(rax, SP_BITS)?;
    asm.code.or(r9, rax)?;
    asm.code.mov(slot!(sp), r9)?;
    // `rax`, `rbx`, and in place of frames `rcx`, `rdx` and `rsi`.
    for (number, word) in [(0, 2), (3, 4), (1, 5), (2, 6), (6, 7)] {
        frame.load(asm, rcx, number)?;
        asm.code.mov(qword_ptr(r10 + 8 * word), rcx)?;
    }
    publish(asm, site)?;
    asm.reserved.push((reserved..asm.position(), SLOTS as u64, restart));
    Ok(())
}

/// Publishes the continuation slot of a number, with these registers.
fn continuation(asm: &mut Assembler<'_>, frame: &Frame, number: i32, of: &[u8]) -> Emitted {
    slot_of(asm, number)?;
    debug_assert!(of.len() < SLOT_WORDS);
    for (&register, word) in of.iter().zip(1_i32..) {
        frame.load(asm, rcx, register)?;
        asm.code.mov(qword_ptr(r10 + 8 * word), rcx)?;
    }
    publish(asm, CONTINUATION)
}

/// Sets `r10` to the address of a slot behind the first one, whose number is in `rdx`, and `r8` to its number.
fn slot_of(asm: &mut Assembler<'_>, number: i32) -> Emitted {
    asm.code.lea(r10, qword_ptr(rdx + number))?;
    asm.code.mov(r8, r10)?;
    slot_address(&mut asm.code)
}

fn publish(asm: &mut Assembler<'_>, site: SiteId) -> Emitted {
    asm.code.inc(r8d)?;
    asm.code.mov(rcx, head(0, site) >> 32 << 32)?;
    asm.code.or(rcx, r8)?;
    asm.code.mov(slot!(head), rcx)
}
