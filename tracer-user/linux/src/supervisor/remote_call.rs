//! System calls that a held thread makes for this process.
//!
//! The thread makes them by an instruction that the process has anyway, with a stack on which all its registers are
//! saved as for a signal: should it lose its tracer meanwhile, it returns from that signal, and goes on as before.

use std::{fs::File, io, os::unix::fs::FileExt as _, time::Instant};

use super::{Resume, Supervisor, extended_state, request};
use crate::{proc, status::Status};

impl Supervisor {
    /// Has a thread of a frozen process make system calls. Each call may depend on the results before it.
    /// Afterwards registers, signals and memory are as before, and a system call that was interrupted for the stop is
    /// made again.
    ///
    /// In a process without code to return from signals, an instruction is replaced meanwhile: if it loses its tracer
    /// within this, it does not survive.
    ///
    /// # Errors
    ///
    /// When ptrace fails, or the process ends. The results of the system calls are those of `calls`.
    pub fn with_calls<T>(
        &mut self,
        process: u32,
        calls: impl FnOnce(&mut RemoteCalls<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        /// Bytes below the stack pointer that are left alone.
        const RED_ZONE: u64 = 128;
        let thread = self.caller(process);
        self.settle(thread)?;
        let is_in_stop = request::is_in_stop(thread)?;
        let registers = request::registers(thread)?;
        let memory = proc::writable_memory(thread.cast_unsigned())?;
        let gadgets = Gadgets::find(thread.cast_unsigned(), &memory);
        let blocked = request::blocked_signals(thread)?;
        let mut original = [0; CALL.len()];
        if gadgets.is_none() {
            tracing::debug!(process, "no code to return from signals: an instruction is replaced");
            memory.read_exact_at(&mut original, registers.rip)?;
        }
        let state = extended_state::of_frame(request::extended_state(thread)?);
        // Memory below a small stack may be in use.
        let stack_of = |state: &[u8]| {
            let (lowest, _) = places(registers.rsp, state);
            let mut stack = vec![0; registers.rsp.saturating_sub(RED_ZONE + lowest) as usize];
            memory.read_exact_at(&mut stack, lowest).map(|()| stack)
        };
        let (state, stack) = match stack_of(&state) {
            Ok(stack) => (state, stack),
            // There is room for the other registers at least.
            Err(_) => (Vec::new(), stack_of(&[])?),
        };
        let (lowest, state_at) = places(registers.rsp, &state);
        let mut used = registers;
        used.orig_rax = u64::MAX;
        used.rip = if let Some(Gadgets { call, restore }) = gadgets {
            used.rsp = lowest;
            memory.write_all_at(&state, state_at)?;
            let state_at = if state.is_empty() { 0 } else { state_at };
            let frame = frame(restore, &restarted(registers), state_at, blocked);
            memory.write_all_at(&frame, used.rsp)?;
            // Until the first call it would return at once.
            let returning = libc::user_regs_struct { rip: restore, rsp: used.rsp + 8, ..used };
            request::set_registers(thread, returning)?;
            call
        } else {
            memory.write_all_at(&CALL, registers.rip)?;
            registers.rip
        };
        request::block_signals(thread, u64::MAX)?;
        let stack_pointer = registers.rsp;
        let mut remote = RemoteCalls {
            supervisor: self,
            thread,
            registers: used,
            stack_pointer,
            until: None,
            was_stopped: false,
            has_ended: false,
            is_late: false,
        };
        let result = calls(&mut remote);
        let RemoteCalls { was_stopped, has_ended, is_late, .. } = remote;
        if has_ended {
            return Err(gone());
        }
        if is_late {
            return result;
        }
        if gadgets.is_none() {
            memory.write_all_at(&original, registers.rip)?;
        }
        // Before the registers: until these are set the frame restores both.
        request::block_signals(thread, blocked)?;
        request::set_registers(thread, registers)?;
        if is_in_stop || was_stopped {
            // From there the kernel makes an interrupted system call again, and it stays in a stop of its process.
            self.stop_again(thread, 0)?;
        }
        // With its registers restored the thread needs the frame no more.
        memory.write_all_at(&stack, lowest)?;
        result
    }

    /// Has a process of which all threads are stopped make a system call without an effect, until a moment. A process
    /// that its control group has frozen stops for a tracer, and executes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`with_calls`](Self::with_calls), and `TimedOut`: then this process has to end, and the thread goes on
    /// as before.
    pub(super) fn try_call(&mut self, process: u32, until: Instant) -> io::Result<()> {
        self.with_calls(process, |calls| {
            calls.until = Some(until);
            // A filter may have another answer.
            match calls.call(libc::SYS_getpid, [0; 6]) {
                Err(error) if calls.is_late => Err(error),
                _ => Ok(()),
            }
        })
    }
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// Returns the places of a frame with these floating-point and vector registers, and of these: below what system calls
/// may use, which is below the red zone.
fn places(stack_pointer: u64, state: &[u8]) -> (u64, u64) {
    /// Distance of what system calls may use, with the red zone, and length of the frame.
    const IN_USE: u64 = 128 + 1024;
    const FRAME: u64 = 512;
    let state_at = stack_pointer.saturating_sub(IN_USE + state.len() as u64);
    let state_at = state_at & !(extended_state::ALIGNMENT - 1);
    (state_at.saturating_sub(FRAME), state_at)
}

/// Results of system calls that are made again (`include/linux/errno.h`).
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

/// Returns registers from which a thread that was interrupted within a system call makes it again, with its
/// present arguments: a time limit begins anew.
fn restarted(registers: libc::user_regs_struct) -> libc::user_regs_struct {
    let (call, result) = (registers.orig_rax, registers.rax.cast_signed());
    if call.cast_signed() < 0 || !RESTARTS.contains(&result) {
        return registers;
    }
    libc::user_regs_struct {
        rax: call,
        rip: registers.rip - CALL.len() as u64,
        orig_rax: u64::MAX,
        ..registers
    }
}

/// `syscall`.
const CALL: [u8; 2] = [0x0f, 0x05];

#[derive(Clone, Copy, Debug)]
struct Gadgets {
    /// `syscall; ret`.
    call: u64,
    /// `mov rax, 15; syscall`, which is `rt_sigreturn`.
    restore: u64,
}

impl Gadgets {
    /// Finds them in the executable mappings of a process, the smallest first.
    fn find(process: u32, memory: &File) -> Option<Self> {
        /// Longest mapping that is looked at, in bytes.
        const LONGEST: u64 = 8 << 20;
        const RETURN: &[u8] = &[0x0f, 0x05, 0xc3];
        const RESTORE: [&[u8]; 2] =
            [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];
        let mut ranges = executable(&proc::maps(process).ok()?);
        ranges.retain(|(start, end)| end - start <= LONGEST);
        ranges.sort_by_key(|(start, end)| end - start);
        let (mut call, mut restore) = (None, None);
        for (start, end) in ranges {
            let mut code = vec![0; (end - start) as usize];
            if memory.read_exact_at(&mut code, start).is_err() {
                continue;
            }
            let at = |place: usize| start + place as u64;
            let find = |bytes: &[u8]| memchr::memmem::find(&code, bytes).map(at);
            call = call.or_else(|| find(RETURN));
            restore = restore.or_else(|| RESTORE.into_iter().find_map(find));
            if let (Some(call), Some(restore)) = (call, restore) {
                return Some(Self { call, restore });
            }
        }
        None
    }
}

/// Returns the ranges of executable mappings.
fn executable(maps: &[u8]) -> Vec<(u64, u64)> {
    let maps = String::from_utf8_lossy(maps);
    let range = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        rest.starts_with("r-xp").then_some((number(start)?, number(end)?))
    };
    maps.lines().filter_map(range).collect()
}

/// Return address, and the frame of a signal behind it from which `rt_sigreturn` restores registers and blocked signals
/// (`arch/x86/include/uapi/asm/sigcontext.h`, `ucontext.h`). Without a place of floating-point and vector registers (0)
/// these are lost.
fn frame(restore: u64, registers: &libc::user_regs_struct, state_at: u64, blocked: u64) -> Vec<u8> {
    /// The state of vector registers says its length; the stack segment is in the frame, and restored as it is
    /// (`UC_FP_XSTATE`, `UC_SIGCONTEXT_SS`, `UC_STRICT_RESTORE_SS`).
    const FLAGS: u64 = 7;
    /// No state of a stack for signals: the present one stays.
    const KEEP_STACK: u64 = 7;
    let r = registers;
    let segments = r.cs & 0xffff | (r.ss & 0xffff) << 48;
    // Flags, link; the stack for signals.
    let mut words = vec![restore, FLAGS, 0, 0, KEEP_STACK, 0];
    words.extend([r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp]);
    words.extend([r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags, segments]);
    // Error, trap, old mask, address.
    words.extend([0; 4]);
    words.push(state_at);
    // Reserved.
    words.extend([0; 8]);
    words.push(blocked);
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Means of making system calls in another process.
#[derive(Debug)]
pub struct RemoteCalls<'a> {
    supervisor: &'a mut Supervisor,
    thread: i32,
    registers: libc::user_regs_struct,
    stack_pointer: u64,
    /// Moment until which calls are waited for.
    until: Option<Instant>,
    /// The process has been stopped meanwhile, or goes on after a stop.
    was_stopped: bool,
    has_ended: bool,
    /// A call was not made in time: the thread is not stopped.
    is_late: bool,
}

impl RemoteCalls<'_> {
    /// Makes a system call; returns its result.
    ///
    /// # Errors
    ///
    /// That of the system call, and when the process ends.
    pub fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> io::Result<u64> {
        let [first, second, third, fourth, fifth, sixth] = arguments;
        let registers = libc::user_regs_struct {
            rax: number as u64,
            rdi: first,
            rsi: second,
            rdx: third,
            r10: fourth,
            r8: fifth,
            r9: sixth,
            ..self.registers
        };
        let result = loop {
            let result = self.make(registers)?;
            // A stop of the process has come first.
            if !RESTARTS.contains(&result.cast_signed()) {
                break result;
            }
        };
        if result == number as u64 && self.awaits_bad_call()? {
            self.take_bad_call()?;
        }
        match result.cast_signed() {
            error @ -4095..0 => Err(io::Error::from_raw_os_error(-error as i32)),
            _ => Ok(result),
        }
    }

