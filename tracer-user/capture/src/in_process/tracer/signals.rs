//! Signals that threads are about to receive: faults that are a probe's and not the program's, and signals that come in
//! the code of a record.

use std::{io, os::unix::fs::FileExt as _};

use inline::trampoline::Interrupted;

use super::{STRICT, Tracer};
use crate::in_process::withdrawal::Withdrawal;
use crate::in_process::{image::Image, signal_places::Place};
use linux::{
    proc::{self, Disposition},
    supervisor::Supervisor,
    time_stamp,
};

/// Has a thread give back the slots that it has reserved and not published, before it receives a signal: its handler
/// may never return.
pub(in crate::in_process) fn give_back(
    supervisor: &Supervisor,
    image: &Image,
    process: u32,
    thread: u32,
) {
    // A killed thread receives no signal.
    let Ok((mut interrupted, gs_base)) = supervisor.interrupted(thread) else { return };
    if image.give_back(&mut interrupted, gs_base, |at| word(process, at)) {
        // As above.
        let _ = supervisor.set_interrupted(thread, &interrupted);
    }
}

pub(super) fn word(process: u32, at: u64) -> Option<u64> {
    let mut word = [0; 8];
    proc::memory(process).ok()?.read_exact_at(&mut word, at).ok()?;
    Some(u64::from_le_bytes(word))
}

/// `SYS_USER_DISPATCH` (`include/uapi/asm-generic/siginfo.h`): a thread is to answer its system call itself.
const USER_DISPATCH: i32 = 2;

/// Has a thread in the code of probes go on behind a system call that the program answers, without the signal for that.
/// A wait for room is tried again, and a delay ends.
fn interrupt_call(supervisor: &mut Supervisor, thread: u32) -> io::Result<()> {
    supervisor.replace_signal(thread, 0);
    supervisor.skip_call(thread, -i64::from(libc::EINTR))
}

/// Returns whether the signal that a thread is about to receive is the program's. A fault that is a probe's is undone:
/// the thread goes on behind it. The hit of a watchpoint is none of the program's either.
///
/// # Errors
///
/// When ptrace fails.
pub(in crate::in_process) fn is_of_program(
    supervisor: &mut Supervisor,
    image: &Image,
    thread: u32,
) -> io::Result<bool> {
    /// `TRAP_HWBKPT` (`include/uapi/asm-generic/siginfo.h`).
    const WATCHPOINT_HIT: i32 = 4;
    match (supervisor.signal_of(thread), supervisor.signal_cause(thread)?.0) {
        (libc::SIGTRAP, WATCHPOINT_HIT) => return Ok(false),
        (libc::SIGSYS, USER_DISPATCH) if image.is_in_area(supervisor.place(thread)?.0) => {
            interrupt_call(supervisor, thread)?;
            return Ok(false);
        }
        // Not those that a process has sent.
        (libc::SIGSEGV | libc::SIGBUS, 1..) => {}
        _ => return Ok(true),
    }
    let (place, _) = supervisor.place(thread)?;
    if let Some(to) = image.after_fault(place) {
        supervisor.redirect(thread, to)?;
        return Ok(false);
    }
    if image.reads_time_stamp(place) {
        supervisor.read_time_stamp(thread, time_stamp::now())?;
        return Ok(false);
    }
    Ok(!lacks_memory(supervisor, image, thread)? || !gets_memory(supervisor, image, thread)?)
}

/// Returns whether the signal that a thread is about to receive is for a fault of a probe where no memory is mapped.
/// Other faults in probes are the program's: it jumped there itself, as a copy of code that has a probe does.
///
/// # Errors
///
/// When ptrace fails.
pub(super) fn lacks_memory(
    supervisor: &Supervisor,
    image: &Image,
    thread: u32,
) -> io::Result<bool> {
    /// `SEGV_MAPERR` (`include/uapi/asm-generic/siginfo.h`).
    const NOT_MAPPED: i32 = 1;
    let (place, _) = supervisor.place(thread)?;
    let cause = (supervisor.signal_of(thread), supervisor.signal_cause(thread)?.0);
    Ok(cause == (libc::SIGSEGV, NOT_MAPPED)
        && image.lacks_memory(place, supervisor.fault_address(thread)?))
}

