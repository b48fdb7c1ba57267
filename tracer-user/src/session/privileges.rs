//! What the session asks of the system around it: privileges, namespaces, the entry point, the kernel side's log.

use std::{
    io::{self, Write as _},
    os::fd::AsFd as _,
    path::PathBuf,
    thread,
};

use crate::{
    kernel::{Kernel, KernelError},
    report::text_of_bytes,
    sys::{
        proc::{self, Status},
        tracee,
    },
};

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What is amiss around this process. Each says what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurroundingsError {
    /// There is no `/proc`.
    #[error("/proc is not mounted: run `mount -t proc proc /proc`")]
    NoProc,
    /// `/proc` numbers processes in another way than this process does.
    #[error("/proc is that of another PID namespace: start this one with `unshare --mount-proc`")]
    ForeignProc,
    /// Threads and children of one process cannot be in two PID namespaces.
    #[error(
        "children of this process go to another PID namespace: start that with `unshare --fork`"
    )]
    ChildrenElsewhere,
}

/// Refuses early what would fail late, before any program is started.
///
/// # Errors
///
/// See [`SurroundingsError`].
pub fn check_surroundings() -> Result<(), SurroundingsError> {
    judge(
        std::process::id(),
        proc::own_pid(),
        proc::own_namespace("pid"),
        // Unreadable until the first child is there, when children go elsewhere.
        proc::own_namespace("pid_for_children"),
    )
}

fn judge(
    own: u32,
    in_proc: Option<u32>,
    namespace: Option<PathBuf>,
    of_children: Option<PathBuf>,
) -> Result<(), SurroundingsError> {
    match in_proc {
        None if namespace.is_none() => Err(SurroundingsError::NoProc),
        Some(in_proc) if in_proc == own => {
            if namespace.is_some() && namespace != of_children {
                return Err(SurroundingsError::ChildrenElsewhere);
            }
            Ok(())
        }
        _ => Err(SurroundingsError::ForeignProc),
    }
}

/// Refuses early what the kernel would refuse late, before any program is started.
///
/// # Errors
///
/// [`KernelError::NotPermitted`].
pub fn check() -> Result<(), KernelError> {
    let effective = Status::of_self().ok().and_then(|status| status.effective_capabilities());
    if may_trace(effective) { Ok(()) } else { Err(KernelError::NotPermitted) }
}

fn may_trace(effective: Option<u64>) -> bool {
    // When the mask cannot be read the kernel decides.
    let Some(effective) = effective else { return true };
    let has = |capability: u32| effective & (1 << capability) != 0;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
}

/// The address of the program's first instruction, where the dynamic linker has done its work.
///
/// # Errors
///
/// When the process has gone, or has no such entry.
pub fn entry_point(pid: u32) -> io::Result<u64> {
    const AT_ENTRY: u64 = 9;
    proc::exists(pid)?;
    proc::auxiliary(pid, AT_ENTRY).ok_or_else(|| io::Error::other("it has no entry point"))
}

/// What tells the programs that a process runs apart: where the kernel has put random bytes for it on the stack, which
/// is at a random address itself. `None` when the process has ended.
#[must_use]
pub fn identity(pid: u32) -> Option<u64> {
    const AT_RANDOM: u64 = 25;
    proc::auxiliary(pid, AT_RANDOM)
}

/// The arguments of a process; none when it has gone.
#[must_use]
pub fn arguments(pid: u32) -> Vec<String> {
    let arguments = proc::arguments(pid);
    arguments.iter().map(|argument| text_of_bytes(argument)).collect()
}

/// Device (as the kernel numbers it) and inode of the process's PID namespace, and its id there.
///
/// # Errors
///
/// When the process has gone.
pub fn pid_namespace(pid: u32) -> io::Result<(u64, u64, u32)> {
    let (device, inode) = proc::pid_namespace(pid)?;
    let innermost = Status::of_process(pid)?.innermost_pid().unwrap_or(pid);
    Ok((tracee::kernel_device(device), inode, innermost))
}

/// Prints the kernel side's log to standard error until the session ends.
///
/// # Errors
///
/// When the log cannot be read.
pub fn print_log(kernel: &mut Kernel) -> Result<(), KernelError> {
    let mut logger = kernel.log_to(Printer)?;
    let print = move || {
        loop {
            logger.flush();
            let mut poll = [nix::poll::PollFd::new(logger.as_fd(), nix::poll::PollFlags::POLLIN)];
            if nix::poll::poll(&mut poll, nix::poll::PollTimeout::from(100u8)).is_err() {
                thread::yield_now();
            }
        }
    };
    thread::Builder::new()
        .name("avtrace-log".to_owned())
        .spawn(print)
        .map_err(|error| KernelError::Refused(error.to_string()))?;
    Ok(())
}

struct Printer;

impl log::Log for Printer {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // When nobody reads it there is nobody to tell.
        let _ = writeln!(io::stderr(), "avtrace: bpf: {}", record.args());
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_decide() {
        assert!(may_trace(Some(0x1ff_ffff_ffff)));
        assert!(may_trace(Some(1 << CAP_SYS_ADMIN)));
        assert!(may_trace(Some(1 << CAP_BPF | 1 << CAP_PERFMON)));
        assert!(!may_trace(Some(1 << CAP_BPF)), "alone");
        assert!(!may_trace(Some(0)));
        assert!(may_trace(None));
    }

    #[test]
    fn namespaces_decide() {
        let (one, other) = (Some(PathBuf::from("pid:[1]")), Some(PathBuf::from("pid:[2]")));
        assert_eq!(judge(7, Some(7), one.clone(), one.clone()), Ok(()));
        assert_eq!(judge(7, None, None, None), Err(SurroundingsError::NoProc));
        assert_eq!(
            judge(7, None, one.clone(), one.clone()),
            Err(SurroundingsError::ForeignProc),
            "a process that this /proc does not show"
        );
        assert_eq!(
            judge(7, Some(8), one.clone(), one.clone()),
            Err(SurroundingsError::ForeignProc)
        );
        let elsewhere = Err(SurroundingsError::ChildrenElsewhere);
        assert_eq!(judge(7, Some(7), one.clone(), other), elsewhere);
        assert_eq!(judge(7, Some(7), one, None), elsewhere);
        assert_eq!(check_surroundings(), Ok(()));
    }

    #[test]
    fn this_process_has_an_entry_point_and_a_namespace() {
        let pid = std::process::id();
        assert_ne!(entry_point(pid).unwrap(), 0);
        let (_, inode, innermost) = pid_namespace(pid).unwrap();
        assert_ne!(inode, 0);
        assert_ne!(innermost, 0);
    }
}
