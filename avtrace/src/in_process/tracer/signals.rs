//! Signals that threads are about to receive: faults that are a probe's and not the program's, and signals that come in
//! the code of a record.

use std::{io, os::unix::fs::FileExt as _};

use super::{super::image::Image, STRICT, Tracer};
use crate::sys::{
    proc::{self, Disposition},
    supervisor::Supervisor,
    time_stamp,
};

/// Has a thread give back the slots that it has reserved and not published, before it receives a signal: its handler
/// may never return.
pub(in crate::in_process) fn give_back(
    supervisor: &Supervisor,
    image: &Image,
    (process, thread): (u32, u32),
) {
    // One that was killed receives none.
    let Ok((mut interrupted, gs_base)) = supervisor.interrupted(thread) else { return };
    let read = |at| {
        let mut word = [0; 8];
        proc::memory(process).ok()?.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_le_bytes(word))
    };
    if image.give_back(&mut interrupted, gs_base, read) {
        // As above.
        let _ = supervisor.set_interrupted(thread, &interrupted);
    }
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
    Ok(true)
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
    /// Writes the program's own code to a copy of patched code, whose jump has led a thread to a place where there is
    /// none. Returns the address of the copy.
    fn restore_copy(
        &mut self,
        image: &Image,
        (process, thread): (u32, u32),
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
    pub(super) fn fault(&mut self, image: &Image, (process, thread): (u32, u32)) -> io::Result<()> {
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
        match self.restore_copy(image, (process, thread), place)? {
            Some(copy) => self.supervisor.redirect(thread, copy),
            None => {
                give_back(&self.supervisor, image, (process, thread));
                Ok(())
            }
        }
    }
}
