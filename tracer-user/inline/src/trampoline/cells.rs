//! Common code of words that threads own: an owner's accesses are deferred, and are recorded before the access of the
//! next thread. `cell` has the rules of a cell, and `docs/capture/ownership.md` the proof that no record is misplaced.

use core::mem::offset_of;

use abi::AccessDescriptor;
use iced_x86::code_asm::{
    AsmRegister64, CodeAssembler, CodeLabel, dil, eax, ecx, edi, esi, qword_ptr, r8, r8d, r9, r9d,
    r10, r11, r11d, r12, r12d, r13, r13d, r14, r15, r15d, rax, rbp, rbx, rcx, rdi, rdx, rsi, rsp,
    xmmword_ptr,
};

use super::{
    assembler::{Emitted, block, place},
    common::{Entries, ReservedLabels, slot, slot_address},
    reserved::{RSI, Resume},
    words::{bit, slot as word_slot},
};
use crate::{
    cell::{EPOCH_BITS, NO_SITE, SHARED, THREAD_BITS, WORD_BITS},
    encoding::{OWNED, VOID},
    layout::{SP_BITS, Slot, WORD_BITS as TABLE_BITS},
};

/// Accesses that are neither deferred nor a claim.
const SPECIAL: i32 = (AccessDescriptor::ATOMIC | AccessDescriptor::COMMUTES) as i32;

/// Number of bits of a cell's first word below the mask.
const MASK_SHIFT: u32 = WORD_BITS + THREAD_BITS;

/// Number of bits of a cell's second word above the epoch.
const ABOVE_EPOCH: u32 = 64 - EPOCH_BITS;

/// Second word of a cell without a deferred access, but for the epoch.
const NONE_DEFERRED: u64 = NO_SITE << EPOCH_BITS;

/// Bit of a cell's second word that is set after a handover.
const HANDOVER_BIT: u32 = 63;

/// Offset of the cell for reads.
const READS: i32 = 16;

/// Claim of an access to several words: it shares them.
const SHARES: i32 = 1;

/// Sets `rbx` to the address of the cells of the word with the slot at `r10`, or to 0 where no access is deferred.
/// Changes `r11`.
pub fn find(code: &mut CodeAssembler) -> Emitted {
    let mut found = code.create_label();
    code.mov(rbx, block!(cells))?;
    code.test(rbx, rbx)?;
    code.je(found)?;
    code.mov(r11, r10)?;
    code.sub(r11, block!(words))?;
    code.lea(rbx, qword_ptr(rbx + r11 * 2_u32))?;
    place(code, &mut found)
}

/// Compares the access to the bytes `esi` of a word at the address `rcx`, with the flags `edi`, with its cell at `rbx`:
/// jumps to `not_own` unless it may be deferred. Then `r11` is the address of the cell, and `r12` and `r13` are its
/// words. Changes `r8`.
pub fn compare(code: &mut CodeAssembler, not_own: CodeLabel) -> Emitted {
    code.test(edi, SPECIAL)?;
    code.jne(not_own)?;
    code.bt(edi, bit(AccessDescriptor::WRITE))?;
    code.sbb(r11d, r11d)?;
    code.not(r11d)?;
    code.and(r11d, READS)?;
    code.add(r11, rbx)?;
    code.mov(r12, rcx)?;
    code.shr(r12, 3)?;
    code.mov(r13, rsi)?;
    code.shl(r13, MASK_SHIFT)?;
    code.or(r12, r13)?;
    code.or(r12, block!(owner))?;
    code.cmp(r12, qword_ptr(r11))?;
    code.jne(not_own)?;
    code.mov(r13, qword_ptr(r11 + 8))?;
    code.mov(r8, r13)?;
    code.shl(r8, ABOVE_EPOCH)?;
    code.cmp(r8, block!(since))?;
    code.jb(not_own)
}

/// Defers an access to the cell at `r11` with the words `r12` and `r13`. The site is in `rax`, the thread epoch in
/// `rdx`. The zero flag is set if that was possible. Changes `rax` and `rdx`.
pub fn defer(code: &mut CodeAssembler) -> Emitted {
    code.push(rbx)?;
    code.push(rcx)?;
    code.mov(rcx, rax)?;
    code.and(ecx, SITE_MASK)?;
    code.shl(rcx, EPOCH_BITS)?;
    epoch_of(code, rdx)?;
    code.or(rcx, rdx)?;
    code.mov(rdx, r13)?;
    code.shr(rdx, HANDOVER_BIT)?;
    code.shl(rdx, HANDOVER_BIT)?;
    code.or(rcx, rdx)?;
    code.mov(rdx, r13)?;
    code.mov(rax, r12)?;
    code.mov(rbx, r12)?;
    code.lock().cmpxchg16b(xmmword_ptr(r11))?;
    code.pop(rcx)?;
    code.pop(rbx)
}

