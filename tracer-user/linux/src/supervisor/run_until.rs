//! A single thread of a frozen process that goes on to a better place.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use super::{Resume, Supervisor, ThreadState, request};
use crate::{proc, status::Status};

impl Supervisor {
    /// Has a held thread run, for a short time again and again, until `is_there` returns true for the address of its
    /// next instruction. `receives` is called when it is about to receive a signal meanwhile, which
    /// [`signal_of`](Self::signal_of) returns then, and says whether it does: its handler is entered. Returns false if
    /// the thread is not there soon. Events that come meanwhile are returned later, as those of
    /// [`freeze`](Self::freeze).
    ///
    /// A thread at its end runs no code of the program any more, and counts as being there. So does a thread that waits
    /// for a child in its memory, for which there is an event.
    ///
    /// It does not execute single instructions, nor are signals blocked: a thread that loses its tracer then is killed
    /// by `SIGTRAP` (the kernel's `exit_ptrace` does not end the steps), or never gets a signal any more.
    ///
    /// # Errors
    ///
    /// When ptrace fails, or those of `is_there` and `receives`, but for those of a thread that has gone.
    pub fn run_until(
        &mut self,
        thread: u32,
        mut is_there: impl FnMut(&mut Self, u64) -> io::Result<bool>,
        mut receives: impl FnMut(&mut Self) -> io::Result<bool>,
    ) -> io::Result<bool> {
        /// Longest time in which it comes out of the code of a probe, and of a wait in it.
        const PATIENCE: Duration = Duration::from_secs(10);
        /// Times for which the thread runs, in turn: doubled from the first up to the second one, which is doubled
        /// itself with each turn, up to the third one. In a very short time it would execute no instruction, nor in a
        /// longer one where many threads wait for a processor; in a long time it fills its ring, and then nearly
        /// always waits for the reader when it is stopped.
        const SHORTEST: Duration = Duration::from_micros(20);
        const LONGEST_AT_FIRST: Duration = Duration::from_millis(1);
        const LONGEST: Duration = Duration::from_millis(64);
        /// Longest time for which it stands still in between, so that the reader makes room.
        const REST: Duration = Duration::from_millis(10);
        let id = thread as i32;
        let started = Instant::now();
        let (mut time, mut longest, mut rest) = (SHORTEST, LONGEST_AT_FIRST, Duration::ZERO);
        loop {
            let Ok(registers) = request::registers(id) else {
                // It was killed.
                return Ok(true);
            };
            if self.is_at_end(id) || self.threads.get(&id).is_some_and(|thread| thread.is_in_vfork)
            {
                return Ok(true);
            }
            // The fault of its present instruction is to be received here, and not where it is moved to.
            let awaits_fault = request::is_in_stop(id).unwrap_or(false)
                && unless_gone(request::awaits_fault(id))? == Some(true);
            if !awaits_fault && unless_gone(is_there(self, registers.rip))?.unwrap_or(true) {
                return Ok(true);
            }
            if started.elapsed() > PATIENCE {
                return Ok(false);
            }
            // It may stand before a signal already.
            let signal = self.signal_of(thread);
            let status = if signal == 0 {
                thread::sleep(rest);
                request::resume(id, Resume::Continue(0))?;
                thread::sleep(time);
                if time < longest {
                    time *= 2;
                } else {
                    time = SHORTEST;
                    longest = (longest * 2).min(LONGEST);
                    rest = (rest * 2).clamp(SHORTEST, REST);
                }
                // A thread that has stopped by itself would only stop again before its next instruction.
                if !request::is_in_stop(id).unwrap_or(false) {
                    request::interrupt(id)?;
                }
                let Some(status) = self.wait_for(id)? else { return Ok(true) };
                status
            } else {
                Status::Stopped { signal, event: 0 }
            };
            match status {
                Status::Stopped { signal, event: 0 } if signal != request::SYSTEM_CALL => {
                    self.set_state(id, ThreadState::Held(Resume::Continue(signal)));
                    let Some(receives) = unless_gone(receives(self))? else { return Ok(true) };
                    // If it does not stop, the next iteration looks at the event that it reports.
                    unless_gone(self.stop_again(id, if receives { signal } else { 0 }))?;
                }
                Status::Stopped { signal, event: libc::PTRACE_EVENT_STOP } => {
                    let is_stop = signal != libc::SIGTRAP;
                    let resume = if is_stop { Resume::Listen } else { Resume::Continue(0) };
                    self.set_state(id, ThreadState::Held(resume));
                }
                // It has ended, or stands within a system call.
                status => {
                    self.take(id, status)?;
                    if matches!(status, Status::Ended(_)) {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Returns whether no event is left to be returned, and no thread was created that has not stopped yet.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.pending.is_empty() && self.expected.is_empty()
    }
}

pub(super) fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if proc::is_gone(&error) => Ok(None),
        result => result.map(Some),
    }
}
