//! Programs of functions that allocate and free memory: see `tracer-ebpf/programs/src/alloc.rs`.

use abi::{AllocCookie, Kind, SiteId};
use iced_x86::code_asm::{eax, ecx, edx, r9, rax, rcx, rdi, rdx, rsi};

use super::{
    assembler::{Assembler, Emitted, place},
    calls,
    frame::Frame,
    programs::{RAX, RBP, RDI, RDX, RSI},
};

/// Records the free of the block in the first argument, if there is one. The old size is in the second argument.
pub fn free(asm: &mut Assembler<'_>, frame: &Frame, cookie: AllocCookie) -> Emitted {
    let mut none = asm.code.create_label();
    frame.load(asm, rcx, RDI)?;
    asm.code.test(rcx, rcx)?;
    asm.code.je(none)?;
    if cookie.has(AllocCookie::OLD_SIZE) {
        frame.load(asm, rdx, RSI)?;
    } else {
        asm.code.xor(edx, edx)?;
    }
    calls::block_word(&mut asm.code, Kind::Free)?;
    caller(asm, frame, cookie.depth(), cookie.0.site())?;
    asm.code.call(asm.common.entries.record)?;
    place(&mut asm.code, &mut none)
}

/// Stores an allocation at its entry, and records the free of a reallocated block.
pub fn enter(asm: &mut Assembler<'_>, frame: &Frame, cookie: AllocCookie) -> Emitted {
    let has = |flag: u8| cookie.has(flag);
    if has(AllocCookie::OLD) {
        free(asm, frame, cookie)?;
    }
    let (number, next) = match (has(AllocCookie::SECOND), has(AllocCookie::THIRD)) {
        (false, false) => (RDI, Some(RSI)),
        (true, false) => (RSI, Some(RDX)),
        (_, true) => (RDX, None),
    };
    frame.load(asm, rcx, number)?;
    if has(AllocCookie::PRODUCT) {
        // A product that overflows makes the call fail.
        match next {
            Some(next) => {
                frame.load(asm, rax, next)?;
                asm.code.imul_2(rcx, rax)?;
            }
            None => asm.code.xor(ecx, ecx)?,
        }
    }
    frame.load(asm, r9, RDI)?;
    frame.load(asm, rdi, RSI)?;
    asm.code.mov(rdx, cookie.0.0)?;
    asm.code.lea(rsi, frame.stack(cookie.depth() as i32))?;
    asm.code.call(asm.common.entries.alloc_insert)
}

/// Records an allocation at a `ret`, or at a tail call of a function that returns its first argument.
pub fn end(asm: &mut Assembler<'_>, frame: &Frame, cookie: AllocCookie) -> Emitted {
    frame.load(asm, rax, if cookie.has(AllocCookie::FIRST) { RDI } else { RAX })?;
    frame.load(asm, r9, RBP)?;
    asm.code.lea(rsi, frame.stack(0))?;
    asm.code.call(asm.common.entries.alloc_end)
}

/// Loads what a record of a call has of its caller: the stack pointer after the return, the return address and the
/// frame pointer; and the site.
pub fn caller(asm: &mut Assembler<'_>, frame: &Frame, depth: u64, site: SiteId) -> Emitted {
    let depth = depth as i32;
    asm.code.lea(rsi, frame.stack(depth + 8))?;
    asm.code.mov(rdi, frame.stack(depth))?;
    frame.load(asm, r9, RBP)?;
    asm.code.mov(eax, site.0)
}