/// Bits of a site that are its number within its plan: a program's records have one plan where accesses are deferred.
const SITE_MASK: i32 = (1 << 20) - 1;

/// Removes the thread from a thread epoch.
fn epoch_of(code: &mut CodeAssembler, register: AsmRegister64) -> Emitted {
    code.shl(register, ABOVE_EPOCH)?;
    code.shr(register, ABOVE_EPOCH)
}

/// Changes the cells at `rbx`, unless that is 0, as the record of an access to the bytes `esi` of a word at the address
/// `rcx`, with the flags `edi`, does. Then `r12` and `r13` are the first words of both as they are left. Jumps to
/// `lost` after as many attempts as `r8d` says. Changes `rax`, `rdx`, `r8`, `r9` and `r11`.
pub fn take_one(code: &mut CodeAssembler, labels: &Entries<CodeLabel>, lost: CodeLabel) -> Emitted {
    let (mut call, mut taken) = (code.create_label(), code.create_label());
    code.test(rbx, rbx)?;
    code.je(taken)?;
    code.mov(r11, rcx)?;
    code.shr(r11, 3)?;
    code.or(r11, block!(owner))?;
    // What the access covers: with a write both, with a read the second.
    code.xor(r12d, r12d)?;
    code.xor(r13d, r13d)?;
    code.test(edi, SPECIAL)?;
    code.jne(call)?;
    code.mov(r13, rsi)?;
    code.shl(r13, MASK_SHIFT)?;
    code.test(edi, i32::from(AccessDescriptor::WRITE))?;
    code.je(call)?;
    code.mov(r12, r13)?;
    place(code, &mut call)?;
    code.call(labels.cells_take)?;
    code.test(r8d, r8d)?;
    code.je(lost)?;
    place(code, &mut taken)
}

/// Adds 2 to `r9` unless the first words of the cells at `rbx` are `r12` and `r13`, or there are none.
pub fn look_one(code: &mut CodeAssembler) -> Emitted {
    let (mut same, mut changed) = (code.create_label(), code.create_label());
    code.test(rbx, rbx)?;
    code.je(same)?;
    code.cmp(r12, qword_ptr(rbx))?;
    code.jne(changed)?;
    code.cmp(r13, qword_ptr(rbx + READS))?;
    code.je(same)?;
    place(code, &mut changed)?;
    code.or(r9d, 2)?;
    place(code, &mut same)
}

/// The routines of the cells: see [`Entries`].
pub fn routines(
    code: &mut CodeAssembler,
    labels: &mut Entries<CodeLabel>,
) -> Emitted<ReservedLabels> {
    let mut foreign = code.create_label();
    take(code, labels, foreign)?;
    let reserved = take_foreign(code, labels, &mut foreign)?;
    let (mut take_word, mut add_word) = (code.create_label(), code.create_label());
    each_word(code, &mut labels.cells_take_all, take_word)?;
    place(code, &mut take_word)?;
    for register in [rbx, r12, r13] {
        code.push(register)?;
    }
    code.mov(rbx, r10)?;
    code.mov(r11, r14)?;
    code.or(r11, block!(owner))?;
    code.mov(r12d, SHARES)?;
    code.mov(r13d, SHARES)?;
    code.call(labels.cells_take)?;
    for left in [r12, r13] {
        code.rol(r15, 7)?;
        code.add(r15, left)?;
    }
    for register in [r13, r12, rbx] {
        code.pop(register)?;
    }
    code.ret()?;
    each_word(code, &mut labels.cells_add_all, add_word)?;
    place(code, &mut add_word)?;
    for at in [0, READS] {
        code.rol(r15, 7)?;
        code.add(r15, qword_ptr(r10 + at))?;
    }
    code.ret()?;
    Ok(reserved)
}

