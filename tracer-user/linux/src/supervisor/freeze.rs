//! Stops of whole processes: no thread of a frozen one runs code of the program.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use super::{Resume, Supervisor, ThreadState, request};
use crate::{
    proc,
    status::{Status, poll_for_any, wait_for_any},
};

/// Time between two looks at a thread that may be about to wait for others in the kernel.
const PAUSE: Duration = Duration::from_micros(200);

impl Supervisor {
    /// Stops all threads of a process. Events that come meanwhile are returned later by
    /// [`next_event`](Self::next_event).
    ///
    /// A thread that waits in the kernel for a child that shares its memory does not stop, but runs no code either: it
    /// stops on its way out. The same holds for a thread that replaces the program while others are held at their ends:
    /// it waits for them (`de_thread` in the kernel's `fs/exec.c`).
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn freeze(&mut self, process: u32) -> io::Result<()> {
        self.freeze_by(process, None).map(drop)
    }

    /// Stops all threads of a process until a moment, as [`freeze`](Self::freeze) does. Returns the number of reports
    /// of the kernel that it took: of each thread that ran, its stop and that it creates one more, and the stop of that
    /// one. So it takes a bounded number, however fast a process creates threads.
    ///
    /// # Errors
    ///
    /// When ptrace fails, and `TimedOut` when a thread still runs then: it waits in the kernel for what cannot be
    /// interrupted.
    pub(super) fn freeze_by(&mut self, process: u32, until: Option<Instant>) -> io::Result<u32> {
        let process = process as i32;
        let mut reports = 0;
        self.frozen.insert(process);
        // Those that a thread creates on its way to the stop are held anyway.
        for (&id, thread) in self.threads.iter().filter(|(_, thread)| thread.process == process) {
            if thread.state == ThreadState::Running {
                request::interrupt(id)?;
            }
        }
        loop {
            let running = self.running(process);
            if running.is_empty() {
                if self.meet_faults(process)? {
                    continue;
                }
                return Ok(reports);
            }
            // A signal to this thread is noticed by whoever has sent it.
            let holds_an_end = self.holds_an_end(process);
            let report = if !holds_an_end && until.is_none() {
                wait_for_any()?
            } else if holds_an_end && running.iter().all(|&id| awaits_others(process, id)) {
                return Ok(reports);
            } else if until.is_some_and(|until| Instant::now() >= until) {
                let thread = running.first().copied().unwrap_or(process);
                let text = format!(
                    "its thread {thread} does not stop, as one that waits in the kernel for a device or a child (`cat \
                     /proc/{thread}/wchan`): try again when it goes on"
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            } else {
                poll_for_any()?.or_else(|| {
                    thread::sleep(PAUSE);
                    None
                })
            };
            if let Some((id, status)) = report {
                reports += 1;
                self.take(id, status)?;
            }
        }
    }

    /// Has threads that have made a fault, and were stopped before its signal was reported, go on to that report: the
    /// fault is of the instruction that they stand at, and would otherwise reach them wherever they are moved to
    /// (`get_signal` in the kernel's `kernel/signal.c` takes stops before signals). Those in a stop of their process
    /// stay there. Returns whether there is such a thread.
    fn meet_faults(&mut self, process: i32) -> io::Result<bool> {
        let threads = self.threads.iter().filter(|(_, thread)| thread.process == process);
        let stand = threads.filter(|(_, thread)| {
            thread.state == ThreadState::Held(Resume::Continue(0)) && !thread.has_ended
        });
        let stand: Vec<i32> = stand.map(|(&id, _)| id).collect();
        let mut is_any = false;
        for id in stand {
            let is_met = || {
                let awaits = request::is_in_stop(id)? && request::awaits_fault(id)?;
                if awaits {
                    request::resume(id, Resume::Continue(0))?;
                }
                io::Result::Ok(awaits)
            };
            if super::run_until::unless_gone(is_met())? == Some(true) {
                tracing::debug!(thread = id, "a fault comes before the stop");
                self.set_state(id, ThreadState::Running);
                is_any = true;
            }
        }
        Ok(is_any)
    }

    /// Waits until a thread of a frozen process that was let run stops or ends. Returns `None` if it does not before
    /// others that are held at their ends, or is not there any more: it runs no code of the program then.
    pub(super) fn wait_for(&mut self, id: i32) -> io::Result<Option<Status>> {
        self.wait_until(id, None)
    }

    /// Waits for a thread as [`wait_for`](Self::wait_for) does, until a moment. `TimedOut` says that it still runs.
    pub(super) fn wait_until(
        &mut self,
        id: i32,
        until: Option<Instant>,
    ) -> io::Result<Option<Status>> {
        loop {
            let Some(thread) = self.threads.get(&id) else { return Ok(None) };
            let process = thread.process;
            // The ends of others are reported while it waits for them.
            let holds_an_end = self.holds_an_end(process);
            let report = if holds_an_end || until.is_some() {
                let report = poll_for_any()?;
                if report.is_none() {
                    if holds_an_end && awaits_others(process, id) {
                        self.set_state(id, ThreadState::Running);
                        return Ok(None);
                    }
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    thread::sleep(PAUSE);
                }
                report
            } else {
                wait_for_any()?
            };
            match report {
                Some((reported, status)) if reported == id => return Ok(Some(status)),
                Some((other, status)) => self.take(other, status)?,
                None => {}
            }
        }
    }

    /// Returns whether a thread has come to its end, whether or not that was reported: let run from there, a main
    /// thread is not reported before the others have ended.
    pub(super) fn is_at_end(&self, id: i32) -> bool {
        self.threads.get(&id).is_none_or(|thread| thread.has_ended) || request::is_at_end(id)
    }

    pub(super) fn set_state(&mut self, id: i32, state: ThreadState) {
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.state = state;
        }
    }

