//! A thread held under ptrace, starting from the `SIGSTOP` that a BPF program sent it. `seized_thread/protocol.rs` says
//! how the tracer reacts to each report of the kernel.
//!
//! A stop signal stops the whole process, and outlives avtrace. So the tracer turns it into a ptrace stop of the one
//! thread, which the kernel undoes when avtrace dies: the tracer seizes the thread, sends it a `SIGCONT` that continues
//! the process, and holds the thread on its way to receive that signal, which it never does.
//!
//! A held thread can be killed at any moment, by its process's end or another thread's `execve`. Its tracer must wait
//! for it then: until it is reaped neither its process nor that `execve` comes to its end (`kernel/exit.c`,
//! `delay_group_leader`; `fs/exec.c`, `de_thread`).

mod protocol;
#[cfg(test)]
mod tests;

use std::{
    cell::{Cell, RefCell},
    io,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        ptrace::Options,
        signal::{Signal, kill},
    },
    unistd::Pid,
};

use self::protocol::{Action, HoldReport, HoldState, next};
use super::{
    proc::{self, Stat},
    request::{self, Resume},
    status::{TraceeChange, wait_as_tracer},
};

/// Time limit for a thread to stop after a stop signal. It is in the kernel, on its way out.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

thread_local! {
    /// Main threads that have ended while this thread traced them and before the rest of their processes. Each is
    /// reported at the end of its process, and to its parent only after that.
    static UNREAPED_MAIN_THREADS: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
}

/// Thread under ptrace. It goes on when this is dropped, or when this process dies.
///
/// All its methods must be called from the thread that caught it (ptrace(2)).
#[derive(Debug)]
pub struct SeizedThread {
    pid: i32,
    thread: i32,
    /// Set for a main thread that is a child of this process: its end must stay to be waited for.
    is_child: bool,
    by: HeldBy,
}

#[derive(Debug)]
enum HeldBy {
    /// The stop of its process, which is continued when this is dropped.
    Signal { _stopped: Stopped },
    Ptrace {
        state: Cell<HoldState>,
        /// The signals that it blocks, while it is made to receive one of them.
        mask: Cell<Option<u64>>,
    },
}

/// A process that a signal has stopped; it is continued when this is dropped.
#[derive(Debug)]
struct Stopped {
    pid: i32,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // A process that has ended does not need it.
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGCONT);
    }
}

/// Reason for which a thread could not be held. If its process was stopped, it is continued when this is dropped.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SeizeError {
    error: io::Error,
    _stopped: Option<Stopped>,
}

impl SeizeError {
    /// Error for a process that was to be stopped again, and may be stopped since before.
    #[must_use]
    pub fn stopped(pid: u32) -> Self {
        let stopped = Stopped { pid: pid as i32 };
        Self { _stopped: Some(stopped), ..Self::never_stopped() }
    }

    /// Error for a process that was never stopped.
    #[must_use]
    pub fn never_stopped() -> Self {
        Self { error: io::Error::other("it could not be stopped"), _stopped: None }
    }
}

/// Result of letting a thread run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// The thread is held again, at the expected stop.
    Stop,
    /// The process has replaced its program once more: another stop follows.
    Replaced,
    /// The thread has ended, or is not held by this process any more.
    Gone,
}

impl SeizedThread {
    /// Seizes a thread to which `SIGSTOP` was sent. Returns `None` when the thread has ended meanwhile.
    ///
    /// If the thread has another tracer, its process stays stopped until this is dropped.
    ///
    /// # Errors
    ///
    /// When it does not stop, or cannot be looked at. The process goes on once the error is dropped.
    pub fn await_and_seize(
        pid: u32,
        thread: u32,
        is_child: bool,
    ) -> Result<Option<Self>, SeizeError> {
        let stopped = Stopped { pid: pid as i32 };
        match await_stop(pid, thread) {
            Ok(true) => {}
            Ok(false) => return Ok(gone(stopped)),
            Err(error) => return Err(SeizeError { error, _stopped: Some(stopped) }),
        }
        Self::seize_stopped(stopped, thread, is_child)
    }

