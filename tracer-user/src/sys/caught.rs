//! Holding a thread of a program that runs, from the stop signal that a program in the kernel has sent it on. What is
//! done meanwhile is decided elsewhere.
//!
//! A stop by a signal is that of the whole process, and outlives this one. So it is turned into a stop of the one thread
//! by ptrace as soon as possible, which the kernel undoes when this process dies: the thread is seized, the process is
//! continued by a `SIGCONT` to that thread, and the thread is held on its way to receive that. It never does.

use std::{
    io,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::ptrace::{self, Options},
    unistd::Pid,
};

use super::{
    guardian::state,
    status::{Status, wait_as_tracer},
};

/// How long to wait until a thread that was told to stop does. It is in the kernel, on its way out.
const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that is held. When this is dropped, or this process dies, it goes on.
///
/// All its methods must be called from the thread that caught it (ptrace(2)).
#[derive(Debug)]
pub struct Caught {
    pid: Pid,
    thread: Pid,
    /// Whether its end is this process's to know, and must stay to be asked for.
    is_child: bool,
    /// Nobody holds it by ptrace: it is the process that is stopped.
    by_signal: bool,
}

/// What became of a thread that was let run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It is held again, where it was to be.
    Stop,
    /// Its process has replaced its program once more: another stop follows.
    Replaced,
    /// It has ended, or is not held by this process any more.
    Gone,
}

impl Caught {
    /// Catches a thread to which `SIGSTOP` was sent. `None` when it has ended meanwhile.
    ///
    /// Where somebody else traces it the process stays stopped.
    ///
    /// # Errors
    ///
    /// When it may not be traced, or does not stop.
    pub fn catch(pid: u32, thread: u32, is_child: bool) -> io::Result<Option<Self>> {
        let caught = Self {
            pid: Pid::from_raw(pid as i32),
            thread: Pid::from_raw(thread as i32),
            is_child: is_child && pid == thread,
            by_signal: false,
        };
        if !caught.await_stop()? {
            return Ok(None);
        }
        match ptrace::seize(caught.thread, Options::PTRACE_O_TRACEEXEC) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(None),
            Err(_) => return Ok(Some(Self { by_signal: true, ..caught })),
        }
        caught.turn()
    }

    /// Whether the thread stops; if not, it ends.
    fn await_stop(&self) -> io::Result<bool> {
        let path = format!("/proc/{}/task/{}/stat", self.pid, self.thread);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let Ok(stat) = std::fs::read_to_string(&path) else { return Ok(false) };
            match state(&stat) {
                Some('T' | 't') => return Ok(true),
                Some('Z' | 'X') | None => return Ok(false),
                Some(_) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        Err(io::Error::other("it was told to stop, and does not"))
    }

    /// Turns the process's stop into one of this thread.
    fn turn(self) -> io::Result<Option<Self>> {
        let mut mask = None;
        loop {
            match wait_as_tracer(self.thread.as_raw(), self.is_child)? {
                Status::Ended(_) => return Ok(None),
                Status::Stopped { event: libc::PTRACE_EVENT_STOP, .. } => {
                    if mask.is_none() {
                        mask = Some(self.unblock_continue());
                        self.send_continue();
                    }
                    self.resume(libc::PTRACE_CONT, 0)?;
                }
                Status::Stopped { signal: libc::SIGCONT, event: 0 } => {
                    if let Some(Some(mask)) = mask {
                        self.set_mask(mask);
                    }
                    return Ok(Some(self));
                }
                Status::Stopped { signal, event: 0 } => self.resume(libc::PTRACE_CONT, signal)?,
                Status::Stopped { .. } => self.resume(libc::PTRACE_CONT, 0)?,
            }
        }
    }

    /// Lets it run until it receives a `SIGSTOP` for which `is_due` holds, which it never gets.
    ///
    /// # Errors
    ///
    /// When ptrace fails, as for a thread that was not caught by it.
    pub fn run_to_stop(&self, is_due: impl Fn() -> bool) -> io::Result<Reached> {
        if self.by_signal {
            return Err(io::Error::other("another tracer holds it"));
        }
        let (mut request, mut signal) = (libc::PTRACE_CONT, 0);
        loop {
            self.resume(request, signal)?;
            (request, signal) = (libc::PTRACE_CONT, 0);
            match wait_as_tracer(self.thread.as_raw(), self.is_child)? {
                Status::Ended(_) => return Ok(Reached::Gone),
                Status::Stopped { signal: libc::SIGSTOP, event: 0 } if is_due() => {
                    return Ok(Reached::Stop);
                }
                Status::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => {
                    return Ok(Reached::Replaced);
                }
                // Somebody has stopped the process: it stays so until somebody continues it.
                Status::Stopped { signal: stop, event: libc::PTRACE_EVENT_STOP }
                    if stop != libc::SIGTRAP =>
                {
                    request = libc::PTRACE_LISTEN;
                }
                Status::Stopped { signal: other, event: 0 } => signal = other,
                Status::Stopped { .. } => {}
            }
        }
    }

    /// A thread that ignores `SIGCONT` or blocks it would not be seen to receive it. Returns the signals that it
    /// blocks, when it blocks that one.
    fn unblock_continue(&self) -> Option<u64> {
        const CONTINUE: u64 = 1 << (libc::SIGCONT - 1);
        let mut mask = 0u64;
        // SAFETY: the request writes 8 bytes, the size of a set of signals in the kernel, to a local variable.
        let result = unsafe {
            libc::ptrace(libc::PTRACE_GETSIGMASK, self.thread.as_raw(), 8, &raw mut mask)
        };
        if result < 0 || mask & CONTINUE == 0 {
            return None;
        }
        self.set_mask(mask & !CONTINUE);
        Some(mask)
    }

    fn set_mask(&self, mask: u64) {
        // SAFETY: the request reads 8 bytes from a local variable.
        unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, self.thread.as_raw(), 8, &raw const mask) };
    }

    fn send_continue(&self) {
        // SAFETY: no memory is involved.
        unsafe {
            libc::syscall(libc::SYS_tgkill, self.pid.as_raw(), self.thread.as_raw(), libc::SIGCONT)
        };
    }

    fn resume(&self, request: libc::c_uint, signal: i32) -> io::Result<()> {
        // SAFETY: continuing a stopped thread touches no memory of this process; the signal is passed by value.
        let result = unsafe { libc::ptrace(request, self.thread.as_raw(), 0, signal) };
        match Errno::last() {
            // That it was killed meanwhile is told by the next wait.
            error if result < 0 && error != Errno::ESRCH => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        if self.by_signal {
            let _ = nix::sys::signal::kill(self.pid, nix::sys::signal::Signal::SIGCONT);
        } else {
            let _ = ptrace::detach(self.thread, None);
        }
    }
}
