//! Deferred signals: a thread that stands in code that no handler may see receives its signals later. Each signal keeps
//! its `siginfo_t`, and signals of one number keep their order.
//!
//! Only at a stop for a signal can a thread get one with its `siginfo_t`. So this process sends the thread a signal of
//! the same number once it may receive it, and replaces that. Should this process die in between, the thread receives
//! the signal all the same.

use std::{collections::VecDeque, io};

use inline::trampoline::Interrupted;

use super::{Resume, Supervisor, ThreadState, request};
use crate::status::Status;

#[derive(Debug, Default)]
pub(super) struct Deferred {
    signals: VecDeque<request::Signal>,
    /// A signal was sent for them, and has not been received.
    is_sent: bool,
    /// The thread is on its way to where it may receive them.
    is_leaving: bool,
    /// Stops of a system call on that way which is made: at its begin and its end.
    call_stops: u8,
}

impl Supervisor {
    /// Has a held thread go on without the signal that it is about to receive, up to the next system call, which is not
    /// made ([`Event::Call`](super::Event::Call)).
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn defer(&mut self, thread: u32) -> io::Result<()> {
        let id = thread as i32;
        let signal = request::signal(id)?;
        let is_own = self.takes_own(id, &signal);
        let deferred = self.deferred.entry(id).or_default();
        if !is_own {
            deferred.signals.push_back(signal);
        }
        deferred.is_leaving = true;
        self.set_state(id, ThreadState::Held(Resume::Continue(0)));
        Ok(())
    }

    /// Has a held thread go on up to the next system call, as [`defer`](Self::defer) does, and drops the signal that it
    /// is about to receive.
    pub fn send_out(&mut self, thread: u32) {
        let id = thread as i32;
        self.deferred.entry(id).or_default().is_leaving = true;
        self.set_state(id, ThreadState::Held(Resume::Continue(0)));
    }

    /// Has a held thread go on without the signal that it is about to receive, which it receives when it
    /// [is elsewhere](Self::meet_put_off).
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn put_off(&mut self, thread: u32) -> io::Result<()> {
        self.defer(thread)?;
        if let Some(deferred) = self.deferred.get_mut(&(thread as i32)) {
            deferred.is_leaving = false;
        }
        Ok(())
    }

