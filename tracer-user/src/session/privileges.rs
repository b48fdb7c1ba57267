//! What the session asks of the system around it: privileges, namespaces, the entry point, signals, the kernel
//! side's log.

use std::{
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{Handle, Signals},
};

use super::following::Alive;
use crate::{
    kernel::{Kernel, KernelError},
    sys::tracee,
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
    let link = |path: &str| std::fs::read_link(path).ok();
    judge(
        std::process::id(),
        link("/proc/self").and_then(|target| target.to_str()?.parse().ok()),
        link("/proc/self/ns/pid"),
        // Unreadable until the first child is there, when children go elsewhere.
        link("/proc/self/ns/pid_for_children"),
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
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if may_trace(&status) { Ok(()) } else { Err(KernelError::NotPermitted) }
}

fn may_trace(status: &str) -> bool {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
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
    std::fs::metadata(format!("/proc/{pid}"))?;
    auxiliary(pid, AT_ENTRY).ok_or_else(|| io::Error::other("it has no entry point"))
}

/// What the kernel has told a program at its start, by the number of it (`<elf.h>`, `AT_…`).
#[must_use]
pub fn auxiliary(pid: u32, wanted: u64) -> Option<u64> {
    let vector = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let numbers: Vec<u64> =
        vector.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    let entries = numbers.as_chunks::<2>().0.iter();
    entries.copied().find_map(|[key, value]| (key == wanted).then_some(value))
}

/// The arguments of a process; none when it has gone.
#[must_use]
pub fn arguments(pid: u32) -> Vec<String> {
    let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = text.strip_suffix(&[0]).unwrap_or(&text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|&byte| byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// Device (as the kernel numbers it) and inode of the process's PID namespace, and its id there.
///
/// # Errors
///
/// When the process has gone.
pub fn pid_namespace(pid: u32) -> io::Result<(u64, u64, u32)> {
    let namespace = std::fs::metadata(format!("/proc/{pid}/ns/pid"))?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let innermost = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .and_then(|pids| pids.split_whitespace().last()?.parse().ok())
        .unwrap_or(pid);
    Ok((tracee::kernel_device(namespace.dev()), namespace.ino(), innermost))
}

/// Signals while the program runs.
#[derive(Debug)]
pub struct ForwardedSignals {
    handle: Handle,
    thread: thread::JoinHandle<()>,
    /// Set when signals are meant for this process: the program has ended, and its children are waited for.
    is_alone: Arc<AtomicBool>,
    told_to_end: Arc<AtomicBool>,
}

impl ForwardedSignals {
    /// Waits until all of these processes have ended, or a signal tells this one to end.
    pub fn await_children(&self, alive: &Alive) {
        const POLL: Duration = Duration::from_millis(10);
        /// How long records of ends may be late, when the processes have gone.
        const PATIENCE: Duration = Duration::from_secs(1);
        self.is_alone.store(true, Ordering::Release);
        let mut all_gone = Duration::ZERO;
        while !self.told_to_end.load(Ordering::Acquire) && all_gone < PATIENCE {
            let alive = alive.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if alive.is_empty() {
                return;
            }
            let runs = |pid: &u32| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
                stat.is_ok_and(|stat| !stat.contains(") Z "))
            };
            all_gone = if alive.iter().any(runs) { Duration::ZERO } else { all_gone + POLL };
            thread::sleep(POLL);
        }
    }

    /// Ends the forwarding.
    pub fn close(self) {
        self.handle.close();
        let _ = self.thread.join();
    }
}

/// Keeps this process alive until the program ends: what the terminal sends (`SIGINT`, `SIGQUIT`) reaches the
/// program by itself, what is sent to this process alone (`SIGTERM`, `SIGHUP`, `SIGUSR1`, `SIGUSR2`) is passed on.
///
/// # Errors
///
/// When the handlers cannot be installed.
pub fn forward_signals(pid: u32) -> io::Result<ForwardedSignals> {
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    let (is_alone, told_to_end) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (alone, end) = (Arc::clone(&is_alone), Arc::clone(&told_to_end));
    let thread = thread::Builder::new().name("avtrace-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if alone.load(Ordering::Acquire) {
                end.store(true, Ordering::Release);
            } else if !matches!(signal, SIGINT | SIGQUIT) {
                tracee::send_signal(pid, signal);
            }
        }
    })?;
    Ok(ForwardedSignals { handle, thread, is_alone, told_to_end })
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
        assert!(may_trace("CapEff:\t000001ffffffffff\n"));
        assert!(may_trace("CapEff:\t0000000000200000\n"), "CAP_SYS_ADMIN");
        assert!(may_trace("CapEff:\t000000c000000000\n"), "CAP_BPF and CAP_PERFMON");
        assert!(!may_trace("CapEff:\t0000008000000000\n"), "CAP_BPF alone");
        assert!(!may_trace("CapEff:\t0000000000000000\n"));
        assert!(may_trace(""));
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
