//! Small process beside avtrace that continues stopped processes when avtrace was killed. Maps of the BPF programs that
//! stop processes list them.
//!
//! When a process dies whose children are stopped, the kernel hangs up on their process group if no process outside
//! of it is left that could continue them (`kernel/exit.c`, `kill_orphaned_pgrp`). So the guardian has a group of its
//! own, and a child that it leaves in this one's.

use std::{
    io::{self, PipeWriter, Read as _, Write as _},
    os::fd::{AsRawFd as _, BorrowedFd},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    bpf,
    ids::NsPid,
    proc::{self, ProcessState, Stat},
    status,
};

/// Number of searches for stopped processes once this process has gone: a program in the kernel that was just running
/// may stop one a moment later.
const ROUNDS: u32 = 100;
const ROUND: Duration = Duration::from_millis(10);

/// A running guardian. Dropping this ends it.
#[derive(Debug)]
pub struct Guardian {
    pid: i32,
    /// A byte says that all is well; that it is closed without says that this process was killed.
    pipe: Mutex<Option<PipeWriter>>,
}

impl Guardian {
    /// Starts the guardian. `stopped` and `continued` are maps from process ids to the number of the latest stop, and
    /// of the latest stop that is over.
    ///
    /// `known` is a process, by its ids in its own PID namespace and in this one.
    ///
    /// The guardian ignores signals of the terminal, and has no descriptors but the pipe and the maps. To be called
    /// while this process is single-threaded.
    ///
    /// # Errors
    ///
    /// Errors of `pipe` and `fork`.
    pub fn start(
        stopped: BorrowedFd<'_>,
        continued: BorrowedFd<'_>,
        known: Option<(NsPid, u32)>,
    ) -> io::Result<Self> {
        let (mut reader, pipe) = io::pipe()?;
        // SAFETY: this process is single-threaded, so that the child may call any function.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(pipe);
                let retained = [reader.as_raw_fd(), stopped.as_raw_fd(), continued.as_raw_fd()];
                withdraw(&retained);
                let member = leave_member();
                // An end without a byte.
                if reader.read_exact(&mut [0]).is_err() {
                    rescue(stopped, continued, known);
                }
                // SAFETY: system calls without memory; the last ends the child without running what the parent has
                // registered for its exit.
                unsafe {
                    if member > 0 {
                        libc::kill(member, libc::SIGKILL);
                        libc::waitpid(member, std::ptr::null_mut(), 0);
                    }
                    libc::_exit(0)
                }
            }
            pid => {
                tracing::debug!(pid, "the guardian was started");
                Ok(Self { pid, pipe: Mutex::new(Some(pipe)) })
            }
        }
    }
}

impl Guardian {
    /// Has the guardian continue all stopped processes, as if this process were killed. It ends with that.
    pub fn rescue(&self) {
        tracing::info!(pid = self.pid, "the guardian continues stopped processes");
        drop(self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Returns a guard for the thread that continues stopped processes: if that thread panics, the guardian takes
    /// over.
    #[must_use]
    pub fn in_case_of_panic(self: &Arc<Self>) -> InCaseOfPanic {
        InCaseOfPanic(Arc::clone(self))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // A guardian that was killed has ended, too.
        if let Some(mut pipe) = self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = pipe.write_all(b"!");
        }
        let _ = status::wait(self.pid);
    }
}

/// Calls the guardian when it is dropped by a panic.
#[derive(Debug)]
pub struct InCaseOfPanic(Arc<Guardian>);

impl Drop for InCaseOfPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.rescue();
        }
    }
}

/// Leaves everything behind that the guardian shares with the process that forked it.
fn withdraw(retained: &[i32]) {
    const NAME: &std::ffi::CStr = c"avt-guardian";
    // SAFETY: system calls on this process alone, without memory but strings that end with a zero.
    unsafe {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTSTP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::chdir(c"/".as_ptr());
    }
    let mut retained = retained.to_vec();
    retained.sort_unstable();
    let mut first = 0;
    for fd in retained.into_iter().chain([i32::MAX]) {
        if first < fd {
            // SAFETY: these descriptors are not used any more; the memory of their owners is never freed here.
            unsafe {
                libc::syscall(libc::SYS_close_range, first, fd - 1, 0);
            }
        }
        first = fd.saturating_add(1);
    }
}

/// Leaves a child in the process group that the guardian then leaves; it does nothing, and ends with the guardian.
fn leave_member() -> i32 {
    // SAFETY: system calls without memory, in a process that is single-threaded.
    unsafe {
        let member = libc::fork();
        if member == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::syscall(libc::SYS_close_range, 0, i32::MAX, 0);
            loop {
                libc::pause();
            }
        }
        libc::setpgid(0, 0);
        member
    }
}

fn rescue(stopped: BorrowedFd<'_>, continued: BorrowedFd<'_>, known: Option<(NsPid, u32)>) {
    for _ in 0..ROUNDS {
        for (id, number) in bpf::entries(stopped) {
            let pid = known.filter(|(own, _)| own.0 == id).map_or(id, |(_, pid)| pid);
            if bpf::lookup(continued, id) != Some(number) && is_stopped(pid) {
                // SAFETY: no memory is involved.
                unsafe { libc::kill(pid as i32, libc::SIGCONT) };
            }
        }
        std::thread::sleep(ROUND);
    }
}

/// Returns whether any thread of a process is stopped, and not by a debugger.
fn is_stopped(pid: u32) -> bool {
    let threads = proc::threads(pid).unwrap_or_default();
    threads.into_iter().any(|thread| {
        Stat::of_thread(pid, thread).is_ok_and(|stat| stat.state == ProcessState::Stopped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_calls_the_guardian() {
        let rescued = |panics: bool| {
            let (mut reader, pipe) = io::pipe().unwrap();
            // Of a process that is none of this one's.
            let guardian = Arc::new(Guardian { pid: i32::MAX, pipe: Mutex::new(Some(pipe)) });
            let in_case = guardian.in_case_of_panic();
            let thread = std::thread::spawn(move || {
                let _in_case = in_case;
                assert!(!panics, "on purpose");
            });
            assert_eq!(thread.join().is_err(), panics);
            drop(guardian);
            // An end without a byte is the call.
            reader.read_exact(&mut [0]).is_err()
        };
        assert!(rescued(true));
        assert!(!rescued(false));
    }

    #[test]
    fn this_process_is_not_stopped() {
        assert!(!is_stopped(std::process::id()));
        assert!(!is_stopped(u32::MAX));
    }
}
