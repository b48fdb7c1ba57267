//! Delays: a thread sleeps before an instruction, within bounds that all threads share ([`DelayPlace`]). It holds no
//! lock of avtrace meanwhile; a signal that the thread handles ends the sleep, and one that ends the process ends it.

use core::mem::offset_of;

use abi::{ALL_THREADS, Cookie, DelayPlace, FIRST_THREAD, RANDOM};
use iced_x86::code_asm::{
    AsmMemoryOperand, CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edi, edx, esi, ptr, qword_ptr,
    r8, r9, r10, r11, rax, rbx, rcx, rdi, rdx, rsi, rsp,
};

use super::{
    assembler::{Assembler, Emitted, block, place},
    common::{FUTEX, TID},
};
use crate::layout::{Control, Mode};

/// Number of the system call `clock_gettime`, and of `CLOCK_MONOTONIC`.
const CLOCK_GETTIME: i32 = 228;
const MONOTONIC: i32 = 1;

/// Nanoseconds of a second.
const SECOND: i32 = 1_000_000_000;

/// Field of the place at `r9`.
macro_rules! field {
    ($field:ident) => {
        qword_ptr(r9 + offset_of!(DelayPlace, $field))
    };
}

/// Field of the control structure at `rbx`.
macro_rules! control {
    ($field:ident) => {
        qword_ptr(rbx + offset_of!(Control, $field))
    };
}

/// Emits a delay at a point. The upper half of the cookie is the distance of its place from the control structure.
pub fn emit(asm: &mut Assembler<'_>, cookie: Cookie) -> Emitted {
    asm.code.mov(rdx, block!(control))?;
    asm.code.lea(rcx, ptr(rdx + (cookie.0 >> 32) as i32))?;
    asm.code.call(asm.common.entries.delay)
}

/// The routine.
pub fn routine(code: &mut CodeAssembler, label: &mut CodeLabel) -> Emitted {
    let [mut out, mut undo] = [(); 2].map(|()| code.create_label());
    place(code, label)?;
    code.push(rbx)?;
    code.push(r11)?;
    // A `timespec`.
    code.sub(rsp, 16)?;
    code.mov(rbx, rdx)?;
    code.mov(r9, rcx)?;
    code.cmp(block!(mode), Mode::Muted as i32)?;
    code.je(out)?;
    code.test(dword_ptr(rbx + offset_of!(Control, reader)), TID)?;
    code.je(out)?;
    code.mov(rax, field!(hits))?;
    code.cmp(rax, field!(most))?;
    code.jae(out)?;
    jump_unless_meant(code, out)?;
    jump_unless_passes(code, out)?;
    time(code)?;
    code.mov(r8, rax)?;
    // The thread's own share.
    code.sub(rax, block!(began))?;
    share_of(code)?;
    code.cmp(block!(delayed), rax)?;
    code.ja(out)?;
    // That of all threads: whoever adds first, may.
    code.mov(rax, r8)?;
    code.sub(rax, control!(delays_from))?;
    share_of(code)?;
    code.mov(r10, rax)?;
    code.mov(rax, field!(nanoseconds))?;
    code.lock().xadd(control!(delayed), rax)?;
    code.cmp(rax, r10)?;
    code.ja(undo)?;
    code.mov(eax, 1)?;
    code.lock().xadd(field!(hits), rax)?;
    code.cmp(rax, field!(most))?;
    code.jae(undo)?;
    code.mov(rax, field!(nanoseconds))?;
    code.add(block!(delayed), rax)?;
    sleep(code)?;
    time(code)?;
    code.sub(rax, r8)?;
    code.lock().add(field!(delayed), rax)?;
    // The difference to the planned time, which was charged before.
    code.sub(rax, field!(nanoseconds))?;
    code.add(block!(delayed), rax)?;
    code.lock().add(control!(delayed), rax)?;
    code.jmp(out)?;
    place(code, &mut undo)?;
    code.mov(rax, field!(nanoseconds))?;
    code.lock().sub(control!(delayed), rax)?;
    place(code, &mut out)?;
    code.add(rsp, 16)?;
    code.pop(r11)?;
    code.pop(rbx)?;
    code.ret()
}

