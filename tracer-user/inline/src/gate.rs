//! Gate in the dynamic linker: code in place of the function that it calls around each change of its list of libraries.
//! A thread that has changed the list announces that and waits until avtrace opens the gate, as long as avtrace lives.

use core::mem::{offset_of, size_of};

use iced_x86::{IcedError, code_asm::*};

use crate::{
    arena::{CONTROL, MUTED},
    layout::{Control, FROM_GS_BASE, Mode, ThreadBlock},
    memory::{Offset, ProcessAddress},
};

/// Number of threads that can wait at once, over all processes that share the file.
pub const WAITERS: usize = 128;

/// Bit of a waiting thread's id once avtrace has taken note of it.
pub const NOTED: u32 = 1 << 31;

/// State of the gate, at [`GATE`].
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Number of changes so far: the next one has the place of that number among the waiting threads.
    pub next: u32,
    /// Futex: number of changes that were announced.
    pub announced: u32,
    /// 0.
    pub unused: [u32; 14],
    /// Futexes: the ids of the threads that wait, perhaps with [`NOTED`]. A thread goes on when its own is not there
    /// any more.
    pub waiting: [u32; WAITERS],
}

/// Place of the gate's state in the shared file.
pub const GATE: Offset = Offset(1024);

const _: () = {
    assert!(CONTROL.0 + size_of::<Control>() as u64 <= GATE.0);
    assert!(GATE.0 + size_of::<Gate>() as u64 <= MUTED.0);
    assert!(WAITERS.is_power_of_two());
};

/// Value of `r_state` of `<link.h>` outside of changes, and its distance from the start of `r_debug` in bytes.
const CONSISTENT: i32 = 0;
const STATE: i32 = 24;

/// System call, and its operations.
const FUTEX: i32 = 202;
const FUTEX_WAIT: i32 = 0;
const FUTEX_WAKE: i32 = 1;

/// Mark of the kernel on [`Control::reader`] when the reader has died.
const OWNER_DIED: i32 = 0x4000_0000;

/// Longest wait for the gate, in nanoseconds: then the thread looks whether avtrace lives.
const LONGEST_WAIT: i32 = 100_000_000;

/// Emits the gate, a function that the linker calls and that can be at any address. `list` is the address of the
/// linker's
/// `r_debug`, and `base` where the process has mapped the shared file.
///
/// # Errors
///
/// No error: all instructions can be encoded.
pub fn emit(list: u64, base: ProcessAddress) -> Result<Vec<u8>, IcedError> {
    const NEXT: i32 = offset_of!(Gate, next) as i32;
    const ANNOUNCED: i32 = offset_of!(Gate, announced) as i32;
    const WAITING: i32 = offset_of!(Gate, waiting) as i32;
    const LAST: i32 = WAITERS as i32 - 1;
    let thread = dword_ptr(FROM_GS_BASE + offset_of!(ThreadBlock, tid) as u64).gs();
    let reader = CONTROL.plus(offset_of!(Control, reader) as u64).in_process(base);
    let mut code = CodeAssembler::new(64)?;
    let (mut wait, mut done) = (code.create_label(), code.create_label());
    // A function may change these registers: `rax`, `rcx`, `rdx`, `rsi`, `rdi` and `r8` to `r11`.
    code.mov(rax, list)?;
    code.cmp(dword_ptr(rax + STATE), CONSISTENT)?;
    code.jne(done)?;
    let mode = qword_ptr(FROM_GS_BASE + offset_of!(ThreadBlock, mode) as u64).gs();
    code.cmp(mode, Mode::Muted as i32)?;
    code.je(done)?;
    code.mov(r8, GATE.in_process(base).0)?;
    code.mov(r9d, 1)?;
    code.lock().xadd(dword_ptr(r8 + NEXT), r9d)?;
    code.and(r9d, LAST)?;
    code.lea(r9, qword_ptr(r8 + r9 * 4 + WAITING))?;
    code.mov(eax, thread)?;
    code.mov(dword_ptr(r9), eax)?;
    code.lock().inc(dword_ptr(r8 + ANNOUNCED))?;
    code.lea(rdi, qword_ptr(r8 + ANNOUNCED))?;
    code.mov(esi, FUTEX_WAKE)?;
    code.mov(edx, i32::MAX)?;
    code.mov(eax, FUTEX)?;
    code.syscall()?;
    code.set_label(&mut wait)?;
    code.mov(edx, dword_ptr(r9))?;
    code.mov(ecx, edx)?;
    code.and(ecx, !NOTED as i32)?;
    code.cmp(ecx, thread)?;
    code.jne(done)?;
    code.mov(rcx, reader.0)?;
    code.mov(ecx, dword_ptr(rcx))?;
    code.test(ecx, ecx)?;
    code.je(done)?;
    code.test(ecx, OWNER_DIED)?;
    code.jne(done)?;
    // The time limit.
    code.push(LONGEST_WAIT)?;
    code.push(0)?;
    code.mov(r10, rsp)?;
    code.mov(rdi, r9)?;
    code.mov(esi, FUTEX_WAIT)?;
    code.mov(eax, FUTEX)?;
    code.syscall()?;
    code.add(rsp, 16)?;
    code.jmp(wait)?;
    code.set_label(&mut done)?;
    code.ret()?;
    code.assemble(0)
}