    /// Makes the system call of these registers; returns its result.
    fn make(&mut self, registers: libc::user_regs_struct) -> io::Result<u64> {
        request::set_registers(self.thread, registers)?;
        // Its begin and its end are reported.
        let (mut reports, mut received) = (0, 0);
        while reports < 2 {
            request::resume(self.thread, Resume::ToCall(std::mem::take(&mut received)))?;
            match self.wait()? {
                Status::Stopped { signal: request::SYSTEM_CALL, event: 0 } => reports += 1,
                status => received = self.pass_on(status),
            }
        }
        Ok(request::registers(self.thread)?.rax)
    }

    /// Waits until the thread stops. It is not resumed from its end, as it would not be reported before the others,
    /// which are held.
    fn wait(&mut self) -> io::Result<Status> {
        let status = self.supervisor.wait_until(self.thread, self.until);
        self.is_late = matches!(&status, Err(error) if error.kind() == io::ErrorKind::TimedOut);
        match status? {
            Some(status @ Status::Stopped { event, .. }) if event != libc::PTRACE_EVENT_EXIT => {
                return Ok(status);
            }
            Some(status) => self.supervisor.take(self.thread, status)?,
            None => {}
        }
        self.has_ended = true;
        Err(gone())
    }

    /// Takes a report other than a system call's. Returns the signal with which the thread goes on.
    fn pass_on(&mut self, status: Status) -> i32 {
        match status {
            // It cannot be blocked. The process is stopped by it, and this thread goes on until its calls are made.
            Status::Stopped { signal: libc::SIGSTOP, event: 0 } => libc::SIGSTOP,
            Status::Stopped { event: libc::PTRACE_EVENT_STOP, .. } => {
                self.was_stopped = true;
                0
            }
            Status::Stopped { .. } | Status::Ended(_) => 0,
        }
    }

