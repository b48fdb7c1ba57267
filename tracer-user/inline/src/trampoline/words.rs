//! Common code of accesses: the table of words, which shows repetitions. The logic is the same as in the BPF programs
//! (`tracer-ebpf/programs/src/table.rs`, `tracer-ebpf/programs/src/epoch.rs`).
//!
//! An access that is new is added to the table before its record is made. The table has no locks here: another thread
//! may take the slot between the two, and count its later accesses as repetitions although the record lies before them.
//! So the slot is looked at after the record's order was read. If another thread has it, it becomes shared, and the
//! order is read anew. The addition and that change are locked exchanges, which are visible before the look that
//! follows.
//!
//! Before that, an access to a word that the thread owns is deferred; otherwise the cells of the word change before the
//! order is read, and are looked at after it (`cells`). An access behind whose stack pointer the epoch has not begun
//! begins one, so that no open region of the epoch's begin has ended at a deferred access. So does an access that finds
//! another thread at its slot or its cells later than at its first look: what is deferred in its epoch comes after that
//! thread's record, too.

use abi::{AccessDescriptor, AccessRecord};
use iced_x86::code_asm::{
    AsmRegister64, CodeAssembler, CodeLabel, ah, al, cl, eax, ebx, ecx, edi, esi, qword_ptr, r8,
    r8d, r9, r9d, r10, r11, r11d, r12, r13, r14, r15, r15d, rax, rbp, rbx, rcx, rdi, rdx, rsi, rsp,
    sil,
};

use super::{
    assembler::{Emitted, block, place},
    cells,
    common::Entries,
    stacks,
};
use crate::layout::{Mode, WORD_BITS, WORD_SPREAD};

/// Largest access that can be a repetition, in bytes.
pub const MAX_BYTES: u64 = AccessDescriptor::MAX_USUAL as u64;

/// Number of low bits of a thread epoch that are the number of the epoch.
const EPOCH_BITS: u32 = 42;

/// Accesses in the slot of a word that threads share.
const SHARED: i32 = -1 << 16;

/// Place in a register of a flag of an access.
pub fn bit(flag: u8) -> u32 {
    flag.trailing_zeros()
}

/// Sets `slot` to the address of the slot of the word in `word`, which is the address divided by 8.
pub fn slot(code: &mut CodeAssembler, slot: AsmRegister64, word: AsmRegister64) -> Emitted {
    code.mov(slot, WORD_SPREAD)?;
    code.imul_2(slot, word)?;
    code.shr(slot, 64 - WORD_BITS)?;
    code.shl(slot, 4)?;
    code.add(slot, block!(words))
}

/// Makes the upper part of a slot's accesses from the word in a register: the thread's tag and the word.
pub fn tag(code: &mut CodeAssembler, word: AsmRegister64) -> Emitted {
    code.shl(word, 20)?;
    code.shr(word, 4)?;
    code.xor(word, block!(tag))
}

/// Compares an access with a slot's accesses in `r8` and thread epoch in `r9`: jumps to `uncovered` unless the same
/// thread has accessed the bytes `esi` of the word with the tag `rdx` in a way that covers the flags `edi`. `rax`
/// becomes the difference of the accesses and the tag. Changes `r8` and `r11`.
fn compare(code: &mut CodeAssembler, uncovered: CodeLabel) -> Emitted {
    code.mov(rax, r8)?;
    code.xor(rax, rdx)?;
    code.cmp(rax, 0xffff)?;
    code.ja(uncovered)?;
    code.mov(r8, r9)?;
    code.xor(r8, block!(epoch))?;
    code.shr(r8, EPOCH_BITS)?;
    code.jne(uncovered)?;
    code.mov(r8, r9)?;
    code.sub(r8, block!(incarnation))?;
    code.js(uncovered)?;
    // Bytes that cover: the lower mask unless the access commutes, the upper mask if it writes.
    code.bt(edi, bit(AccessDescriptor::COMMUTES))?;
    code.sbb(r8d, r8d)?;
    code.or(r8d, eax)?;
    code.bt(edi, bit(AccessDescriptor::WRITE))?;
    code.sbb(r11d, r11d)?;
    code.not(r11d)?;
    code.shl(r11d, 8)?;
    code.or(r11d, eax)?;
    code.shr(r11d, 8)?;
    code.and(r8d, r11d)?;
    code.not(r8d)?;
    code.and(r8d, esi)?;
    code.jne(uncovered)
}