/// The routine [`Entries::cells_take`].
fn take(
    code: &mut CodeAssembler,
    labels: &mut Entries<CodeLabel>,
    take_foreign: CodeLabel,
) -> Emitted {
    place(code, &mut labels.cells_take)?;
    for (at, claim) in [(0, r12), (READS, r13)] {
        let [mut again, mut foreign, mut unowned, mut claims, mut retry, mut done] =
            [(); 6].map(|()| code.create_label());
        place(code, &mut again)?;
        code.mov(rax, qword_ptr(rbx + at))?;
        code.mov(rdx, qword_ptr(rbx + (at + 8)))?;
        code.mov(r9, rax)?;
        code.shl(r9, 64 - MASK_SHIFT)?;
        code.shr(r9, 64 - THREAD_BITS)?;
        code.je(unowned)?;
        code.cmp(r9, SHARED as i32)?;
        code.je(done)?;
        code.mov(r9, rax)?;
        code.xor(r9, r11)?;
        code.shl(r9, 64 - MASK_SHIFT)?;
        // The owner's bits are the highest ones now.
        let mut same = code.create_label();
        code.je(same)?;
        code.shl(r9, THREAD_BITS)?;
        code.jne(done)?;
        code.jmp(foreign)?;
        place(code, &mut same)?;
        code.mov(r9, rdx)?;
        code.shl(r9, ABOVE_EPOCH)?;
        code.cmp(r9, block!(since))?;
        code.jb(foreign)?;
        code.mov(r9, rax)?;
        code.shr(r9, MASK_SHIFT)?;
        code.jne(done)?;
        code.mov(r9, rdx)?;
        code.shr(r9, HANDOVER_BIT)?;
        code.shl(r9, HANDOVER_BIT)?;
        code.jmp(claims)?;
        place(code, &mut foreign)?;
        code.push(claim)?;
        code.lea(r9, qword_ptr(rbx + at))?;
        code.call(take_foreign)?;
        code.lea(rsp, qword_ptr(rsp + 8))?;
        code.je(done)?;
        code.jmp(retry)?;
        place(code, &mut unowned)?;
        code.xor(r9d, r9d)?;
        place(code, &mut claims)?;
        code.cmp(claim, SHARES)?;
        code.jbe(done)?;
        code.push(rcx)?;
        code.push(rbx)?;
        code.mov(rcx, block!(epoch))?;
        epoch_of(code, rcx)?;
        code.or(rcx, r9)?;
        code.mov(r9, NONE_DEFERRED)?;
        code.or(rcx, r9)?;
        code.mov(r9, rbx)?;
        code.mov(rbx, r11)?;
        code.or(rbx, claim)?;
        code.lock().cmpxchg16b(xmmword_ptr(r9 + at))?;
        code.mov(rax, rbx)?;
        code.pop(rbx)?;
        code.pop(rcx)?;
        code.je(done)?;
        place(code, &mut retry)?;
        code.dec(r8d)?;
        code.jne(again)?;
        code.ret()?;
        place(code, &mut done)?;
        code.mov(claim, rax)?;
    }
    code.ret()
}

/// The routine that takes the cell at `r9`, whose words are `rax` and `rdx`, from another thread, for the word and the
/// number in `r11`. Above the return address is the mask of bytes that the access covers, or [`SHARES`]. The zero flag
/// is set if the cell was as it was given; `rax` is its first word then. Changes `rdx` and `r9`.
///
/// The order of the record of the deferred access is read after the access was seen, and its slot reserved, before the
/// cell changes: what follows from the change is later. A signal before the change has the attempt fail, so that the
/// cell is read anew. One after it finds the slot written up to its head, and whether the change was made in `rax` and
/// `rdx`: the slot is published before the handler begins ([`Resume`]).
fn take_foreign(
    code: &mut CodeAssembler,
    labels: &Entries<CodeLabel>,
    start: &mut CodeLabel,
) -> Emitted<ReservedLabels> {
    let [mut shares, mut chosen, mut plain, mut full, mut write, mut out] =
        [(); 6].map(|()| code.create_label());
    let [mut reserved, mut changed, mut published, mut failed] =
        [(); 4].map(|()| code.create_label());
    let saved = [rbx, rcx, rsi, rdi, r8, r10, r11, r12, r13];
    place(code, start)?;
    for register in saved {
        code.push(register)?;
    }
    code.mov(r12, rax)?;
    code.mov(r13, rdx)?;
    code.mov(rbx, qword_ptr(rsp + (8 * saved.len() + 8)))?;
    code.cmp(rbx, SHARES)?;
    code.je(shares)?;
    code.bt(r13, HANDOVER_BIT)?;
    code.jb(shares)?;
    code.or(rbx, r11)?;
    code.mov(rcx, block!(epoch))?;
    epoch_of(code, rcx)?;
    code.mov(rax, NONE_DEFERRED | 1 << HANDOVER_BIT)?;
    code.or(rcx, rax)?;
    code.jmp(chosen)?;
    place(code, &mut shares)?;
    code.mov(rbx, r11)?;
    code.mov(rax, SHARED << WORD_BITS)?;
    code.or(rbx, rax)?;
    code.xor(ecx, ecx)?;
    place(code, &mut chosen)?;
    code.mov(rax, r13)?;
    code.shr(rax, EPOCH_BITS)?;
    code.and(eax, NO_SITE as i32)?;
    code.cmp(eax, NO_SITE as i32)?;
    code.je(plain)?;
    code.lfence()?;
    code.call(labels.order)?;
    code.mov(r8, rax)?;
    code.mov(esi, 1)?;
    code.xadd(block!(reserved), rsi)?;
    place(code, &mut reserved)?;
    code.lea(r10, qword_ptr(rsi + 1))?;
    code.cmp(r10, block!(limit))?;
    code.ja(full)?;
    place(code, &mut write)?;
    code.mov(r10, rsi)?;
    slot_address(code)?;
    code.mov(slot!(order), r8)?;
    code.mov(slot!(argument), r12)?;
    code.mov(slot!(extra), r13)?;
    code.mov(edi, r9d)?;
    code.and(edi, READS)?;
    code.mov(qword_ptr(r10 + offset_of!(Slot, frames)), rdi)?;
    code.mov(rdi, block!(epoch))?;
    code.shl(rdi, SP_BITS)?;
    code.mov(slot!(sp), rdi)?;
    exchange(code)?;
    place(code, &mut changed)?;
    code.setne(dil)?;
    code.and(edi, 1)?;
    code.mov(r8d, OWNED.0)?;
    code.sub(r8d, edi)?;
    code.shl(r8, 32)?;
    code.lea(edi, qword_ptr(rsi + 1))?;
    code.or(r8, rdi)?;
    code.mov(slot!(head), r8)?;
    place(code, &mut published)?;
    // An exchange that fails has changed one of them.
    code.cmp(rax, r12)?;
    code.jne(out)?;
    code.cmp(rdx, r13)?;
    code.jmp(out)?;
    place(code, &mut failed)?;
    code.test(rsp, rsp)?;
    code.jmp(out)?;
    // The deferred access is lost, and counted.
    place(code, &mut full)?;
    code.mov(rdx, rsi)?;
    code.call(labels.wait)?;
    code.test(r10, r10)?;
    code.jne(write)?;
    place(code, &mut plain)?;
    exchange(code)?;
    place(code, &mut out)?;
    code.mov(rax, rbx)?;
    for register in saved.into_iter().rev() {
        code.pop(register)?;
    }
    code.ret()?;
    let restart = Resume::Restart(failed);
    let parts = vec![
        (reserved..changed, restart),
        (changed..published, Resume::Publish(published)),
        (full..plain, restart),
    ];
    Ok(ReservedLabels { parts, slots: 1, number: RSI })
}