/// Has a thread that has made a fault in a probe, whose memory the program has unmapped, go on there with other memory.
/// No thread of its process runs. Returns false where there is none for it.
///
/// # Errors
///
/// When ptrace fails.
pub(super) fn gets_memory(
    supervisor: &mut Supervisor,
    image: &Image,
    thread: u32,
) -> io::Result<bool> {
    let Some(process) = supervisor.process_of(thread) else { return Ok(false) };
    let signal = supervisor.signal_of(thread);
    supervisor.replace_signal(thread, 0);
    let mapped = image.map_again(supervisor, process);
    let is_mapped = mapped.is_ok();
    if let Err(error) = mapped {
        tracing::debug!(process, %error, "memory of probes cannot be mapped again");
        supervisor.replace_signal(thread, signal);
    }
    Ok(is_mapped)
}

/// Returns whether the signal that a thread is about to receive is for what an instruction of it has done.
///
/// # Errors
///
/// When ptrace fails.
pub(in crate::in_process) fn is_fault(supervisor: &Supervisor, thread: u32) -> io::Result<bool> {
    let signal = supervisor.signal_of(thread);
    let may_be = matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS
    );
    Ok(may_be && supervisor.signal_cause(thread)?.0 > 0)
}

/// Has a thread that stands in the code of probes go on elsewhere in it, and return to another place.
pub(super) fn go_on(
    supervisor: &Supervisor,
    process: u32,
    thread: u32,
    from: &Interrupted,
    to: &Interrupted,
    returns: Option<(u64, u64)>,
) -> io::Result<()> {
    if let Some((at, to)) = returns {
        proc::writable_memory(process)?.write_all_at(&to.to_le_bytes(), at)?;
    }
    // A system call that it is to make again stays one.
    if from == to { Ok(()) } else { supervisor.set_interrupted(thread, to) }
}

/// Returns whether the program sees the place of a thread that receives a signal, and the thread may leave it by jumps
/// in place of returns.
fn may_be_seen(supervisor: &Supervisor, thread: u32) -> bool {
    let signal = supervisor.signal_of(thread);
    signal != 0
        && proc::Status::of_process(thread).is_ok_and(|status| {
            status.disposition(signal) == Disposition::Handled && !status.has_shadow_stack()
        })
}

/// Returns whether the program has a handler of the signal that a thread is about to receive, or may have one.
pub(in crate::in_process) fn is_handled(supervisor: &Supervisor, thread: u32) -> bool {
    match supervisor.signal_of(thread) {
        0 => false,
        signal => proc::Status::of_process(thread)
            .map_or(true, |status| status.disposition(signal) == Disposition::Handled),
    }
}

impl Tracer {
    /// Has a thread receive a signal when it stands at a place of the program's own: now, or when it has left the code
    /// of probes.
    pub(super) fn receives(&mut self, process: u32, thread: u32) -> io::Result<()> {
        let image = self.image_of(process);
        if let Some(image) = &image
            && self.supervisor.signal_of(thread) == libc::SIGSYS
            && self.supervisor.signal_cause(thread)?.0 == USER_DISPATCH
        {
            self.note_unfit(process, Withdrawal::OwnSystemCalls);
            let (interrupted, _) = self.supervisor.interrupted(thread)?;
            if image.is_in_area(interrupted.place) {
                interrupt_call(&mut self.supervisor, thread)?;
                if self.supervisor.is_leaving(thread) {
                    self.comes_out(image, process, thread, &interrupted)?;
                }
                return Ok(());
            }
        }
        if let Some(image) = &image
            && matches!(self.supervisor.signal_of(thread), libc::SIGFPE | libc::SIGILL)
            && self.supervisor.signal_cause(thread)?.0 > 0
            && self.fails(image, process, thread)?
        {
            return Ok(());
        }
        let Some(image) = image.filter(|_| may_be_seen(&self.supervisor, thread)) else {
            return self.receives_here(process, thread);
        };
        let (interrupted, _) = self.supervisor.interrupted(thread)?;
        match image.place(&interrupted, |at| word(process, at)) {
            Place::Own => self.supervisor.deliver(thread),
            Place::Before(own) => {
                self.supervisor.set_interrupted(thread, &own)?;
                self.supervisor.deliver(thread)
            }
            Place::OnWay(to, returns) => {
                go_on(&self.supervisor, process, thread, &interrupted, &to, returns)?;
                self.supervisor.defer(thread)
            }
            Place::Inside => self.receives_here(process, thread),
        }
    }

    /// Has a thread receive a signal wherever it stands.
    fn receives_here(&mut self, process: u32, thread: u32) -> io::Result<()> {
        if let Some(image) = self.image_of(process) {
            give_back(&self.supervisor, &image, process, thread);
        }
        self.supervisor.deliver(thread)?;
        self.note_context(process, thread);
        Ok(())
    }

