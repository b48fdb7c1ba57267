//! Handler of `SIGTRAP` for a program with watchpoints, should it lose its tracer: the debug registers stay set then,
//! and a hit would end it. While it is traced no hit comes to the handler.

use iced_x86::{
    IcedError,
    code_asm::{
        CodeAssembler, dword_ptr, eax, edi, edx, esi, qword_ptr, r10d, r12d, rax, rsi, rsp,
    },
};

/// Code of the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapHandler {
    /// Machine code, which does not depend on its address.
    pub code: Vec<u8>,
    /// Place in it of the handler for a program that has no handler: it returns from a hit, and dies of any other
    /// `SIGTRAP` as it would alone.
    pub default: u64,
    /// Place of the handler for a program that ignores `SIGTRAP`.
    pub ignore: u64,
    /// Place of the code that returns from the signal.
    pub restorer: u64,
}

impl TrapHandler {
    /// Emits the handler.
    ///
    /// # Errors
    ///
    /// No error is known: the instructions have a form at each address.
    pub fn emit() -> Result<Self, IcedError> {
        /// `TRAP_HWBKPT`.
        const HIT: i32 = 4;
        /// Place of the signal's code in `siginfo_t`.
        const CODE: i32 = 8;
        /// Size of the kernel's `struct sigaction`, and of its set of signals.
        const ACTION: i32 = 32;
        const SIGNALS: i32 = 8;
        const SIGTRAP: i32 = 5;
        const RT_SIGACTION: i32 = 13;
        const RT_SIGRETURN: i32 = 15;
        const GETPID: i32 = 39;
        const GETTID: i32 = 186;
        const TGKILL: i32 = 234;
        let mut code = CodeAssembler::new(64)?;
        let (mut default, mut ignore) = (code.create_label(), code.create_label());
        code.mov(eax, RT_SIGRETURN)?;
        code.syscall()?;
        code.set_label(&mut ignore)?;
        code.ret()?;
        code.set_label(&mut default)?;
        code.cmp(dword_ptr(rsi + CODE), HIT)?;
        code.je(ignore)?;
        // The default action from now on, which the signal meets that is sent anew: it is blocked until the return.
        code.sub(rsp, ACTION)?;
        code.xor(eax, eax)?;
        for word in (0..ACTION).step_by(8) {
            code.mov(qword_ptr(rsp + word), rax)?;
        }
        code.mov(edi, SIGTRAP)?;
        code.mov(rsi, rsp)?;
        code.xor(edx, edx)?;
        code.mov(r10d, SIGNALS)?;
        code.mov(eax, RT_SIGACTION)?;
        code.syscall()?;
        code.add(rsp, ACTION)?;
        code.mov(eax, GETPID)?;
        code.syscall()?;
        code.mov(r12d, eax)?;
        code.mov(eax, GETTID)?;
        code.syscall()?;
        code.mov(edi, r12d)?;
        code.mov(esi, eax)?;
        code.mov(edx, SIGTRAP)?;
        code.mov(eax, TGKILL)?;
        code.syscall()?;
        code.ret()?;
        let options = iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let assembled = code.assemble_options(0, options)?;
        let (default, ignore) = (assembled.label_ip(&default)?, assembled.label_ip(&ignore)?);
        Ok(Self { code: assembled.inner.code_buffer, default, ignore, restorer: 0 })
    }
}