    /// Seizes a thread of a process that a signal has stopped.
    fn seize_stopped(
        stopped: Stopped,
        thread: u32,
        is_child: bool,
    ) -> Result<Option<Self>, SeizeError> {
        let (pid, tid) = (stopped.pid as u32, thread as i32);
        match request::seize(tid, Options::PTRACE_O_TRACEEXEC) {
            Ok(()) => {}
            // That a thread has ended is another error than that it has gone (`kernel/ptrace.c`, `ptrace_attach`).
            Err(_) if has_ended(pid, thread) => return Ok(gone(stopped)),
            Err(error) => {
                tracing::info!(pid, thread, %error, "another tracer: the whole process stays stopped");
                let pid = stopped.pid;
                let by = HeldBy::Signal { _stopped: stopped };
                return Ok(Some(Self { pid, thread: tid, is_child: false, by }));
            }
        }
        let state = Cell::new(HoldState::Seized);
        let seized = Self {
            pid: stopped.pid,
            thread: tid,
            is_child: is_child && pid == thread,
            by: HeldBy::Ptrace { state, mask: Cell::new(None) },
        };
        // It may run by now, if somebody has continued its process.
        seized.interrupt();
        match seized.follow(|| false) {
            Ok(HoldState::Gone) => Ok(gone(stopped)),
            Ok(state) => {
                tracing::debug!(pid, thread, ?state, "a thread was seized");
                // The stop by the signal is over.
                std::mem::forget(stopped);
                Ok(Some(seized))
            }
            Err(error) => Err(SeizeError { error, _stopped: Some(stopped) }),
        }
    }

    /// Lets it run until it receives a `SIGSTOP` for which `is_due` holds, which it never gets.
    ///
    /// # Errors
    ///
    /// When ptrace fails, as for a thread that was not caught by it.
    pub fn run_to_stop(&self, is_due: impl Fn() -> bool) -> io::Result<StopOutcome> {
        let HeldBy::Ptrace { state, .. } = &self.by else {
            return Err(io::Error::other("another tracer holds it"));
        };
        let (running, action) = protocol::run(state.get());
        self.act(action)?;
        state.set(running);
        Ok(match self.follow(is_due)? {
            HoldState::Gone => StopOutcome::Gone,
            HoldState::Replaced => StopOutcome::Replaced,
            _ => StopOutcome::Stop,
        })
    }

    /// Goes through the protocol until the thread is held or gone.
    fn follow(&self, is_due: impl Fn() -> bool) -> io::Result<HoldState> {
        let HeldBy::Ptrace { state, .. } = &self.by else { return Ok(HoldState::Gone) };
        while state.get().is_under_way() {
            let report = self.await_report(&is_due)?;
            let (following, action) = next(state.get(), report);
            self.act(action)?;
            state.set(following);
        }
        Ok(state.get())
    }

    /// Returns the next report of the kernel.
    ///
    /// The end of a main thread is not reported while its process has other threads: it is looked for then.
    fn await_report(&self, is_due: &impl Fn() -> bool) -> io::Result<HoldReport> {
        const FIRST: Duration = Duration::from_micros(20);
        const LAST: Duration = Duration::from_millis(5);
        const BEFORE_FIRST: u32 = 32;
        let (mut looks, mut pause) = (0, FIRST);
        let is_main = self.pid == self.thread;
        loop {
            let Some(change) = wait_as_tracer(self.thread, self.is_child, !is_main)? else {
                looks += 1;
                if looks < BEFORE_FIRST {
                    std::thread::yield_now();
                    continue;
                }
                if self.has_ended_alone() {
                    return Ok(HoldReport::End);
                }
                std::thread::sleep(pause);
                pause = LAST.min(pause * 2);
                continue;
            };
            return Ok(match change {
                TraceeChange::Ended | TraceeChange::Untraced => HoldReport::End,
                TraceeChange::Stopped { signal: libc::SIGTRAP, event: libc::PTRACE_EVENT_STOP } => {
                    HoldReport::Trap
                }
                TraceeChange::Stopped { signal, event: libc::PTRACE_EVENT_STOP } => {
                    HoldReport::GroupStop { is_due: signal == libc::SIGSTOP && is_due() }
                }
                TraceeChange::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => HoldReport::Exec,
                TraceeChange::Stopped { signal, .. } => {
                    HoldReport::Signal { signal, is_due: signal == libc::SIGSTOP && is_due() }
                }
            });
        }
    }

    /// Returns whether this main thread has ended before others, or is about to be reported as ended: the consequence
    /// is the same.
    fn has_ended_alone(&self) -> bool {
        let ended = has_ended(self.pid as u32, self.thread as u32);
        if ended && !self.is_child {
            UNREAPED_MAIN_THREADS.with_borrow_mut(|left| left.push(self.thread));
        }
        ended
    }