    /// Takes the stop of a thread at a system call: in the code of probes, on its way out of that, or elsewhere, where
    /// it may return from a handler.
    pub(super) fn calls(&mut self, process: u32, thread: u32) -> io::Result<()> {
        if !self.supervisor.is_leaving(thread) {
            return self.returns(process, thread);
        }
        let Some(image) = self.image_of(process) else { return self.supervisor.arrive(thread) };
        let (interrupted, _) = self.supervisor.interrupted(thread)?;
        if self.comes_out(&image, process, thread, &interrupted)? {
            return Ok(());
        }
        if !image.is_in_area(interrupted.place) {
            // A call of the program's own.
            self.supervisor.make_call(thread)?;
            return self.supervisor.arrive(thread);
        }
        match self.supervisor.call_number(thread)? {
            // Nothing waits: neither for room, for which it looks again, nor for the end of a delay.
            libc::SYS_futex | libc::SYS_restart_syscall => {
                self.supervisor.skip_call(thread, -i64::from(libc::EINTR))
            }
            _ => self.supervisor.make_call(thread),
        }
    }

    /// Has a thread go on at a place of the program's own if it stands at the end of its way out of the code of probes.
    /// Returns whether it does.
    fn comes_out(
        &mut self,
        image: &Image,
        process: u32,
        thread: u32,
        interrupted: &Interrupted,
    ) -> io::Result<bool> {
        let (fs_base, _) = self.supervisor.bases(thread)?;
        let read = |at| word(process, at);
        let Some(outside) = image.outside(interrupted, fs_base, read) else { return Ok(false) };
        match image.place(&outside, read) {
            Place::Own | Place::Inside => self.supervisor.arrive_at(thread, &outside)?,
            Place::Before(own) => self.supervisor.arrive_at(thread, &own)?,
            // Of redirected code.
            Place::OnWay(to, _) => self.supervisor.set_interrupted(thread, &to)?,
        }
        Ok(true)
    }

    /// Takes a `SIGSEGV` or `SIGBUS`.
    pub(super) fn faults(&mut self, process: u32, thread: u32) -> io::Result<()> {
        // Not one that a process has sent.
        let is_fault = self.supervisor.signal_cause(thread)?.0 > 0;
        match self.image_of(process).filter(|_| is_fault) {
            Some(image) => self.fault(&image, process, thread),
            None => self.receives(process, thread),
        }
    }

    /// Takes a `SIGTRAP`.
    pub(super) fn traps(&mut self, process: u32, thread: u32) -> io::Result<()> {
        if self.supervisor.signal_cause(thread)?.0 > 0 {
            return Ok(());
        }
        self.receives(process, thread)
    }

    /// Writes the program's own code to a copy of patched code, whose jump has led a thread to a place where there is
    /// none. Returns the address of the copy.
    fn restore_copy(
        &mut self,
        image: &Image,
        process: u32,
        thread: u32,
        place: u64,
    ) -> io::Result<Option<u64>> {
        if self.supervisor.fault_address(thread).ok() != Some(place) {
            return Ok(None);
        }
        let Ok(memory) = proc::writable_memory(process) else { return Ok(None) };
        let Some((copy, code)) = image.copied(&memory, place) else { return Ok(None) };
        // Others may be about to execute the same copy.
        self.supervisor.freeze(process)?;
        let written = memory.write_all_at(&code, copy);
        self.supervisor.thaw(process)?;
        Ok(written.ok().map(|()| copy))
    }

    /// Lets a thread go on whose fault is a probe's and not the program's.
    pub(super) fn fault(&mut self, image: &Image, process: u32, thread: u32) -> io::Result<()> {
        let (place, _) = self.supervisor.place(thread)?;
        if let Some(to) = image.after_fault(place) {
            return self.supervisor.redirect(thread, to);
        }
        if image.reads_time_stamp(place) {
            // The program has denied itself the counter (`PR_SET_TSC`), or all system calls but a few, of which waiting
            // for the reader is none (seccomp's strict mode).
            let status = proc::Status::of_process(thread);
            if status.is_ok_and(|status| status.seccomp() == Some(STRICT)) {
                image.never_wait(self.supervisor.bases(thread)?.1);
            }
            return self.supervisor.read_time_stamp(thread, time_stamp::now());
        }
        if self.has_own_base(image, thread, place)? {
            self.note_unfit(process, Withdrawal::OwnGsBase);
            return self.lend_block(image, process, thread);
        }
        if self.gets_memory(image, process, thread)? {
            return Ok(());
        }
        match self.restore_copy(image, process, thread, place)? {
            Some(copy) => self.supervisor.redirect(thread, copy),
            None if self.fails(image, process, thread)? => Ok(()),
            None => self.receives_here(process, thread),
        }
    }
}
