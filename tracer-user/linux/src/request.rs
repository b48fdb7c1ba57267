//! Requests of ptrace, shared by all tracers of this crate. A request that changes a thread succeeds for a thread that
//! was killed meanwhile: the next wait reports its end.

use std::{io, mem::offset_of};

use libc::user_regs_struct as Registers;
use nix::{
    errno::Errno,
    sys::ptrace::{self, Options},
    unistd::Pid,
};

/// Signal of the stops at system calls (`PTRACE_O_TRACESYSGOOD`).
pub(super) const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;

/// `PTRACE_SYSEMU` (`arch/x86/include/uapi/asm/ptrace-abi.h`).
const EMULATE: libc::c_uint = 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume {
    /// The thread goes on, with this signal or without one (0).
    Continue(i32),
    /// The thread goes on, with this signal or without one, to the begin or the end of a system call.
    ToCall(i32),
    /// The thread goes on, with this signal or without one, to the begin of a system call, which is not made, and which
    /// no filter for system calls sees.
    Emulate(i32),
    /// It executes one instruction. With a signal it enters the handler, and stops before the first instruction of
    /// that: until then it is in the kernel, which ends the single step.
    Step(i32),
    /// It stays in the stop of its process, and reports the end of that.
    Listen,
}

/// Signal with the kernel's data about it (`siginfo_t`).
#[derive(Clone, Copy)]
pub(super) struct Signal(libc::siginfo_t);

impl Signal {
    /// Returns its number.
    pub const fn number(&self) -> i32 {
        self.0.si_signo
    }

    /// Sets the address that it is about, of one for a fault.
    pub const fn set_address(&mut self, address: u64) {
        /// Place of `si_addr`.
        const ADDRESS: usize = 16;
        // SAFETY: the structure has 128 bytes, and all of its fields are numbers.
        unsafe { (&raw mut self.0).byte_add(ADDRESS).cast::<u64>().write(address) }
    }

    /// Returns whether this process has sent it to a thread.
    pub fn is_own(&self) -> bool {
        /// `SI_TKILL`.
        const TO_THREAD: i32 = -6;
        // SAFETY: the field is a number for signals of all kinds.
        let sender = unsafe { self.0.si_pid() }.cast_unsigned();
        // In a PID namespace of its own the thread sees no number.
        self.0.si_code == TO_THREAD && [0, std::process::id()].contains(&sender)
    }
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Signal").field(&self.number()).field(&self.0.si_code).finish()
    }
}

/// Number of requests after which this process kills itself, plus one; 0 for never.
#[cfg(test)]
static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Has this process kill itself after this number of requests, before the next one.
#[cfg(test)]
pub(super) fn die_before(requests: u64) {
    LAST.store(requests + 1, std::sync::atomic::Ordering::Relaxed);
}

/// Notes an instant at which this process may die, for tests.
#[cfg(test)]
fn instant() {
    if LAST.load(std::sync::atomic::Ordering::Relaxed) > 0
        && LAST.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1
    {
        let _ = nix::sys::signal::raise(nix::sys::signal::SIGKILL);
    }
}

#[cfg(not(test))]
const fn instant() {}

/// Seizes a process that does not stop for it.
pub(super) fn seize(process: i32, options: Options) -> io::Result<()> {
    Ok(ptrace::seize(Pid::from_raw(process), options)?)
}

/// Sets the options of one held thread; the threads that it creates inherit them.
pub(super) fn set_options(thread: i32, options: Options) -> io::Result<()> {
    unless_gone(ptrace::setoptions(Pid::from_raw(thread), options))
}

/// Makes a thread stop soon.
pub(super) fn interrupt(thread: i32) -> io::Result<()> {
    instant();
    unless_gone(ptrace::interrupt(Pid::from_raw(thread)))
}

/// Returns the signal that a held thread is about to receive.
pub(super) fn signal(thread: i32) -> io::Result<Signal> {
    Ok(Signal(ptrace::getsiginfo(Pid::from_raw(thread))?))
}

/// Replaces the signal that a held thread is about to receive by one of the same number.
pub(super) fn set_signal(thread: i32, signal: &Signal) -> io::Result<()> {
    instant();
    unless_gone(ptrace::setsiginfo(Pid::from_raw(thread), &signal.0))
}