    fn act(&self, action: Action) -> io::Result<()> {
        match action {
            Action::Forget => return Ok(()),
            Action::EndStop => {
                self.unblock_continue();
                // The next wait reports a thread that was killed.
                let _ = request::send(self.pid, self.thread, libc::SIGCONT);
                return self.resume(Resume::Continue(0));
            }
            Action::Resume => return self.resume(Resume::Continue(0)),
            Action::Retrap => {
                self.interrupt();
                return self.resume(Resume::Continue(0));
            }
            Action::Listen => return self.resume(Resume::Listen),
            Action::Deliver(_) | Action::Pass(_) | Action::Keep | Action::Detach(_) => {}
        }
        // From here on it may run instructions of the program, and has its own mask back.
        self.restore_mask();
        match action {
            Action::Deliver(signal) => self.resume(Resume::Continue(signal)),
            Action::Pass(signal) => {
                self.interrupt();
                self.resume(Resume::Continue(signal))
            }
            Action::Detach(signal) => request::detach(self.thread, signal).map(drop),
            _ => Ok(()),
        }
    }

    /// Unblocks `SIGCONT`: a thread that blocks it never reports it. A thread that ignores it does, while it is traced
    /// (`kernel/signal.c`, `sig_ignored`).
    fn unblock_continue(&self) {
        const CONTINUE: u64 = 1 << (libc::SIGCONT - 1);
        let HeldBy::Ptrace { mask, .. } = &self.by else { return };
        if let Ok(blocked) = request::blocked_signals(self.thread)
            && blocked & CONTINUE != 0
        {
            mask.set(Some(blocked));
            self.set_mask(blocked & !CONTINUE);
        }
    }

    fn restore_mask(&self) {
        let HeldBy::Ptrace { mask, .. } = &self.by else { return };
        if let Some(blocked) = mask.take() {
            self.set_mask(blocked);
        }
    }

    fn set_mask(&self, mask: u64) {
        // The next wait reports a thread that was killed.
        let _ = request::block_signals(self.thread, mask);
    }

    fn interrupt(&self) {
        // The next wait reports a thread that was killed.
        let _ = request::interrupt(self.thread);
    }

    fn resume(&self, resume: Resume) -> io::Result<()> {
        request::resume(self.thread, resume)
    }

    /// Detaches it wherever it stands, and reaps it when it has ended.
    fn detach(&self) -> io::Result<()> {
        let HeldBy::Ptrace { state, .. } = &self.by else { return Ok(()) };
        if state.get() == HoldState::Gone {
            return Ok(());
        }
        self.restore_mask();
        let mut signal = 0;
        while matches!(request::detach(self.thread, signal), Ok(false)) {
            // It was killed, or runs where the protocol was given up.
            self.interrupt();
            let report = self.await_report(&|| false)?;
            match next(HoldState::Detaching, report) {
                (_, Action::Detach(received)) => signal = received,
                _ => break,
            }
        }
        tracing::debug!(pid = self.pid, thread = self.thread, "a thread was released");
        state.set(HoldState::Gone);
        Ok(())
    }
}

impl Drop for SeizedThread {
    fn drop(&mut self) {
        // When even that fails, the kernel detaches it at the end of this thread.
        let _ = self.detach();
    }
}

/// The process is about to end, or runs another program by now, which was stopped on its own: this stop is over.
fn gone(stopped: Stopped) -> Option<SeizedThread> {
    tracing::debug!(
        pid = stopped.pid,
        "the thread to seize has ended, or its program was replaced"
    );
    std::mem::forget(stopped);
    None
}

/// Waits until the thread stops. Returns `false` if it has ended.
fn await_stop(pid: u32, thread: u32) -> io::Result<bool> {
    let start = Instant::now();
    while start.elapsed() < STOP_TIMEOUT {
        match Stat::of_thread(pid, thread).map(|stat| stat.state) {
            Ok(proc::ProcessState::Stopped | proc::ProcessState::Traced) => return Ok(true),
            Ok(proc::ProcessState::Ended) => return Ok(false),
            Ok(proc::ProcessState::Alive) => std::thread::sleep(Duration::from_micros(50)),
            Err(error) if proc::is_gone(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("it was to stop, and does not"))
}

fn has_ended(pid: u32, thread: u32) -> bool {
    match Stat::of_thread(pid, thread) {
        Ok(stat) => stat.state == proc::ProcessState::Ended,
        Err(error) => proc::is_gone(&error),
    }
}

/// Reaps main threads that have ended before the rest of their processes, once the rest has ended: their parents are
/// not notified before. To be called periodically by a thread that seizes others.
pub fn reap_main_threads() {
    UNREAPED_MAIN_THREADS.with_borrow_mut(|left| {
        left.retain(|&thread| matches!(wait_as_tracer(thread, false, false), Ok(None)));
    });
}
