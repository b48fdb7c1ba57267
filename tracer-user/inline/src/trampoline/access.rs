//! Program of accesses to memory: see `tracer-ebpf/programs/src/access.rs`.
//!
//! Most accesses are repetitions. So the comparison with the table of words is here, and changes few registers. The
//! rest is in common code (`words`).

use abi::{AccessDescriptor, FlagCondition, Operand, SiteId};
use iced_x86::code_asm::{CodeLabel, eax, ecx, qword_ptr, rax, rcx, rdx, rsp};

use super::{
    assembler::{Assembler, Emitted, jump_if, place},
    frame::{Frame, RED_ZONE, RSP},
    stacks, words,
};
use crate::encoding::access_word;

/// Registers that the program may change: `rax`, `rcx`, `rdx` and `rsi`.
pub const CHANGES: u16 = 1 | 1 << 1 | 1 << 2 | 1 << 6;

/// Flags that a record has.
const RECORDED: u8 = AccessDescriptor::READ
    | AccessDescriptor::WRITE
    | AccessDescriptor::ATOMIC
    | AccessDescriptor::COMMUTES;

/// Returns whether the access depends on the flags.
pub fn reads_flags(descriptor: &AccessDescriptor) -> bool {
    descriptor.flags & AccessDescriptor::WRITES_IF_ZERO != 0
}

/// Registers that the program reads, by the processor's numbers or more.
pub fn registers(descriptor: &AccessDescriptor) -> [u8; 3] {
    let AccessDescriptor { base, index, rounds, .. } = *descriptor;
    [base, index, rounds]
}

fn is_repeated(descriptor: &AccessDescriptor) -> bool {
    u16::from(descriptor.rounds) != Operand::NONE
}

/// Emits the program.
pub fn emit(
    asm: &mut Assembler<'_>,
    frame: &Frame,
    descriptor: &AccessDescriptor,
    site: SiteId,
    skip: CodeLabel,
) -> Emitted {
    address(asm, frame, descriptor)?;
    skip_own_stack(asm, frame, descriptor, skip)?;
    let flags = descriptor.flags & RECORDED;
    let mut reads = asm.code.create_label();
    if reads_flags(descriptor) {
        frame.load_flags(asm)?;
        jump_if(&mut asm.code, FlagCondition::NOT_EQUAL, reads)?;
    }
    report(asm, frame, descriptor, flags, site, skip)?;
    if reads_flags(descriptor) {
        asm.code.jmp(skip)?;
        place(&mut asm.code, &mut reads)?;
        report(asm, frame, descriptor, AccessDescriptor::READ, site, skip)?;
    }
    Ok(())
}

/// Jumps to `skip` if the access to the address in `rcx` is to the thread's own stack, where no other thread was seen.
fn skip_own_stack(
    asm: &mut Assembler<'_>,
    frame: &Frame,
    descriptor: &AccessDescriptor,
    skip: CodeLabel,
) -> Emitted {
    let mut elsewhere = asm.code.create_label();
    asm.code.lea(rax, frame.stack(-RED_ZONE))?;
    stacks::skip_elsewhere(&mut asm.code, elsewhere)?;
    let size = i32::from(descriptor.size);
    if is_repeated(descriptor) {
        frame.load(asm, rax, descriptor.rounds)?;
        asm.code.mov(eax, eax)?;
        asm.code.imul_3(rax, rax, size)?;
        asm.code.lea(rax, qword_ptr(rcx + rax - 1))?;
    } else {
        asm.code.lea(rax, qword_ptr(rcx + (size - 1)))?;
    }
    asm.code.call(asm.common.entries.stack_is_shared)?;
    asm.code.jne(skip)?;
    place(&mut asm.code, &mut elsewhere)
}