/// Jumps if the delay is not for this thread. Changes `rax`, `rcx` and `rdx`.
fn jump_unless_meant(code: &mut CodeAssembler, to: CodeLabel) -> Emitted {
    let [mut known, mut is_first, mut go_on] = [(); 3].map(|()| code.create_label());
    code.mov(rax, field!(threads))?;
    code.cmp(rax, ALL_THREADS as i32)?;
    code.je(go_on)?;
    code.mov(rdx, block!(tid))?;
    code.mov(rcx, control!(first_delayed))?;
    code.test(rcx, rcx)?;
    code.jne(known)?;
    // Of threads that come at one moment any may be the first.
    code.mov(control!(first_delayed), rdx)?;
    code.mov(rcx, control!(first_delayed))?;
    place(code, &mut known)?;
    code.cmp(rcx, rdx)?;
    code.je(is_first)?;
    code.cmp(rax, FIRST_THREAD as i32)?;
    code.je(to)?;
    code.jmp(go_on)?;
    place(code, &mut is_first)?;
    code.cmp(rax, FIRST_THREAD as i32)?;
    code.jne(to)?;
    place(code, &mut go_on)
}

/// Counts a passage, and jumps if its random number is not below the chance ([`passes`](abi::passes)).
/// Changes `rax` and `rdx`.
fn jump_unless_passes(code: &mut CodeAssembler, to: CodeLabel) -> Emitted {
    let [step, first, second] = RANDOM;
    code.mov(eax, 1)?;
    code.lock().xadd(field!(passages), rax)?;
    code.inc(rax)?;
    code.mov(rdx, step)?;
    code.imul_2(rax, rdx)?;
    code.add(rax, field!(seed))?;
    for (shift, factor) in [(30, first), (27, second)] {
        code.mov(rdx, rax)?;
        code.shr(rdx, shift)?;
        code.xor(rax, rdx)?;
        code.mov(rdx, factor)?;
        code.imul_2(rax, rdx)?;
    }
    code.mov(rdx, rax)?;
    code.shr(rdx, 31)?;
    code.xor(rax, rdx)?;
    code.shr(rax, 32)?;
    code.cmp(rax, field!(chance))?;
    code.jae(to)
}

/// Reads the time to `rax`, by the words at the stack pointer. Changes `rcx`, `rdx`, `rsi`, `rdi` and `r11`.
fn time(code: &mut CodeAssembler) -> Emitted {
    let nanoseconds: AsmMemoryOperand = qword_ptr(rsp + 8);
    code.mov(eax, CLOCK_GETTIME)?;
    code.mov(edi, MONOTONIC)?;
    code.mov(rsi, rsp)?;
    code.syscall()?;
    code.mov(rax, qword_ptr(rsp))?;
    code.imul_3(rax, rax, SECOND)?;
    code.add(rax, nanoseconds)
}

/// Sets `rax` to the share of the time in it. Changes `rdx`.
fn share_of(code: &mut CodeAssembler) -> Emitted {
    code.mul(control!(delay_share))?;
    code.shrd(rax, rdx, 32)
}

/// Sleeps for the duration of the place, by the system call of waits for the reader. Changes `rax`, `rcx`, `rdx`,
/// `rsi`, `rdi`, `r10`, `r11` and the words at the stack pointer.
fn sleep(code: &mut CodeAssembler) -> Emitted {
    code.mov(rax, field!(nanoseconds))?;
    code.xor(edx, edx)?;
    code.mov(ecx, SECOND)?;
    code.div(rcx)?;
    code.mov(qword_ptr(rsp), rax)?;
    code.mov(qword_ptr(rsp + 8), rdx)?;
    code.mov(eax, FUTEX)?;
    code.lea(rdi, field!(futex))?;
    code.xor(esi, esi)?;
    code.xor(edx, edx)?;
    code.mov(r10, rsp)?;
    code.syscall()
}
