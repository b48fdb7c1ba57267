//! System calls that a held thread makes for this process, at the entry point of its program.

use std::{io, os::unix::fs::FileExt as _};

use super::{Supervisor, request, request::Resume};
use crate::sys::{
    proc,
    status::{Status, wait},
};

/// System call: its number, and its arguments.
pub type Call = (libc::c_long, [u64; 6]);

impl Supervisor {
    /// Has the only thread of a process, which is held at executable memory, make system calls. Each may depend on the
    /// results of those before. Afterwards registers, signals and memory are as before.
    ///
    /// The code there is replaced meanwhile: a process that loses its tracer within this does not survive.
    ///
    /// # Errors
    ///
    /// When ptrace fails, or the process ends. The results of the system calls are those of `calls`.
    pub fn with_calls<T>(
        &mut self,
        process: u32,
        calls: impl FnOnce(&mut RemoteCalls) -> io::Result<T>,
    ) -> io::Result<T> {
        let thread = process as i32;
        let registers = request::registers(thread)?;
        // The breakpoint's signal would lose its disposition if it were blocked (`kernel/signal.c`,
        // `force_sig_info_to_task`).
        let blocked = request::block_signals(thread, !(1 << (libc::SIGTRAP - 1)))?;
        let memory = proc::writable_memory(process)?;
        let mut original = [0; CODE.len()];
        memory.read_exact_at(&mut original, registers.rip)?;
        memory.write_all_at(&CODE, registers.rip)?;
        let mut remote = RemoteCalls { thread, registers, has_ended: false };
        let result = calls(&mut remote);
        if remote.has_ended {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        memory.write_all_at(&original, registers.rip)?;
        request::set_registers(thread, registers)?;
        request::block_signals(thread, blocked)?;
        result
    }
}

/// `syscall; int3`.
const CODE: [u8; 3] = [0x0f, 0x05, 0xcc];

/// Means of making system calls in another process.
#[derive(Debug)]
pub struct RemoteCalls {
    thread: i32,
    registers: libc::user_regs_struct,
    /// Set once the process has ended.
    has_ended: bool,
}

impl RemoteCalls {
    /// Makes a system call; returns its result.
    ///
    /// # Errors
    ///
    /// That of the system call, and when the process ends.
    pub fn call(&mut self, (number, arguments): Call) -> io::Result<u64> {
        let [first, second, third, fourth, fifth, sixth] = arguments;
        let registers = libc::user_regs_struct {
            rax: number as u64,
            // No system call is to be restarted.
            orig_rax: u64::MAX,
            rdi: first,
            rsi: second,
            rdx: third,
            r10: fourth,
            r8: fifth,
            r9: sixth,
            ..self.registers
        };
        request::set_registers(self.thread, registers)?;
        loop {
            request::resume(self.thread, Resume::Continue(0))?;
            match wait(self.thread)? {
                Status::Stopped { signal: libc::SIGTRAP, event: 0 } => break,
                // A stop of the process, which cannot be blocked.
                Status::Stopped { .. } => {}
                Status::Ended(_) => {
                    self.has_ended = true;
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
        }
        let result = request::registers(self.thread)?.rax;
        match result.cast_signed() {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            _ => Ok(result),
        }
    }

    /// Returns the stack pointer: the memory from 128 bytes below it on is free.
    #[must_use]
    pub const fn stack_pointer(&self) -> u64 {
        self.registers.rsp
    }
}
