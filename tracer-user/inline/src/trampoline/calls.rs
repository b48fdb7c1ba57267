//! Common code about calls that have not returned: the tables of a thread, and what their returns record.

use core::mem::offset_of;

use abi::{AllocCookie, CallCookie, Kind};
use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegister32, AsmRegister64, CodeAssembler, CodeLabel, al, dl, dword_ptr,
    eax, edx, qword_ptr, r8, r8d, r9, r10, r10d, rax, rcx, rdi, rdx, rsi,
};

use super::{
    assembler::{Emitted, block, place},
    common::Entries,
};
use crate::layout::{Control, HASH, PENDING_BITS, PENDING_WAYS, PendingCall};

/// `EOWNERDEAD`: a robust mutex was acquired whose last owner died holding it.
const EOWNERDEAD: i32 = 130;

/// Place in a cookie of the kind, and of the flags above it.
const KIND: u32 = 32;
const FLAGS: u32 = 40;

/// Field of the entry at `r10`.
macro_rules! entry {
    ($field:ident) => {
        qword_ptr(r10 + offset_of!(PendingCall, $field))
    };
}

/// Argument of the call whose entry is at `r10`.
pub fn found_argument() -> AsmMemoryOperand {
    entry!(argument)
}

/// Frame pointer of the caller of the call whose entry is at `r10`.
pub fn found_frame() -> AsmMemoryOperand {
    entry!(first)
}

/// Sets `r8` to the first of the entries that the call with the stack pointer in `rsi` may be in, or jumps to `none` if
/// the thread has no table.
fn group(code: &mut CodeAssembler, table: u64, none: CodeLabel) -> Emitted {
    code.cmp(block!(pending), 0)?;
    code.je(none)?;
    code.mov(r8, HASH)?;
    code.imul_2(r8, rsi)?;
    code.shr(r8, 64 - PENDING_BITS)?;
    code.shl(r8, (PENDING_WAYS * size_of::<PendingCall>() as u64).trailing_zeros())?;
    code.add(r8, block!(pending))?;
    if table != 0 { code.add(r8, table as i32) } else { Ok(()) }
}

/// Offsets of the entries of a group.
fn ways() -> impl Iterator<Item = u64> {
    (0..PENDING_WAYS).map(|way| way * size_of::<PendingCall>() as u64)
}

/// Sets a register, whose lower half is `low`, to the number of the window of capture.
fn window(code: &mut CodeAssembler, to: AsmRegister64, low: AsmRegister32) -> Emitted {
    code.mov(to, block!(control))?;
    code.mov(low, dword_ptr(to + offset_of!(Control, window)))
}

/// The routine that finds a call: see [`Entries::call_find`]. A call of another window is none: its return may have met
/// no probe, and a later call may have its stack pointer.
pub fn find(code: &mut CodeAssembler, start: &mut CodeLabel, table: u64) -> Emitted {
    let (mut found, mut none) = (code.create_label(), code.create_label());
    place(code, start)?;
    group(code, table, none)?;
    for way in ways() {
        code.lea(r10, qword_ptr(r8 + way))?;
        code.cmp(entry!(sp), rsi)?;
        code.je(found)?;
    }
    place(code, &mut none)?;
    code.xor(r10d, r10d)?;
    code.ret()?;
    place(code, &mut found)?;
    window(code, r8, r8d)?;
    code.cmp(entry!(window), r8)?;
    code.jne(none)?;
    code.ret()
}

/// The routine that stores a call: see [`Entries::call_insert`]. It takes the entry of a call at the same place, a free
/// one, or one of a call whose frame is gone. Otherwise another call is lost.
pub fn insert(code: &mut CodeAssembler, start: &mut CodeLabel, table: u64) -> Emitted {
    let [mut write, mut displace, mut none] = [(); 3].map(|()| code.create_label());
    place(code, start)?;
    group(code, table, none)?;
    for way in ways() {
        code.lea(r10, qword_ptr(r8 + way))?;
        code.cmp(entry!(sp), rsi)?;
        code.je(write)?;
    }
    for way in ways() {
        code.lea(r10, qword_ptr(r8 + way))?;
        code.cmp(entry!(sp), 0)?;
        code.je(write)?;
    }
    code.cmp(rsi, block!(stack_high))?;
    code.jae(displace)?;
    for way in ways() {
        let mut next = code.create_label();
        code.lea(r10, qword_ptr(r8 + way))?;
        code.mov(rax, entry!(sp))?;
        code.cmp(rax, block!(stack_low))?;
        code.jb(next)?;
        code.cmp(rax, rsi)?;
        code.jb(write)?;
        place(code, &mut next)?;
    }
    place(code, &mut displace)?;
    code.mov(r10, r8)?;
    code.inc(block!(lost))?;
    place(code, &mut write)?;
    code.mov(entry!(sp), rsi)?;
    code.mov(entry!(cookie), rdx)?;
    code.mov(entry!(argument), rcx)?;
    code.mov(entry!(first), r9)?;
    code.mov(entry!(second), rdi)?;
    window(code, rax, eax)?;
    code.mov(entry!(window), rax)?;
    place(code, &mut none)?;
    code.ret()
}