    /// Returns whether the thread is about to get `SIGSYS`: a filter has denied the call, and put its number back to
    /// where its result would be (`__seccomp_filter` in `kernel/seccomp.c`).
    fn awaits_bad_call(&self) -> io::Result<bool> {
        let pending = proc::Status::of_process(self.thread as u32)?.pending_signals();
        Ok(pending.is_some_and(|pending| pending >> (libc::SIGSYS - 1) & 1 != 0))
    }

    /// Has the thread get `SIGSYS`, which either ends it or is withheld from the program.
    ///
    /// # Errors
    ///
    /// In any case: that the process has ended, or that the call is not permitted.
    fn take_bad_call(&mut self) -> io::Result<()> {
        let mut received = 0;
        loop {
            request::resume(self.thread, Resume::ToCall(received))?;
            match self.wait()? {
                Status::Stopped { signal: libc::SIGSYS, event: 0 } => {
                    return Err(io::Error::from_raw_os_error(libc::EPERM));
                }
                status => received = self.pass_on(status),
            }
        }
    }

    /// Reads the status of the thread that makes the calls.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn status(&self) -> io::Result<proc::Status> {
        proc::Status::of_process(self.thread.cast_unsigned())
    }

    /// Returns the stack pointer: the 1,024 bytes from 128 bytes below it on are free.
    #[must_use]
    pub const fn stack_pointer(&self) -> u64 {
        self.stack_pointer
    }
}