pub(super) fn send(process: i32, thread: i32, signal: i32) -> io::Result<()> {
    instant();
    // SAFETY: the system call takes three numbers.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
    unless_gone(Errno::result(result).map(drop))
}

pub(super) fn resume(thread: i32, resume: Resume) -> io::Result<()> {
    unless_gone(match resume {
        Resume::Continue(signal) => request(libc::PTRACE_CONT, thread, signal),
        Resume::ToCall(signal) => request(libc::PTRACE_SYSCALL, thread, signal),
        Resume::Emulate(signal) => request(EMULATE, thread, signal),
        Resume::Step(signal) => request(libc::PTRACE_SINGLESTEP, thread, signal),
        Resume::Listen => request(libc::PTRACE_LISTEN, thread, 0),
    })
}

/// Detaches a held thread, which goes on with this signal or without one (0). Returns false if it was killed meanwhile.
pub(super) fn detach(thread: i32, signal: i32) -> io::Result<bool> {
    match request(libc::PTRACE_DETACH, thread, signal) {
        Err(Errno::ESRCH) => Ok(false),
        result => Ok(result.map(|()| true)?),
    }
}

/// Returns the message of the event that a thread stands at: the id of a child, or the exit status.
pub(super) fn message(thread: i32) -> io::Result<u64> {
    Ok(ptrace::getevent(Pid::from_raw(thread)).map(|message| message as u64)?)
}

pub(super) fn registers(thread: i32) -> io::Result<Registers> {
    Ok(ptrace::getregs(Pid::from_raw(thread))?)
}

pub(super) fn set_registers(thread: i32, registers: Registers) -> io::Result<()> {
    instant();
    Ok(ptrace::setregs(Pid::from_raw(thread), registers)?)
}

/// Returns whether a held thread has just executed the breakpoint at an address; then it goes back there.
pub(super) fn was_hit(thread: i32, address: u64) -> io::Result<bool> {
    let registers = self::registers(thread)?;
    // The breakpoint's own byte has been executed.
    if registers.rip != address + 1 {
        return Ok(false);
    }
    set_registers(thread, Registers { rip: address, ..registers })?;
    Ok(true)
}

/// Returns the floating-point and vector registers of a held thread, as `xsave` stores them in its standard format; the
/// first 512 bytes alone where the processor has no such instruction.
pub(super) fn extended_state(thread: i32) -> io::Result<Vec<u8>> {
    /// `NT_X86_XSTATE` of `<elf.h>`.
    const EXTENDED: usize = 0x202;
    /// Length of what `fxsave` stores, in bytes.
    const LEGACY: usize = 512;
    // More than any processor has.
    let mut state = vec![0u8; 1 << 16];
    let mut part = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    // SAFETY: the request writes at most as many bytes as the vector has, and their number to a local variable.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, thread, EXTENDED, &raw mut part) };
    if result == 0 {
        state.truncate(part.iov_len);
        return Ok(state);
    }
    // SAFETY: the request writes 512 bytes, and the vector has more.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETFPREGS, thread, 0, state.as_mut_ptr()) };
    Errno::result(result)?;
    state.truncate(LEGACY);
    Ok(state)
}

/// Returns the address that the signal is about which a thread is held for.
pub(super) fn fault_address(thread: i32) -> io::Result<u64> {
    let info = ptrace::getsiginfo(Pid::from_raw(thread))?;
    // SAFETY: the field is a number for signals of all kinds, and is no address for those that a process has sent.
    Ok(unsafe { info.si_addr() } as u64)
}

/// Returns the cause of the signal that a thread is held for (`si_code`), and its sender (`si_pid`).
pub(super) fn signal_cause(thread: i32) -> io::Result<(i32, u32)> {
    let info = ptrace::getsiginfo(Pid::from_raw(thread))?;
    // SAFETY: the field is a number for signals of all kinds, and the sender's for those that a process has sent.
    Ok((info.si_code, unsafe { info.si_pid() }.cast_unsigned()))
}