/// Adds an access to the slot at `r10`, of which the accesses differ by `rax` from the tag `rdx`, and the thread epoch
/// is `r9`. The bytes are in `esi`, the flags in `edi`. Changes `rax`, `r8`, `r9` and `r11`. A locked instruction that
/// makes it visible is the caller's, unless it `is_locked`.
fn add(code: &mut CodeAssembler, is_locked: bool) -> Emitted {
    let [mut forget, mut known, mut covers_less, mut reads, mut write] =
        [(); 5].map(|()| code.create_label());
    code.cmp(rax, 0xffff)?;
    code.ja(forget)?;
    code.cmp(r9, block!(epoch))?;
    code.je(known)?;
    place(code, &mut forget)?;
    code.xor(eax, eax)?;
    place(code, &mut known)?;
    // Both masks are set where a plain store was: the bytes stay so.
    code.mov(r8d, eax)?;
    code.shr(r8d, 8)?;
    code.and(r8d, eax)?;
    code.and(r8d, esi)?;
    code.imul_3(r8d, r8d, 0x101)?;
    code.imul_3(r9d, esi, 0x101)?;
    // The bits that the access clears.
    code.mov(r11d, esi)?;
    code.test(edi, i32::from(AccessDescriptor::COMMUTES))?;
    code.jne(covers_less)?;
    code.test(edi, i32::from(AccessDescriptor::ATOMIC))?;
    code.jne(reads)?;
    code.test(edi, i32::from(AccessDescriptor::WRITE))?;
    code.jne(write)?;
    place(code, &mut reads)?;
    code.shl(r11d, 8)?;
    place(code, &mut covers_less)?;
    code.not(r11d)?;
    code.and(eax, r11d)?;
    code.and(r9d, r11d)?;
    place(code, &mut write)?;
    code.or(eax, r9d)?;
    code.or(eax, r8d)?;
    code.or(rax, rdx)?;
    code.mov(r8, block!(epoch))?;
    code.mov(qword_ptr(r10), r8)?;
    if is_locked { code.xchg(qword_ptr(r10 + 8), rax) } else { code.mov(qword_ptr(r10 + 8), rax) }
}

/// Marks the slot at `r10` as shared if another thread has it; `r9` is 1 then. Changes `rax`.
fn touch(code: &mut CodeAssembler) -> Emitted {
    let mut done = code.create_label();
    code.mov(rax, qword_ptr(r10))?;
    code.xor(rax, block!(epoch))?;
    code.shr(rax, EPOCH_BITS)?;
    code.je(done)?;
    code.cmp(qword_ptr(r10 + 8), SHARED)?;
    code.je(done)?;
    code.mov(qword_ptr(r10), 0)?;
    code.mov(rax, i64::from(SHARED))?;
    code.xchg(qword_ptr(r10 + 8), rax)?;
    code.mov(r9d, 1)?;
    place(code, &mut done)
}

/// Reads the order of the access with the word `rdi` to `r11`, after the cells of its words were changed by `take`,
/// until `look` finds that no other thread has taken a slot meanwhile (then `r9` has bit 0) or a cell (bit 1), so many
/// times at most. Jumps to `lost` if there was one that took a cell each time. Changes `rax`, `rdx`, `r8` and what
/// `take` and `look` change.
fn settle(
    code: &mut CodeAssembler,
    labels: &Entries<CodeLabel>,
    lost: CodeLabel,
    take: impl FnOnce(&mut CodeAssembler) -> Emitted,
    look: impl FnOnce(&mut CodeAssembler) -> Emitted,
) -> Emitted {
    let [mut again, mut fenced, mut unfenced, mut begun, mut settled] =
        [(); 5].map(|()| code.create_label());
    code.mov(r8d, ORDERS)?;
    place(code, &mut again)?;
    take(code)?;
    code.cmp(block!(cells), 0)?;
    code.jne(fenced)?;
    code.test(edi, i32::from(AccessDescriptor::ATOMIC))?;
    code.je(unfenced)?;
    place(code, &mut fenced)?;
    code.lfence()?;
    place(code, &mut unfenced)?;
    code.call(labels.order)?;
    code.mov(r11, rax)?;
    code.xor(r9d, r9d)?;
    look(code)?;
    code.test(r9d, r9d)?;
    code.je(settled)?;
    code.cmp(block!(epoch_sp), 0)?;
    code.je(begun)?;
    begin_epoch(code)?;
    place(code, &mut begun)?;
    code.dec(r8d)?;
    code.jne(again)?;
    code.test(r9d, 2)?;
    code.jne(lost)?;
    place(code, &mut settled)
}