/// Computes the address to `rcx`.
fn address(asm: &mut Assembler<'_>, frame: &Frame, descriptor: &AccessDescriptor) -> Emitted {
    let AccessDescriptor { base, index, scale, slot, displacement, flags, .. } = *descriptor;
    let near = i32::try_from(displacement).ok();
    let mut rest = near;
    if base >= 16 {
        if flags & AccessDescriptor::INDIRECT != 0 {
            asm.code.xor(ecx, ecx)?;
        } else {
            asm.code.mov(rcx, displacement)?;
            rest = Some(0);
        }
    } else {
        frame.load(asm, rcx, base)?;
    }
    if flags & AccessDescriptor::INDIRECT != 0 {
        if base != RSP {
            asm.may_fault();
        }
        asm.code.mov(rcx, qword_ptr(rcx + slot))?;
    }
    if index < 16 {
        frame.load(asm, rax, index)?;
        let near = rest.unwrap_or(0);
        asm.code.lea(rcx, qword_ptr(rcx + rax * (1_u32 << (scale & 3)) + near))?;
        rest = rest.map(|_| 0);
    }
    match rest {
        Some(0) => Ok(()),
        Some(near) => asm.code.add(rcx, near),
        None => {
            asm.code.mov(rax, displacement)?;
            asm.code.add(rcx, rax)
        }
    }
}

/// Records the access to the address in `rcx` with these flags, unless it is a repetition.
fn report(
    asm: &mut Assembler<'_>,
    frame: &Frame,
    descriptor: &AccessDescriptor,
    flags: u8,
    site: SiteId,
    skip: CodeLabel,
) -> Emitted {
    let size = u64::from(descriptor.size);
    let recorded = flags | descriptor.flags & AccessDescriptor::AHEAD;
    if is_repeated(descriptor) {
        // The access word: the number of bytes above the flags.
        frame.load(asm, rax, descriptor.rounds)?;
        asm.code.mov(eax, eax)?;
        asm.code.imul_3(rax, rax, i32::from(descriptor.size))?;
        bound(asm, u64::from(descriptor.most))?;
        asm.code.test(rax, rax)?;
        asm.code.je(skip)?;
        asm.code.shl(rax, 32)?;
        asm.code.or(rax, i32::from(recorded))?;
        return call(asm, frame, site, None, asm.common.entries.access_many);
    }
    let word = access_word(recorded.into(), size);
    let mut many = asm.code.create_label();
    if size == 0 {
        return Ok(());
    }
    if size <= 8 {
        words::filter(&mut asm.code, size, flags, skip, many)?;
        call(asm, frame, site, Some(word), asm.common.entries.access_one)?;
        if size == 1 {
            return Ok(());
        }
        asm.code.jmp(skip)?;
        place(&mut asm.code, &mut many)?;
    }
    call(asm, frame, site, Some(word), asm.common.entries.access_many)
}

/// Bounds the number of bytes in `rax`: to `most` unless that is 0, and to what an access word has room for. Changes
/// `rdx`.
fn bound(asm: &mut Assembler<'_>, most: u64) -> Emitted {
    let mut small = asm.code.create_label();
    let most = if most == 0 { u64::from(u32::MAX) } else { most };
    asm.code.mov(rdx, most)?;
    asm.code.cmp(rax, rdx)?;
    asm.code.jbe(small)?;
    asm.code.mov(rax, rdx)?;
    place(&mut asm.code, &mut small)
}

/// Calls a routine with the access word in `rax`, unless it is known.
fn call(
    asm: &mut Assembler<'_>,
    frame: &Frame,
    site: SiteId,
    known: Option<u64>,
    routine: u64,
) -> Emitted {
    // Below it is the site.
    match known {
        Some(word) => {
            asm.code.lea(rax, frame.stack(0))?;
            asm.code.push(rax)?;
            asm.code.push(site.0.cast_signed())?;
            asm.code.mov(rax, word)?;
        }
        None => {
            asm.code.lea(rdx, frame.stack(0))?;
            asm.code.push(rdx)?;
            asm.code.push(site.0.cast_signed())?;
        }
    }
    asm.code.call(routine)?;
    asm.code.lea(rsp, qword_ptr(rsp + 16))
}