const _: () = assert!(OWNED.0 - 1 == VOID.0);

/// Changes the cell at `r9` from `r12` and `r13` to `rbx` and `rcx`. Changes `rax` and `rdx`.
fn exchange(code: &mut CodeAssembler) -> Emitted {
    code.mov(rax, r12)?;
    code.mov(rdx, r13)?;
    code.lock().cmpxchg16b(xmmword_ptr(r9))
}

/// A routine that calls another one for the cells of each word from `r12` up to `r13`, or if there are as many as
/// slots, for all cells of one of these words: `r10` is the address of the cells, `r14` the word. Sums up in `r15`.
/// Ends when `r8d` is 0. Changes `rax`, `rdx`, and what the other one does.
fn each_word(code: &mut CodeAssembler, start: &mut CodeLabel, each: CodeLabel) -> Emitted {
    let [mut next, mut by_slot, mut one, mut end] = [(); 4].map(|()| code.create_label());
    let mut out = code.create_label();
    place(code, start)?;
    code.xor(r15d, r15d)?;
    code.cmp(block!(cells), 0)?;
    code.je(out)?;
    code.mov(r14, r12)?;
    code.mov(rax, r13)?;
    code.sub(rax, r12)?;
    code.cmp(rax, 1 << TABLE_BITS)?;
    code.jae(by_slot)?;
    place(code, &mut next)?;
    word_slot(code, r10, r14)?;
    code.sub(r10, block!(words))?;
    code.add(r10, r10)?;
    code.add(r10, block!(cells))?;
    code.call(each)?;
    code.test(r8d, r8d)?;
    code.je(out)?;
    code.inc(r14)?;
    code.cmp(r14, r13)?;
    code.jbe(next)?;
    place(code, &mut out)?;
    code.ret()?;
    place(code, &mut by_slot)?;
    code.push(rbp)?;
    code.mov(rbp, 1_u64 << TABLE_BITS)?;
    code.mov(r10, block!(cells))?;
    place(code, &mut one)?;
    for at in [0, READS] {
        let mut other = code.create_label();
        code.mov(r14, qword_ptr(r10 + at))?;
        code.shl(r14, 64 - WORD_BITS)?;
        code.shr(r14, 64 - WORD_BITS)?;
        code.mov(rax, r14)?;
        code.sub(rax, r12)?;
        code.mov(rdx, r13)?;
        code.sub(rdx, r12)?;
        code.cmp(rax, rdx)?;
        code.ja(other)?;
        code.call(each)?;
        code.test(r8d, r8d)?;
        code.je(end)?;
        place(code, &mut other)?;
    }
    code.add(r10, 2 * READS)?;
    code.dec(rbp)?;
    code.jne(one)?;
    place(code, &mut end)?;
    code.pop(rbp)?;
    code.ret()
}