/// Waits for room for the record of the access with the word `rdi`, unless it may have happened already: then the order
/// is read at once.
fn await_room(code: &mut CodeAssembler, labels: &Entries<CodeLabel>) -> Emitted {
    let mut has_happened = code.create_label();
    code.test(edi, i32::from(AccessDescriptor::AHEAD))?;
    code.je(has_happened)?;
    code.call(labels.room)?;
    place(code, &mut has_happened)
}

/// Most times that the order of an access is read.
const ORDERS: i32 = 100;

/// Begins an epoch with the record that is being made. The one that the access is of is on the stack. No access is
/// deferred in it before the record is published: a signal handler may come, and jump out of the code.
fn begin_epoch(code: &mut CodeAssembler) -> Emitted {
    code.inc(qword_ptr(rsp))?;
    code.inc(block!(epoch))?;
    code.mov(block!(epoch_sp), 0)
}

/// Begins an epoch, unless the access has begun one, if the accesses `rax` of the slot were another thread's when the
/// access was added to it, which has the tag `rdx`. Changes `rax`.
fn begin_if_taken(code: &mut CodeAssembler) -> Emitted {
    let mut done = code.create_label();
    code.test(rax, rax)?;
    code.je(done)?;
    code.xor(rax, rdx)?;
    code.cmp(rax, 0xffff)?;
    code.jbe(done)?;
    code.cmp(block!(epoch_sp), 0)?;
    code.je(done)?;
    begin_epoch(code)?;
    place(code, &mut done)
}

/// Compares the stack pointer of an access with that of the record that has begun the epoch. Changes `r8`.
fn compare_stack(code: &mut CodeAssembler, above: i32) -> Emitted {
    code.mov(r8, qword_ptr(rsp + (above + STACK_POINTER)))?;
    code.cmp(r8, block!(epoch_sp))
}

/// Offsets of a routine's arguments on the stack, above its return address.
const SITE: i32 = 8;
const STACK_POINTER: i32 = 16;

/// Largest access whose value a record has, in bytes.
const MAX_VALUE: i32 = 8;

/// Bytes of a page from whose last ones on no value is read, as the next page may not be mapped.
const PAGE: i32 = 1 << 12;

/// Loads by the program's pointers, and where the code goes on without them.
pub type Loads = Vec<(CodeLabel, CodeLabel)>;

/// Reads the value at the address `rcx` of an access with the word `rdi` to `rdx`, and adds to the word that there is
/// one. The access is to `one_word`, or to any number of them. Changes `rax` and `r8`.
///
/// The access may not have happened yet. Then it is about to: if the value cannot be read, the program makes the fault
/// itself. Threads of programs that are not traced any more read nothing, since nobody handles the fault.
fn value(code: &mut CodeAssembler, one_word: bool, loads: &mut Loads) -> Emitted {
    let (mut load, mut none) = (code.create_label(), code.create_label());
    code.cmp(block!(mode), Mode::Muted as i32)?;
    code.je(none)?;
    if one_word {
        // All of the word is on one page.
        code.mov(rax, rcx)?;
        code.and(rax, -8)?;
        place(code, &mut load)?;
        code.mov(rdx, qword_ptr(rax))?;
        code.mov(r8, rcx)?;
        code.shl(ecx, 3)?;
        code.shr(rdx, cl)?;
        code.mov(rcx, r8)?;
    } else {
        code.mov(rax, rdi)?;
        code.shr(rax, 32)?;
        code.cmp(eax, MAX_VALUE)?;
        code.ja(none)?;
        code.mov(eax, ecx)?;
        code.and(eax, PAGE - 1)?;
        code.cmp(eax, PAGE - MAX_VALUE)?;
        code.ja(none)?;
        place(code, &mut load)?;
        code.mov(rdx, qword_ptr(rcx))?;
    }
    code.or(rdi, AccessRecord::HAS_VALUE as i32)?;
    place(code, &mut none)?;
    loads.push((load, none));
    Ok(())
}