    /// Returns whether a process is frozen.
    #[must_use]
    pub fn is_frozen(&self, process: u32) -> bool {
        self.frozen.contains(&(process as i32))
    }

    /// Returns the threads of a process that may run its code.
    fn running(&self, process: i32) -> Vec<i32> {
        let threads = self.threads.iter().filter(|(_, thread)| thread.process == process);
        // One that ends runs no code either; a main thread is not reported before the others have ended.
        let runs = threads.filter(|(_, thread)| {
            thread.state == ThreadState::Running && !thread.is_in_vfork && !thread.has_ended
        });
        runs.map(|(&id, _)| id).collect()
    }

    /// Returns whether a thread of a process is held at its end.
    fn holds_an_end(&self, process: i32) -> bool {
        let mut threads = self.threads.values().filter(|thread| thread.process == process);
        threads.any(|thread| thread.has_ended && thread.state != ThreadState::Running)
    }

    /// Lets all threads of a frozen process go on, except the threads of events that have not been returned.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn thaw(&mut self, process: u32) -> io::Result<()> {
        self.frozen.remove(&(process as i32));
        let mut waiting: Vec<i32> = self.pending.iter().flat_map(|event| event.threads()).collect();
        waiting.extend(&self.held);
        waiting.extend(self.expected.values().map(|birth| birth.parent));
        for id in self.threads(process).into_iter().map(u32::cast_signed) {
            if !waiting.contains(&id) {
                self.go_on(id)?;
            }
        }
        Ok(())
    }
}

/// Returns whether a thread waits for others of its process: within a system call that replaces the program, or as a
/// main thread that has ended.
fn awaits_others(process: i32, thread: i32) -> bool {
    let (process, thread) = (process as u32, thread as u32);
    let call = proc::system_call(process, thread);
    matches!(call, Some(libc::SYS_execve | libc::SYS_execveat))
        || proc::Stat::of_thread(process, thread)
            .is_ok_and(|stat| stat.state == proc::ProcessState::Ended)
}
