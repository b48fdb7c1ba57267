//! Common code about stacks: ranges of a thread's stack that another thread was seen to access, as in
//! `tracer-ebpf/programs/src/stack.rs`.

use abi::AccessRecord;
use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegister64, CodeAssembler, CodeLabel, eax, edx, qword_ptr, r8, rax, rcx,
    rdi, rdx, rsi,
};

use super::{
    assembler::{Emitted, block, place},
    frame::RED_ZONE,
};
use crate::layout::{
    HASH, STACK_MARK_BITS, STACK_MARKS, STACK_PIECE_BITS, STACK_PIECE_COUNT_BITS, STACK_RANGE_BITS,
};

/// Sets `rax`, an address, to the number of its range, and `rdx` to the number of that range's mark.
fn mark_of(code: &mut CodeAssembler) -> Emitted {
    code.shr(rax, STACK_RANGE_BITS)?;
    code.mov(rdx, HASH)?;
    code.imul_2(rdx, rax)?;
    code.shr(rdx, 64 - STACK_MARK_BITS)
}

/// The routine that looks for marks: see [`super::common::Entries::stack_is_shared`].
pub fn is_shared(code: &mut CodeAssembler, start: &mut CodeLabel) -> Emitted {
    let (mut found, mut unknown) = (code.create_label(), code.create_label());
    place(code, start)?;
    code.mov(rsi, block!(stacks))?;
    code.test(rsi, rsi)?;
    code.je(unknown)?;
    mark_of(code)?;
    code.cmp(marks(rsi), rax)?;
    code.je(found)?;
    code.mov(rax, rcx)?;
    mark_of(code)?;
    code.cmp(marks(rsi), rax)?;
    place(code, &mut found)?;
    code.ret()?;
    place(code, &mut unknown)?;
    // The address of a stack is not 0.
    code.test(rcx, rcx)?;
    code.ret()
}

/// Mark of the number in `rdx`, of the memory at `base`.
fn marks(base: AsmRegister64) -> AsmMemoryOperand {
    qword_ptr(base + rdx * 8_u32 + STACK_MARKS as i32)
}

/// Jumps to `elsewhere` unless the address in `rcx` is on the stack that the thread uses, from the end of the red zone
/// in `rax` on, and that stack is the thread's own.
pub fn skip_elsewhere(code: &mut CodeAssembler, elsewhere: CodeLabel) -> Emitted {
    code.cmp(rcx, rax)?;
    code.jb(elsewhere)?;
    code.cmp(rcx, block!(stack_high))?;
    code.jae(elsewhere)?;
    code.cmp(rax, block!(stack_low))?;
    code.jb(elsewhere)
}

/// Adds to the access word in `rdi` whether the access to the address in `rcx` is to the thread's own stack, whose
/// stack pointer is in memory at `sp`, and marks it if it is to another one. Changes `rax`, `rdx` and `r8`.
pub fn note(code: &mut CodeAssembler, sp: AsmMemoryOperand) -> Emitted {
    let (mut elsewhere, mut noted) = (code.create_label(), code.create_label());
    code.mov(rax, sp)?;
    code.sub(rax, RED_ZONE)?;
    skip_elsewhere(code, elsewhere)?;
    code.or(rdi, AccessRecord::OWN_STACK as i32)?;
    code.jmp(noted)?;
    place(code, &mut elsewhere)?;
    code.mov(r8, block!(stacks))?;
    code.test(r8, r8)?;
    code.je(noted)?;
    code.mov(rax, rcx)?;
    code.shr(rax, STACK_PIECE_BITS)?;
    code.and(eax, (1 << STACK_PIECE_COUNT_BITS) - 1)?;
    code.mov(edx, eax)?;
    code.shr(edx, 6)?;
    code.mov(rdx, qword_ptr(r8 + rdx * 8_u32))?;
    code.bt(rdx, rax)?;
    code.jae(noted)?;
    code.mov(rax, rdi)?;
    code.shr(rax, 32)?;
    code.lea(rax, qword_ptr(rcx + rax - 1))?;
    mark_of(code)?;
    code.mov(marks(r8), rax)?;
    code.mov(rax, rcx)?;
    mark_of(code)?;
    code.mov(marks(r8), rax)?;
    place(code, &mut noted)
}