/// Makes the record of the access to the address `rcx` with the word `rdi`, the value `rdx` and the order `r11`. The
/// epoch that it is of is on the stack, and the arguments are `above` it. Changes what a record changes.
fn record(code: &mut CodeAssembler, above: i32, labels: &Entries<CodeLabel>) -> Emitted {
    code.mov(rax, qword_ptr(rsp + (above + SITE)))?;
    code.mov(rsi, qword_ptr(rsp + (above + STACK_POINTER)))?;
    code.mov(r9, rbp)?;
    code.mov(r10, qword_ptr(rsp))?;
    code.call(labels.access)
}

/// The routine of an access to one word: see [`Entries::access_one`].
pub fn access_one(
    code: &mut CodeAssembler,
    labels: &mut Entries<CodeLabel>,
    loads: &mut Loads,
) -> Emitted {
    let [mut not_own, mut fresh, mut contended, mut known, mut lost, mut out] =
        [(); 6].map(|()| code.create_label());
    let saved = [rdi, r8, r9, r10, r11, rbx, r12, r13];
    // The epoch is on the stack, too.
    let above = 8 * (saved.len() as i32 + 1);
    place(code, &mut labels.access_one)?;
    for register in saved {
        code.push(register)?;
    }
    code.push(block!(epoch))?;
    code.mov(r10, rdx)?;
    code.mov(rdi, rax)?;
    code.mov(rdx, rcx)?;
    code.shr(rdx, 3)?;
    tag(code, rdx)?;
    cells::find(code)?;
    code.je(not_own)?;
    compare_stack(code, above)?;
    code.ja(fresh)?;
    cells::compare(code, not_own)?;
    code.mov(rax, qword_ptr(r10 + 8))?;
    code.mov(r9, qword_ptr(r10))?;
    code.xor(rax, rdx)?;
    code.push(r11)?;
    add(code, false)?;
    code.pop(r11)?;
    code.mov(rax, qword_ptr(rsp + (above + SITE)))?;
    code.mov(rdx, qword_ptr(rsp))?;
    cells::defer(code)?;
    code.je(out)?;
    // Another thread has come.
    code.mov(rdx, rcx)?;
    code.shr(rdx, 3)?;
    tag(code, rdx)?;
    place(code, &mut fresh)?;
    code.xor(r9d, r9d)?;
    code.jmp(contended)?;
    place(code, &mut not_own)?;
    code.mov(r8, qword_ptr(r10 + 8))?;
    code.mov(r9, qword_ptr(r10))?;
    code.mov(rax, r8)?;
    code.xor(rax, rdx)?;
    code.test(r8, r8)?;
    code.je(known)?;
    compare(code, contended)?;
    code.jmp(known)?;
    place(code, &mut contended)?;
    begin_epoch(code)?;
    place(code, &mut known)?;
    add(code, true)?;
    begin_if_taken(code)?;
    stacks::note(code, qword_ptr(rsp + (above + STACK_POINTER)))?;
    await_room(code, labels)?;
    settle(
        code,
        labels,
        lost,
        |code| cells::take_one(code, labels, lost),
        |code| {
            touch(code)?;
            cells::look_one(code)
        },
    )?;
    value(code, true, loads)?;
    record(code, above, labels)?;
    place(code, &mut out)?;
    code.lea(rsp, qword_ptr(rsp + 8))?;
    for register in saved.into_iter().rev() {
        code.pop(register)?;
    }
    code.ret()?;
    place(code, &mut lost)?;
    code.inc(block!(lost))?;
    code.jmp(out)
}

