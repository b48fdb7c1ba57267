//! Waiting for a child's stops and its end, with signals as plain numbers: programs are stopped and killed by
//! real-time signals too, which have no names.

use std::io;

/// End of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Exit with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

impl Ending {
    /// The exit status that a shell would show.
    #[must_use]
    pub const fn shell_status(self) -> i32 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + signal,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Stopped under ptrace, on its way to receive a signal or, with `event`, because of its own action.
    Stopped { signal: i32, event: i32 },
    /// Ended, with its process id free again.
    Ended(Ending),
}

impl Ending {
    /// Returns the status as `wait` returns it.
    #[must_use]
    pub const fn status(self) -> i32 {
        match self {
            Self::Exited(status) => (status & 0xff) << 8,
            Self::Killed(signal) => signal,
        }
    }

    /// From a status as `wait` returns it, of a process that has ended.
    #[must_use]
    pub const fn from_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Exited((status >> 8) & 0xff),
            signal => Self::Killed(signal),
        }
    }
}

impl Status {
    const fn of(raw: i32) -> Option<Self> {
        if libc::WIFSTOPPED(raw) {
            Some(Self::Stopped { signal: libc::WSTOPSIG(raw), event: raw >> 16 })
        } else if libc::WIFEXITED(raw) {
            Some(Self::Ended(Ending::Exited(libc::WEXITSTATUS(raw))))
        } else if libc::WIFSIGNALED(raw) {
            Some(Self::Ended(Ending::Killed(libc::WTERMSIG(raw))))
        } else {
            None
        }
    }
}

/// Waits until the process stops or ends. It must be a child of this process, or traced by this thread.
pub(super) fn wait(pid: i32) -> io::Result<Status> {
    loop {
        let mut raw = 0;
        // SAFETY: the pointer leads to a local variable.
        if unsafe { libc::waitpid(pid, &raw mut raw, libc::__WALL) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        } else if let Some(status) = Status::of(raw) {
            return Ok(status);
        }
    }
}

/// Waits until a child of this thread or a thread that it traces stops or ends; `None` when a signal has come first.
///
/// Children that other threads of this process have started are theirs (`__WNOTHREAD`).
pub(super) fn wait_for_any() -> io::Result<Option<(i32, Status)>> {
    any(0)
}

/// Returns the next report of [`wait_for_any`] that is there already; `None` without one.
pub(super) fn poll_for_any() -> io::Result<Option<(i32, Status)>> {
    match any(libc::WNOHANG) {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        result => result,
    }
}

fn any(flags: i32) -> io::Result<Option<(i32, Status)>> {
    let flags = flags | libc::__WALL | libc::__WNOTHREAD;
    loop {
        let mut raw = 0;
        // SAFETY: the pointer leads to a local variable.
        let id = unsafe { libc::waitpid(-1, &raw mut raw, flags) };
        if id < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        if id == 0 {
            return Ok(None);
        }
        if let Some(status) = Status::of(raw) {
            return Ok(Some((id, status)));
        }
    }
}

/// Change of a thread that this thread traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceeChange {
    /// Stopped under ptrace, as in [`Status::Stopped`].
    Stopped { signal: i32, event: i32 },
    /// Ended.
    Ended,
    /// This thread does not trace it, or does not any more.
    Untraced,
}

/// Waits until a thread that this thread traces stops or ends; with `keep_end`, its end stays to be asked for. Without
/// `is_patient`, `None` says that nothing has happened.
///
/// Children that other threads of this process trace, or have forked, are none of this one's (`__WNOTHREAD`): when a
/// main thread's number is that of another thread after an `execve`, there is nothing to wait for.
pub(super) fn wait_as_tracer(
    thread: i32,
    keep_end: bool,
    is_patient: bool,
) -> io::Result<Option<TraceeChange>> {
    const TRACED: i32 = libc::WSTOPPED | libc::__WALL | libc::__WNOTHREAD;
    let look = if keep_end { libc::WNOWAIT } else { 0 };
    let block = if is_patient { 0 } else { libc::WNOHANG };
    loop {
        let info = match wait_id(thread, libc::WEXITED | TRACED | look | block) {
            Ok(info) => info,
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                return Ok(Some(TraceeChange::Untraced));
            }
            Err(error) => return Err(error),
        };
        // SAFETY: `waitid` has filled in the fields of a child's state, or left zeros.
        let (child, value) = unsafe { (info.si_pid(), info.si_status()) };
        match info.si_code {
            _ if child == 0 => return Ok(None),
            libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED => {
                return Ok(Some(TraceeChange::Ended));
            }
            // A stop that is not one by ptrace: of a child of this very thread that is not traced any more.
            libc::CLD_STOPPED => return Ok(Some(TraceeChange::Untraced)),
            // Take the stop that was looked at, unless it is over: killed in between.
            _ if keep_end && wait_id(thread, TRACED | libc::WNOHANG)?.si_code == 0 => {}
            _ => {
                return Ok(Some(TraceeChange::Stopped { signal: value & 0x7f, event: value >> 8 }));
            }
        }
    }
}

fn wait_id(thread: i32, flags: i32) -> io::Result<libc::siginfo_t> {
    loop {
        // SAFETY: a structure of integers and pointers: zeros are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer leads to a local variable.
        if unsafe { libc::waitid(libc::P_PID, thread as libc::id_t, &raw mut info, flags) } == 0 {
            return Ok(info);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Waiting for an event that has not happened yet, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Wait,
    Ask,
}

/// The child's end, if it has ended. It stays a zombie, so that its process id keeps meaning it.
pub(super) fn peek_end(pid: i32, patience: Patience) -> io::Result<Option<Ending>> {
    let flags = match patience {
        Patience::Wait => 0,
        Patience::Ask => libc::WNOHANG,
    };
    let info = wait_id(pid, libc::WEXITED | libc::WNOWAIT | flags)?;
    // SAFETY: `waitid` has filled in the fields of a child's state, or left zeros.
    let (child, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok(match info.si_code {
        _ if child == 0 => None,
        libc::CLD_EXITED => Some(Ending::Exited(status)),
        libc::CLD_KILLED | libc::CLD_DUMPED => Some(Ending::Killed(status)),
        // A stop of a child that another thread of this process traces.
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_told_apart() {
        assert_eq!(Status::of(0x0700), Some(Status::Ended(Ending::Exited(7))));
        assert_eq!(Status::of(0x0025), Some(Status::Ended(Ending::Killed(37))), "real-time");
        assert_eq!(Status::of(0x0086), Some(Status::Ended(Ending::Killed(6))), "with a core");
        assert_eq!(Status::of(0x257f), Some(Status::Stopped { signal: 37, event: 0 }));
        assert_eq!(
            Status::of((libc::PTRACE_EVENT_EXEC << 16) | 0x057f),
            Some(Status::Stopped { signal: libc::SIGTRAP, event: libc::PTRACE_EVENT_EXEC })
        );
        assert_eq!(Status::of(0xffff), None, "continued");
    }

    #[test]
    fn ends_are_read_from_what_wait_returns() {
        assert_eq!(Ending::from_status(0x0700), Ending::Exited(7));
        assert_eq!(Ending::from_status(0x0086), Ending::Killed(6), "with a core");
        assert_eq!(Ending::from_status(0x0025), Ending::Killed(37), "real-time");
    }
}