fn flag(flag: u8) -> u32 {
    FLAGS + flag.trailing_zeros()
}

/// The routine at the return of a call: see [`Entries::call_end`].
pub fn call_end(code: &mut CodeAssembler, labels: &mut Entries<CodeLabel>) -> Emitted {
    let (mut counts, mut is_bool) = (code.create_label(), code.create_label());
    let mut out = code.create_label();
    place(code, &mut labels.call_end)?;
    code.call(labels.call_find)?;
    code.test(r10, r10)?;
    code.je(out)?;
    code.mov(rcx, entry!(argument))?;
    code.mov(r8, entry!(cookie))?;
    code.mov(entry!(sp), 0)?;
    code.bt(r8, flag(CallCookie::IF_TRUE))?;
    code.jb(is_bool)?;
    code.test(eax, eax)?;
    code.je(counts)?;
    code.bt(r8, flag(CallCookie::ANY_RESULT))?;
    code.jb(counts)?;
    code.cmp(eax, EOWNERDEAD)?;
    code.jne(out)?;
    code.mov(rdx, r8)?;
    code.shr(rdx, KIND)?;
    code.cmp(dl, Kind::Acquire as i32)?;
    code.jne(out)?;
    place(code, &mut counts)?;
    code.mov(edx, eax)?;
    code.mov(eax, r8d)?;
    code.mov(rdi, qword_ptr(rsi))?;
    code.add(rsi, 8)?;
    code.jmp(labels.record_fenced)?;
    place(code, &mut is_bool)?;
    code.test(al, al)?;
    code.jne(counts)?;
    place(code, &mut out)?;
    code.ret()
}

/// Jumps to `skip` unless a call with the result in `eax` counts. The cookie is known.
pub fn skip_failed(code: &mut CodeAssembler, cookie: CallCookie, skip: CodeLabel) -> Emitted {
    if cookie.has(CallCookie::IF_TRUE) {
        code.test(al, al)?;
        return code.je(skip);
    }
    if cookie.has(CallCookie::ANY_RESULT) {
        return Ok(());
    }
    let mut counts = code.create_label();
    code.test(eax, eax)?;
    code.je(counts)?;
    if cookie.0.kind() == Kind::Acquire as u32 {
        code.cmp(eax, EOWNERDEAD)?;
        code.je(counts)?;
    }
    code.jmp(skip)?;
    place(code, &mut counts)
}

/// Word of a block with a size in `rdx`: see [`crate::encoding::block_word`].
pub fn block_word(code: &mut CodeAssembler, kind: Kind) -> Emitted {
    code.shl(rdx, 8)?;
    code.or(rdx, kind as i32)?;
    code.ror(rdx, 8)
}

/// The routine at the return of an allocation: see [`Entries::alloc_end`].
pub fn alloc_end(
    code: &mut CodeAssembler,
    labels: &mut Entries<CodeLabel>,
    find: CodeLabel,
) -> Emitted {
    let [mut into, mut maps, mut has_block, mut failed, mut unsized_block, mut record, mut out] =
        [(); 7].map(|()| code.create_label());
    place(code, &mut labels.alloc_end)?;
    code.call(find)?;
    code.test(r10, r10)?;
    code.je(out)?;
    code.mov(r8, entry!(cookie))?;
    code.mov(rdx, entry!(argument))?;
    code.mov(rdi, entry!(first))?;
    code.mov(rcx, rax)?;
    code.bt(r8, flag(AllocCookie::INTO))?;
    code.jb(into)?;
    code.bt(r8, flag(AllocCookie::MAPS))?;
    code.jb(maps)?;
    code.test(rcx, rcx)?;
    code.je(failed)?;
    place(code, &mut has_block)?;
    code.mov(entry!(sp), 0)?;
    block_word(code, Kind::Alloc)?;
    place(code, &mut record)?;
    code.mov(eax, r8d)?;
    code.mov(rdi, qword_ptr(rsi))?;
    code.add(rsi, 8)?;
    code.jmp(labels.record)?;
    place(code, &mut maps)?;
    code.cmp(rcx, -1)?;
    code.jne(has_block)?;
    code.jmp(failed)?;
    place(code, &mut into)?;
    code.test(eax, eax)?;
    code.jne(failed)?;
    code.mov(rcx, qword_ptr(rdi))?;
    code.test(rcx, rcx)?;
    code.jne(has_block)?;
    place(code, &mut failed)?;
    code.mov(rcx, entry!(second))?;
    code.mov(entry!(sp), 0)?;
    code.bt(r8, flag(AllocCookie::OLD))?;
    code.jae(out)?;
    // A reallocation to no bytes has not failed.
    code.test(rdx, rdx)?;
    code.je(out)?;
    code.test(rdi, rdi)?;
    code.je(out)?;
    code.xor(edx, edx)?;
    code.bt(r8, flag(AllocCookie::OLD_SIZE))?;
    code.jae(unsized_block)?;
    code.mov(rdx, rcx)?;
    place(code, &mut unsized_block)?;
    block_word(code, Kind::ReallocFailure)?;
    code.mov(rcx, rdi)?;
    code.jmp(record)?;
    place(code, &mut out)?;
    code.ret()
}
