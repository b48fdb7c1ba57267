//! Registers of held threads.

use std::{io, ops::RangeInclusive};

use inline::trampoline::Interrupted;

use super::{
    Supervisor, ThreadState,
    request::{self, Resume},
};

impl Supervisor {
    /// Returns the thread pointer and the GS base of a held thread.
    ///
    /// # Errors
    ///
    /// When it was killed.
    pub fn bases(&self, thread: u32) -> io::Result<(u64, u64)> {
        let registers = request::registers(thread as i32)?;
        Ok((registers.fs_base, registers.gs_base))
    }

    /// Returns the next instruction and the stack pointer of a held thread.
    ///
    /// # Errors
    ///
    /// When it was killed.
    pub fn place(&self, thread: u32) -> io::Result<(u64, u64)> {
        let registers = request::registers(thread as i32)?;
        Ok((registers.rip, registers.rsp))
    }

    /// Returns the address that the fault of a held thread is about.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn fault_address(&self, thread: u32) -> io::Result<u64> {
        request::fault_address(thread as i32)
    }

    /// Returns the reason (`si_code`) of the signal that a held thread is about to receive, and the process that has
    /// sent it, if one has.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn signal_cause(&self, thread: u32) -> io::Result<(i32, u32)> {
        request::signal_cause(thread as i32)
    }

    /// Returns the signal that a held thread is about to receive, or 0.
    #[must_use]
    pub fn signal_of(&self, thread: u32) -> i32 {
        match self.threads.get(&(thread as i32)).map(|thread| thread.state) {
            Some(ThreadState::Held(Resume::Continue(signal) | Resume::ToCall(signal))) => signal,
            _ => 0,
        }
    }

    /// Has a held thread receive another signal than it was about to, or no signal (0).
    pub fn replace_signal(&mut self, thread: u32, signal: i32) {
        self.set_state(thread as i32, ThreadState::Held(Resume::Continue(signal)));
    }

    /// Has a held thread go on at another instruction, without the signal that it was about to receive.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn redirect(&mut self, thread: u32, to: u64) -> io::Result<()> {
        let id = thread as i32;
        let registers = request::registers(id)?;
        request::set_registers(id, libc::user_regs_struct { rip: to, ..registers })?;
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.state = ThreadState::Held(Resume::Continue(0));
        }
        Ok(())
    }

    /// Has a held thread go on behind an `rdtsc` that has made a fault, with this value of the counter and without the
    /// signal that it was about to receive.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn read_time_stamp(&mut self, thread: u32, value: u64) -> io::Result<()> {
        const LENGTH: u64 = 2;
        let id = thread as i32;
        let registers = request::registers(id)?;
        let (rax, rdx, rip) = (value & u64::from(u32::MAX), value >> 32, registers.rip + LENGTH);
        request::set_registers(id, libc::user_regs_struct { rax, rdx, rip, ..registers })?;
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.state = ThreadState::Held(Resume::Continue(0));
        }
        Ok(())
    }

    /// Has a held thread go on at another instruction of the same code, with the signal that it is about to receive.
    /// Returns false where it stands after a system call that the kernel is about to make again, or has gone.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn relocate(&mut self, thread: u32, to: u64) -> io::Result<bool> {
        /// Results of system calls that are made again (`include/linux/errno.h`).
        const RESTARTS: RangeInclusive<i64> = -516..=-512;
        let id = thread as i32;
        let Ok(registers) = request::registers(id) else { return Ok(false) };
        let is_call = registers.orig_rax.cast_signed() >= 0;
        if is_call && RESTARTS.contains(&registers.rax.cast_signed()) {
            return Ok(false);
        }
        request::set_registers(id, libc::user_regs_struct { rip: to, ..registers })?;
        Ok(true)
    }

    /// Sets the GS base of a held thread.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn set_gs_base(&self, thread: u32, base: u64) -> io::Result<()> {
        request::set_gs_base(thread as i32, base)
    }

    /// Returns the general registers of a held thread with its next instruction, and its GS base.
    ///
    /// # Errors
    ///
    /// When it was killed.
    pub fn interrupted(&self, thread: u32) -> io::Result<(Interrupted, u64)> {
        let r = request::registers(thread as i32)?;
        let general = [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ];
        Ok((Interrupted { general, place: r.rip }, r.gs_base))
    }

    /// Sets the general registers and the next instruction of a held thread, which receives its signal there. A system
    /// call that it has made is not made again.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn set_interrupted(&self, thread: u32, to: &Interrupted) -> io::Result<()> {
        let mut r = request::registers(thread as i32)?;
        [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ] = to.general;
        (r.rip, r.orig_rax) = (to.place, u64::MAX);
        request::set_registers(thread as i32, r)
    }
}
