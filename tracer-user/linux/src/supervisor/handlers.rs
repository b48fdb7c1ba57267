//! Handlers of signals: threads that stop when they enter one, and when they may return from one.

use std::io;

use super::{Event, Resume, Supervisor, ThreadState, request};

impl Supervisor {
    /// Has a held thread stop before the first instruction of the handler of the signal that it is about to receive
    /// ([`Event::Entered`]). It has such a handler.
    pub fn enter_handler(&mut self, thread: u32) {
        self.entering.insert(thread as i32);
    }

    /// Returns whether a held thread is about to enter a handler, before which it stops.
    #[must_use]
    pub fn enters_handler(&self, thread: u32) -> bool {
        self.entering.contains(&(thread as i32))
    }

    /// Has a thread stop at the begin and the end of each system call ([`Event::Call`]), or no more.
    pub fn stop_at_calls(&mut self, thread: u32, stops: bool) {
        if stops {
            self.returning.insert(thread as i32);
        } else {
            self.returning.remove(&(thread as i32));
        }
    }

    /// Sets the address that the signal is about which a held thread is about to receive for a fault.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn set_fault_address(&self, thread: u32, address: u64) -> io::Result<()> {
        let mut signal = request::signal(thread as i32)?;
        signal.set_address(address);
        request::set_signal(thread as i32, &signal)
    }

    /// Takes the stop of a thread that was about to enter a handler. Returns whether it has.
    pub(super) fn meets_handler(&mut self, id: i32) -> io::Result<bool> {
        // `signal_setup_done` of the kernel, by `ptrace_notify`.
        if request::signal_cause(id)?.0 != libc::SIGTRAP {
            return Ok(false);
        }
        self.set_state(id, ThreadState::Held(Resume::Continue(0)));
        let process = self.threads.get(&id).map_or(id, |thread| thread.process);
        self.pending.push_back(Event::Entered { process: process as u32, thread: id as u32 });
        Ok(true)
    }

    /// Returns whether a thread stops at its system calls.
    pub(super) fn may_return(&self, id: i32) -> bool {
        self.returning.contains(&id) && self.leaving(id, 0).is_none()
    }
}