/// The routine of an access to any number of words: see [`Entries::access_many`].
pub fn access_many(
    code: &mut CodeAssembler,
    labels: &mut Entries<CodeLabel>,
    loads: &mut Loads,
) -> Emitted {
    let [mut large, mut compared, mut added, mut added_all, mut out] =
        [(); 5].map(|()| code.create_label());
    let [mut next, mut look, mut uncovered, mut begins, mut fresh, mut lost] =
        [(); 6].map(|()| code.create_label());
    let (mut no_cells, mut touch_all) = (code.create_label(), code.create_label());
    let saved = [rdi, r8, r9, r10, r11, rbx, r12, r13, r14, r15];
    let above = 8 * (saved.len() as i32 + 1);
    place(code, &mut labels.access_many)?;
    for register in saved {
        code.push(register)?;
    }
    code.push(block!(epoch))?;
    code.mov(rdi, rax)?;
    code.mov(rbx, rcx)?;
    // The first word and the last one.
    code.mov(r12, rcx)?;
    code.shr(r12, 3)?;
    code.shr(rax, 32)?;
    code.lea(r13, qword_ptr(rcx + rax - 1))?;
    code.shr(r13, 3)?;
    code.cmp(rax, MAX_BYTES as i32)?;
    code.ja(large)?;
    // Bit 0: new; bit 1: contended.
    code.xor(r15d, r15d)?;
    code.mov(r14, r12)?;
    place(code, &mut look)?;
    word(code)?;
    code.mov(r8, qword_ptr(r10 + 8))?;
    code.mov(r9, qword_ptr(r10))?;
    compare(code, uncovered)?;
    code.cmp(r9, block!(epoch))?;
    code.je(next)?;
    code.or(r15d, 1)?;
    code.jmp(next)?;
    place(code, &mut uncovered)?;
    code.or(r15d, 1)?;
    code.xor(rax, rdx)?;
    code.je(next)?;
    code.or(r15d, 2)?;
    place(code, &mut next)?;
    code.inc(r14)?;
    code.cmp(r14, r13)?;
    code.jbe(look)?;
    code.test(r15d, r15d)?;
    code.je(out)?;
    code.test(r15d, 2)?;
    code.jne(begins)?;
    code.cmp(block!(cells), 0)?;
    code.je(fresh)?;
    compare_stack(code, above)?;
    code.jbe(fresh)?;
    place(code, &mut begins)?;
    begin_epoch(code)?;
    place(code, &mut fresh)?;
    code.mov(r14, r12)?;
    place(code, &mut added)?;
    word(code)?;
    code.mov(rax, qword_ptr(r10 + 8))?;
    code.mov(r9, qword_ptr(r10))?;
    code.xor(rax, rdx)?;
    add(code, true)?;
    begin_if_taken(code)?;
    code.inc(r14)?;
    code.cmp(r14, r13)?;
    code.jbe(added)?;
    code.jmp(added_all)?;
    place(code, &mut large)?;
    begin_epoch(code)?;
    code.call(touch_all)?;
    place(code, &mut added_all)?;
    code.mov(rcx, rbx)?;
    stacks::note(code, qword_ptr(rsp + (above + STACK_POINTER)))?;
    await_room(code, labels)?;
    settle(
        code,
        labels,
        lost,
        |code| {
            code.call(labels.cells_take_all)?;
            code.test(r8d, r8d)?;
            code.je(lost)?;
            code.push(r15)
        },
        |code| {
            code.call(touch_all)?;
            code.call(labels.cells_add_all)?;
            code.pop(rax)?;
            code.cmp(rax, r15)?;
            code.je(no_cells)?;
            code.or(r9d, 2)?;
            place(code, &mut no_cells)
        },
    )?;
    value(code, false, loads)?;
    record(code, above, labels)?;
    code.call(touch_all)?;
    place(code, &mut out)?;
    code.lea(rsp, qword_ptr(rsp + 8))?;
    for register in saved.into_iter().rev() {
        code.pop(register)?;
    }
    code.ret()?;
    place(code, &mut lost)?;
    code.inc(block!(lost))?;
    code.jmp(out)?;
    // Looks at the slots of all words; if there are as many as slots, at all slots. Changes what `touch` does, and
    // `r10`, `r14` and `r15`.
    let [mut by_slot, mut one] = [(); 2].map(|()| code.create_label());
    place(code, &mut touch_all)?;
    code.mov(r14, r12)?;
    code.mov(r15, r13)?;
    code.sub(r15, r12)?;
    code.cmp(r15, 1 << WORD_BITS)?;
    code.jae(by_slot)?;
    place(code, &mut compared)?;
    slot(code, r10, r14)?;
    touch(code)?;
    code.inc(r14)?;
    code.cmp(r14, r13)?;
    code.jbe(compared)?;
    code.ret()?;
    place(code, &mut by_slot)?;
    code.mov(r10, block!(words))?;
    code.mov(r15d, 1 << WORD_BITS)?;
    place(code, &mut one)?;
    touch(code)?;
    code.add(r10, 16)?;
    code.dec(r15)?;
    code.jne(one)?;
    code.ret()
}