    /// Has a held thread be about to receive the first of the signals that were [put off](Self::put_off), if there are
    /// any.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn meet_put_off(&mut self, thread: u32) -> io::Result<()> {
        let id = thread as i32;
        let Some(deferred) = self.deferred.get(&id).filter(|deferred| !deferred.is_leaving) else {
            return Ok(());
        };
        let Some(first) = deferred.signals.front().map(request::Signal::number) else {
            return Ok(());
        };
        let blocked = request::blocked_signals(id).unwrap_or(u64::MAX);
        self.arrive(thread)?;
        // It stops for the signal before its next instruction, unless it has blocked that meanwhile.
        if self.signal_of(thread) != 0
            || blocked >> (first - 1) & 1 != 0
            || !request::is_in_stop(id).unwrap_or(false)
        {
            return Ok(());
        }
        request::resume(id, Resume::Continue(0))?;
        match self.wait_for(id)? {
            Some(Status::Stopped { signal, event: 0 }) if signal != request::SYSTEM_CALL => {
                self.set_state(id, ThreadState::Held(Resume::Continue(signal)));
                self.deliver(thread)
            }
            Some(status) => self.take(id, status),
            None => Ok(()),
        }
    }

    /// Has a held thread receive what it is about to receive, after deferred signals of the same number.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn deliver(&mut self, thread: u32) -> io::Result<()> {
        let id = thread as i32;
        if !self.deferred.contains_key(&id) {
            return Ok(());
        }
        let signal = request::signal(id)?;
        let is_own = self.takes_own(id, &signal);
        let Some(deferred) = self.deferred.get_mut(&id) else { return Ok(()) };
        let number = signal.number();
        let first = deferred.signals.iter().position(|other| other.number() == number);
        match first.and_then(|first| deferred.signals.remove(first)) {
            Some(first) => {
                if !is_own {
                    deferred.signals.push_back(signal);
                }
                request::set_signal(id, &first)?;
            }
            None if is_own => self.set_state(id, ThreadState::Held(Resume::Continue(0))),
            None => {}
        }
        self.arrive(thread)
    }

    /// Notes that a held thread stands where it may receive signals.
    ///
    /// # Errors
    ///
    /// When a signal cannot be sent to it.
    pub fn arrive(&mut self, thread: u32) -> io::Result<()> {
        let id = thread as i32;
        let Some(deferred) = self.deferred.get_mut(&id) else { return Ok(()) };
        (deferred.is_leaving, deferred.call_stops) = (false, 0);
        match deferred.signals.front() {
            Some(first) if !deferred.is_sent => {
                deferred.is_sent = true;
                let number = first.number();
                let process = self.threads.get(&id).map_or(id, |thread| thread.process);
                request::send(process, id, number)
            }
            None if !deferred.is_sent => {
                self.deferred.remove(&id);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Has a held thread, which stands at a system call that is not made, go on elsewhere, where it may receive
    /// signals.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn arrive_at(&mut self, thread: u32, to: &Interrupted) -> io::Result<()> {
        self.set_interrupted(thread, to)?;
        self.arrive(thread)
    }

    /// Has a system call that a thread stands at, and that is not made, return a number.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn skip_call(&self, thread: u32, result: i64) -> io::Result<()> {
        let registers = request::registers(thread as i32)?;
        let rax = result.cast_unsigned();
        let registers = libc::user_regs_struct { rax, orig_rax: u64::MAX, ..registers };
        request::set_registers(thread as i32, registers)
    }

    /// Has a thread make the system call that it stands at.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn make_call(&mut self, thread: u32) -> io::Result<()> {
        const LENGTH: u64 = 2;
        let id = thread as i32;
        let registers = request::registers(id)?;
        let (rax, rip) = (registers.orig_rax, registers.rip - LENGTH);
        let registers = libc::user_regs_struct { rax, rip, orig_rax: u64::MAX, ..registers };
        request::set_registers(id, registers)?;
        if let Some(deferred) = self.deferred.get_mut(&id) {
            deferred.call_stops = 2;
        }
        Ok(())
    }

    /// Returns the number of the system call that a thread stands at.
    ///
    /// # Errors
    ///
    /// When it was killed.
    pub fn call_number(&self, thread: u32) -> io::Result<i64> {
        Ok(request::registers(thread as i32)?.orig_rax.cast_signed())
    }

    /// Returns how a thread goes on that is on its way to where it may receive signals.
    pub(super) fn leaving(&self, id: i32, signal: i32) -> Option<Resume> {
        let deferred = self.deferred.get(&id).filter(|deferred| deferred.is_leaving)?;
        let resume = if deferred.call_stops > 0 { Resume::ToCall } else { Resume::Emulate };
        Some(resume(signal))
    }

    /// Returns whether a thread has a deferred signal, and is on its way to where it may receive that.
    #[must_use]
    pub fn is_leaving(&self, thread: u32) -> bool {
        self.leaving(thread as i32, 0).is_some()
    }

    /// Takes the stop of a thread at a system call. Returns whether that is to be reported.
    pub(super) fn meets_deferred_call(&mut self, id: i32) -> bool {
        let deferred = self.deferred.get_mut(&id).filter(|deferred| deferred.is_leaving);
        deferred.is_some_and(|deferred| {
            let is_skipped = deferred.call_stops == 0;
            deferred.call_stops = deferred.call_stops.saturating_sub(1);
            is_skipped
        })
    }

    /// Sends a detached thread the signals that it has not received, without their `siginfo_t`.
    pub(super) fn send_deferred(&mut self, process: i32, id: i32) -> io::Result<()> {
        let Some(deferred) = self.deferred.remove(&id) else { return Ok(()) };
        let unsent = deferred.signals.iter().skip(usize::from(deferred.is_sent));
        unsent
            .map(request::Signal::number)
            .try_for_each(|number| request::send(process, id, number))
    }

    /// Returns whether this process has sent a signal in place of deferred ones.
    fn takes_own(&mut self, id: i32, signal: &request::Signal) -> bool {
        let deferred = self.deferred.get_mut(&id);
        deferred.is_some_and(|deferred| signal.is_own() && std::mem::take(&mut deferred.is_sent))
    }
}
