//! Attaching to running processes: all their threads are seized and stopped.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{Event, Resume, Supervisor, ThreadState, TracedThread, request};
use crate::{
    proc::{self, ProcessState, Stat, Status as ProcessStatus},
    status::Status,
};

/// Longest time in which all threads of a process stop.
const PATIENCE: Duration = Duration::from_secs(10);

impl Supervisor {
    /// Traces a process that runs, and stops it. It goes on when this process dies.
    ///
    /// # Errors
    ///
    /// `EPERM` when it may not be traced, `ESRCH` when it has ended, `TimedOut` when a thread does not stop or executes
    /// nothing. Then this process has to end, which has those that did stop go on.
    pub fn attach(process: u32) -> io::Result<Self> {
        let mut supervisor = Self::empty();
        supervisor.seize_all(process)?;
        if supervisor.threads.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // Any other error comes again where memory is shared, with its reason.
        if let Err(error) = supervisor.try_call(process, Instant::now() + PATIENCE)
            && error.kind() == io::ErrorKind::TimedOut
        {
            let text = "its threads execute nothing, as where its control group is frozen: try again when it goes on";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        tracing::info!(process, threads = supervisor.threads.len(), "attached");
        Ok(supervisor)
    }

    /// Seizes and stops all threads of a process. Returns the number of lists of them that it took.
    ///
    /// A thread that is seized creates one more at most, which is traced from its start, as it stops for that and does
    /// not go on before the end. So a list has new ones only where threads that were not in the one before have created
    /// them: a bounded number of lists does for creators that stay, and of threads that end as soon as they have
    /// created the next one the first is seized that lives as long as it takes to read a list.
    pub(super) fn seize_all(&mut self, process: u32) -> io::Result<u32> {
        let until = Instant::now() + PATIENCE;
        let mut lists = 0;
        loop {
            let before = lists;
            while {
                lists += 1;
                self.seize_listed(process, proc::threads(process)?)?
            } {
                if Instant::now() >= until {
                    let text = "it creates threads faster than they can be stopped: try again";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
            }
            // The kernel cuts a list short where a thread of it ends meanwhile: with all stopped it is known to be
            // whole.
            if lists == before + 1 {
                return Ok(lists);
            }
            self.freeze_by(process, Some(until))?;
        }
    }

    /// Seizes the threads of a list of a process's that are not seized yet. Returns whether there may be more: it has
    /// found some, or some of the list had ended, each of which may have created others, and has cut the list short.
    pub(super) fn seize_listed(&mut self, process: u32, list: Vec<u32>) -> io::Result<bool> {
        let mut is_new = false;
        // The youngest first: if each creates the next one and ends, that is the one to catch.
        for thread in list.into_iter().rev() {
            let id = thread as i32;
            let is_known = self.threads.contains_key(&id) || self.newborn.contains(&id);
            if is_known || self.expected.contains_key(&id) || is_worker(process, thread) {
                continue;
            }
            match request::seize(id, self.options) {
                Ok(()) => {
                    self.threads
                        .insert(id, TracedThread::new(process as i32, ThreadState::Running));
                    is_new = true;
                }
                Err(error) if proc::is_gone(&error) => is_new = true,
                Err(error) if needs_no_tracer(process, thread) => {
                    tracing::debug!(process, thread, %error, "not seized: runs no code or is traced");
                }
                Err(error) => {
                    tracing::info!(process, thread, %error, "a thread cannot be seized");
                    // The threads that were seized go on without a tracer.
                    self.freeze(process)?;
                    self.detach(process)?;
                    return Err(error);
                }
            }
        }
        Ok(is_new)
    }

    /// Returns the next event that has happened already, as [`next_event`](Self::next_event) does; `None` without one.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn pending_event(&mut self) -> io::Result<Option<Event>> {
        if self.pending.is_empty() { Ok(None) } else { self.next_event().map(Some) }
    }

    /// Returns whether a thread was created that has not stopped yet.
    #[must_use]
    pub fn expects_birth(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Returns whether a thread of a process waits in the kernel for a child that shares its memory.
    #[must_use]
    pub fn is_in_vfork(&self, process: u32) -> bool {
        let mut threads = self.threads.values();
        threads.any(|thread| thread.process == process as i32 && thread.is_in_vfork)
    }

    /// Has a thread of a frozen process stand where it is about to execute its next instruction, outside of system
    /// calls and with no signal that it is about to receive. Returns false where it stands there already, or for an
    /// event of its start.
    pub(super) fn settle(&mut self, id: i32) -> io::Result<bool> {
        if request::is_in_stop(id)? {
            return Ok(false);
        }
        let state = self.threads.get(&id).map(|thread| thread.state);
        let signal = match state {
            Some(ThreadState::Held(Resume::Continue(signal) | Resume::ToCall(signal))) => signal,
            _ => 0,
        };
        if signal == 0 && !request::is_in_event(id)? {
            return Ok(false);
        }
        self.stop_again(id, signal)?;
        Ok(true)
    }

    /// Lets a held thread go on to the stop that comes before its next instruction. `ESRCH` says that it has come to
    /// its end before, or to another event.
    pub(super) fn stop_again(&mut self, id: i32, signal: i32) -> io::Result<()> {
        let gone = || Err(io::Error::from_raw_os_error(libc::ESRCH));
        if self.is_at_end(id) {
            return gone();
        }
        request::interrupt(id)?;
        request::resume(id, Resume::Continue(signal))?;
        loop {
            match self.wait_for(id)? {
                Some(Status::Stopped { signal, event: libc::PTRACE_EVENT_STOP }) => {
                    let is_stop = signal != libc::SIGTRAP;
                    let resume = if is_stop { Resume::Listen } else { Resume::Continue(0) };
                    self.set_state(id, ThreadState::Held(resume));
                    return Ok(());
                }
                // The end of a system call that was under way.
                Some(Status::Stopped { signal: request::SYSTEM_CALL, event: 0 }) => {
                    request::resume(id, Resume::Continue(0))?;
                }
                Some(status) => {
                    self.take(id, status)?;
                    return gone();
                }
                None => return gone(),
            }
        }
    }

    /// Returns the thread of a frozen process that can best make system calls for this one.
    pub(super) fn caller(&self, process: u32) -> i32 {
        let first = process as i32;
        let is_able = |id: &i32| {
            self.threads.get(id).is_some_and(|thread| {
                thread.process == first
                    && thread.state != ThreadState::Running
                    && !thread.has_ended
                    && !thread.is_in_vfork
            })
        };
        let stands = |id: &i32| is_able(id) && request::is_in_stop(*id).unwrap_or(false);
        let all = || std::iter::once(first).chain(self.threads.keys().copied());
        // Within a system call there is least to lose, should the thread lose its tracer meanwhile: a small stack has
        // no room for vector registers in the frame of `with_calls`.
        let is_in_call = |id: &i32| {
            stands(id) && request::registers(*id).is_ok_and(|r| r.orig_rax.cast_signed() >= 0)
        };
        // A signal that nobody has dealt with yet, as of a fault in a probe, would end the process.
        let has_no_signal = |id: &i32| is_able(id) && self.signal_of(id.cast_unsigned()) == 0;
        // At the entry point of its program there is one thread.
        all()
            .find(is_in_call)
            .or_else(|| all().find(stands))
            .or_else(|| all().find(has_no_signal))
            .or_else(|| all().find(is_able))
            .unwrap_or(first)
    }
}

/// Returns whether a thread that cannot be seized executes no code of the program, or is traced by this thread since it
/// was created.
pub(super) fn needs_no_tracer(process: u32, thread: u32) -> bool {
    let own = nix::unistd::gettid().as_raw().cast_unsigned();
    match (Stat::of_thread(process, thread), ProcessStatus::of_thread(process, thread)) {
        (Ok(stat), Ok(status)) => stat.state == ProcessState::Ended || status.tracer() == Some(own),
        (Err(error), _) | (_, Err(error)) => proc::is_gone(&error),
    }
}

/// Returns whether a thread is a worker of the kernel in the process, as for io_uring: it executes no code of the
/// program. The kernel lets it be traced, but does not announce new ones, and gives it the registers of its creator:
/// its GS base may be a probe's.
pub(super) fn is_worker(process: u32, thread: u32) -> bool {
    /// `PF_IO_WORKER` and `PF_USER_WORKER` of `include/linux/sched.h`.
    const WORKER: u32 = 0x10 | 0x4000;
    thread != process && Stat::of_thread(process, thread).is_ok_and(|stat| stat.flags & WORKER != 0)
}