/// Finds for the word `r14` of the access to `rbx` up to the word `r13`, from the word `r12` on: the slot `r10`, the
/// tag `rdx`, and the accessed bytes `esi`. The size is above the flags in `rdi`. Changes `rcx` and `r8`.
fn word(code: &mut CodeAssembler) -> Emitted {
    let (mut inner, mut last) = (code.create_label(), code.create_label());
    slot(code, r10, r14)?;
    code.mov(rdx, r14)?;
    tag(code, rdx)?;
    code.mov(esi, 0xff)?;
    code.cmp(r14, r12)?;
    code.jne(inner)?;
    code.mov(ecx, ebx)?;
    code.and(ecx, 7)?;
    code.shl(esi, cl)?;
    code.and(esi, 0xff)?;
    place(code, &mut inner)?;
    code.cmp(r14, r13)?;
    code.jne(last)?;
    code.mov(rcx, rdi)?;
    code.shr(rcx, 32)?;
    code.add(ecx, ebx)?;
    code.neg(ecx)?;
    code.and(ecx, 7)?;
    code.mov(r8d, 0xff)?;
    code.shr(r8d, cl)?;
    code.and(esi, r8d)?;
    place(code, &mut last)
}

/// Jumps to `skip` if the access to the address `rcx` of a known size up to 8 bytes and known flags is a repetition in
/// its thread's epoch, or to `many` if it is to two words. Leaves the slot in `rdx` and the bytes in `esi`. Changes
/// `rax`.
pub fn filter(
    code: &mut CodeAssembler,
    size: u64,
    flags: u8,
    skip: CodeLabel,
    many: CodeLabel,
) -> Emitted {
    let mut new = code.create_label();
    if size > 1 {
        code.mov(eax, ecx)?;
        code.and(eax, 7)?;
        code.cmp(eax, 8 - size as i32)?;
        code.ja(many)?;
    }
    code.mov(rax, rcx)?;
    code.shr(rax, 3)?;
    slot(code, rdx, rax)?;
    tag(code, rax)?;
    code.mov(esi, (1 << size) - 1)?;
    if size < 8 {
        // Of eight bits: by the three low bits of the address.
        code.rol(sil, cl)?;
    }
    code.xor(rax, qword_ptr(rdx + 8))?;
    code.cmp(rax, 0xffff)?;
    code.ja(new)?;
    let is = |flag: u8| flags & flag != 0;
    match (is(AccessDescriptor::WRITE), is(AccessDescriptor::COMMUTES)) {
        (_, true) => code.shr(eax, 8)?,
        (false, false) => {}
        (true, false) => code.and(al, ah)?,
    }
    code.not(eax)?;
    code.test(eax, esi)?;
    code.jne(new)?;
    code.mov(rax, block!(epoch))?;
    code.cmp(rax, qword_ptr(rdx))?;
    code.je(skip)?;
    place(code, &mut new)
}