/// Returns whether a held thread has yet to receive the signal for a fault of its present instruction.
pub(super) fn awaits_fault(thread: i32) -> io::Result<bool> {
    /// Signals of faults (`SYNCHRONOUS_MASK` in the kernel's `kernel/signal.c`).
    const FAULTS: [i32; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP, libc::SIGFPE, libc::SIGSYS];
    /// Signals that are read at a time.
    const SOME: usize = 16;
    // SAFETY: `siginfo_t` is numbers and a union of them, for which zero is a value.
    let mut signals = [unsafe { std::mem::zeroed::<libc::siginfo_t>() }; SOME];
    let mut first = 0;
    loop {
        let part = libc::ptrace_peeksiginfo_args { off: first, flags: 0, nr: SOME as i32 };
        // SAFETY: the request reads a local variable, and writes at most as many signals as the array has.
        let count = unsafe {
            libc::ptrace(libc::PTRACE_PEEKSIGINFO, thread, &raw const part, signals.as_mut_ptr())
        };
        let count = Errno::result(count)? as usize;
        // Of a signal that a process has sent the code is 0 or negative.
        let is_fault = |s: &libc::siginfo_t| s.si_code > 0 && FAULTS.contains(&s.si_signo);
        if let Some(signal) = signals[..count].iter().find(|signal| is_fault(signal)) {
            return Ok(blocked_signals(thread)? >> (signal.si_signo - 1) & 1 == 0);
        }
        if count < SOME {
            return Ok(false);
        }
        first += SOME as u64;
    }
}

/// Returns whether a thread is held at an interrupt, or at the stop of its process.
pub(super) fn is_in_stop(thread: i32) -> io::Result<bool> {
    Ok(event(thread)? == libc::PTRACE_EVENT_STOP)
}

/// Returns whether a thread is held within a system call, for an event that the thread has caused.
pub(super) fn is_in_event(thread: i32) -> io::Result<bool> {
    Ok((libc::PTRACE_EVENT_FORK..=libc::PTRACE_EVENT_EXIT).contains(&event(thread)?))
}

/// Returns whether a thread is held at its end.
pub(super) fn is_at_end(thread: i32) -> bool {
    event(thread).is_ok_and(|event| event == libc::PTRACE_EVENT_EXIT)
}

/// Returns the event that a thread is held for; 0 where it is held for a signal or a system call.
fn event(thread: i32) -> io::Result<i32> {
    match ptrace::getsiginfo(Pid::from_raw(thread)) {
        // Of a signal that a process has sent it is 0 or negative.
        Ok(info) => Ok((info.si_code >> 8).max(0)),
        // A stop of the process has no more to it.
        Err(Errno::EINVAL) => Ok(libc::PTRACE_EVENT_STOP),
        Err(error) => Err(error.into()),
    }
}

/// Returns the word at a place in `struct user` of a held thread.
pub(super) fn user_word(thread: i32, place: usize) -> io::Result<u64> {
    let word = ptrace::read_user(Pid::from_raw(thread), place as ptrace::AddressType)?;
    Ok(word.cast_unsigned())
}

/// Sets the word at a place in `struct user` of a held thread.
pub(super) fn set_user_word(thread: i32, place: usize, word: u64) -> io::Result<()> {
    let place = place as ptrace::AddressType;
    Ok(ptrace::write_user(Pid::from_raw(thread), place, word.cast_signed())?)
}

pub(super) fn set_gs_base(thread: i32, base: u64) -> io::Result<()> {
    let field = offset_of!(Registers, gs_base) as ptrace::AddressType;
    unless_gone(ptrace::write_user(Pid::from_raw(thread), field, base.cast_signed()))
}

/// Returns the set of signals that a held thread blocks, a bit each from signal 1 on.
pub(super) fn blocked_signals(thread: i32) -> io::Result<u64> {
    let mut before = 0u64;
    // SAFETY: the request writes 8 bytes, the size of a set of signals in the kernel, to a local variable.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, thread, 8, &raw mut before) };
    Errno::result(result)?;
    Ok(before)
}

/// Replaces the set of signals that a held thread blocks.
pub(super) fn block_signals(thread: i32, blocked: u64) -> io::Result<()> {
    instant();
    // SAFETY: the request reads 8 bytes from a local variable.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, thread, 8, &raw const blocked) };
    Errno::result(result)?;
    Ok(())
}

fn request(request: libc::c_uint, thread: i32, signal: i32) -> Result<(), Errno> {
    instant();
    // SAFETY: these requests touch no memory of this process; the signal is passed by value.
    let result = unsafe { libc::ptrace(request, thread, 0, signal) };
    Errno::result(result).map(drop)
}

fn unless_gone(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::ESRCH) => Ok(()),
        result => Ok(result?),
    }
}
