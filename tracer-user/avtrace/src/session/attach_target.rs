//! Process to attach to, and the checks before anything is attached.

use std::{
    io,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use super::{
    attach_error::AttachError,
    await_end::await_end,
    error::RunError,
    program::{self, ProgramError},
};
use linux::{
    proc::{self, ProcessState, Stat, Status},
    text::text_of_bytes,
    tracee,
};

/// Processes to attach to, and the end of that.
#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// The processes, each once.
    pub pids: Vec<u32>,
    /// Time after which avtrace detaches; `None` to trace until they end, or a signal asks for the end.
    pub duration: Option<Duration>,
    /// Print nothing but the report.
    pub quiet: bool,
}

/// Process to attach to, and the end of that.
#[derive(Clone, Copy, Debug)]
pub struct AttachTarget {
    pub pid: u32,
    /// Time after which avtrace detaches; `None` to trace until the process ends, or a signal asks for the end.
    pub duration: Option<Duration>,
    /// Print nothing but the report.
    pub quiet: bool,
}

impl AttachTarget {
    /// Returns whether the process is stopped by a signal: it records nothing then.
    pub(super) fn is_stopped(&self) -> bool {
        Stat::of_process(self.pid).is_ok_and(|stat| stat.state == ProcessState::Stopped)
    }

    pub(super) fn has_ended(&self) -> bool {
        Stat::of_process(self.pid)
            .map_or_else(|error| proc::is_gone(&error), |stat| stat.state == ProcessState::Ended)
    }

    /// Returns whether the process has ended, or does so now: one that was killed needs a moment, in which its threads
    /// cannot be held any more.
    pub(super) fn is_ending(&self) -> bool {
        const MOMENT: Duration = Duration::from_secs(5);
        let Ok(process) = tracee::pidfd(self.pid) else { return self.has_ended() };
        let ended = await_end(&[process.as_fd()], Some(Instant::now() + MOMENT));
        self.has_ended() || ended.unwrap_or(false)
    }

    /// Returns the reason for which the process cannot be traced: its end, whatever failed then, or a refusal that has
    /// its id.
    pub(super) fn explain(&self, error: RunError) -> RunError {
        let pid = self.pid;
        match error {
            RunError::Record(_) | RunError::Attach(_) | RunError::Program(_) => error,
            RunError::InProcess(error) if error.is_gone() && self.is_ending() => {
                AttachError::EndedMeanwhile { pid }.into()
            }
            _ if self.has_ended() => AttachError::EndedMeanwhile { pid }.into(),
            RunError::InProcess(error) if error.refusal().is_some() => {
                AttachError::Refused { pid, error }.into()
            }
            error => error,
        }
    }

    /// Checks that the process can be attached to, as far as that can be said before.
    pub(super) fn check(&self) -> Result<(), AttachError> {
        /// `PF_KTHREAD` of `include/linux/sched.h`.
        const KERNEL_THREAD: u32 = 0x0020_0000;
        let pid = self.pid;
        if pid == std::process::id() {
            return Err(AttachError::Itself { pid });
        }
        let failed = |error: io::Error| match error.kind() {
            _ if proc::is_gone(&error) => AttachError::NoProcess { pid },
            io::ErrorKind::PermissionDenied => AttachError::NotPermitted { pid },
            _ => AttachError::System { pid, error },
        };
        let status = Status::of_process(pid).map_err(failed)?;
        if let Some(group) = status.group().filter(|&group| group != pid) {
            return Err(AttachError::Thread { thread: pid, pid: group });
        }
        let stat = Stat::of_process(pid).map_err(failed)?;
        if stat.flags & KERNEL_THREAD != 0 {
            return Err(AttachError::KernelThread { pid });
        }
        if stat.state == ProcessState::Ended {
            return Err(AttachError::Ended { pid });
        }
        if let Some(tracer) = status.tracer().filter(|&tracer| tracer != 0) {
            // The kernel names the thread.
            let group = Status::of_process(tracer).ok().and_then(|status| status.group());
            let tracer = group.unwrap_or(tracer);
            let name = proc::thread_name(tracer, tracer);
            let name = text_of_bytes(name.split(|&byte| byte == 0).next().unwrap_or_default());
            return Err(AttachError::Traced { pid, tracer, name });
        }
        match program::check_running(pid) {
            Err(ProgramError::Unreadable { error, .. }) => Err(failed(error)),
            checked => Ok(checked?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pid: u32) -> Result<(), AttachError> {
        AttachTarget { pid, duration: None, quiet: true }.check()
    }

    #[test]
    fn what_is_no_process_of_a_program_is_named() {
        let own = std::process::id();
        assert!(matches!(checked(own), Err(AttachError::Itself { .. })));
        assert!(matches!(checked(u32::MAX >> 1), Err(AttachError::NoProcess { .. })));
        let kernel = (2..100)
            .find(|&pid| Stat::of_process(pid).is_ok_and(|stat| stat.flags & 0x0020_0000 != 0));
        if let Some(pid) = kernel {
            assert!(matches!(checked(pid), Err(AttachError::KernelThread { .. })));
        }
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let running = checked(child.id());
        child.kill().expect("a signal");
        while Stat::of_process(child.id()).is_ok_and(|stat| stat.state != ProcessState::Ended) {}
        let ended = checked(child.id());
        child.wait().expect("its end");
        assert!(running.is_ok(), "{running:?}");
        assert!(matches!(ended, Err(AttachError::Ended { .. })));
        // A test runs in a thread of its own.
        let thread = nix::unistd::gettid().as_raw() as u32;
        assert!(matches!(checked(thread), Err(AttachError::Thread { pid, .. }) if pid == own));
    }
}
