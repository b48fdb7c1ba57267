//! What the session asks of the system around it: privileges, namespaces, the entry point, signals, the kernel
//! side's log.

use std::{
    io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    thread,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::{Handle, Signals},
};

use crate::{
    kernel::{Kernel, KernelError},
    sys::tracee,
};

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

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
    let vector = std::fs::read(format!("/proc/{pid}/auxv"))?;
    let numbers: Vec<u64> =
        vector.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    numbers
        .as_chunks::<2>()
        .0
        .iter()
        .find_map(|&[key, value]| (key == AT_ENTRY).then_some(value))
        .ok_or_else(|| io::Error::other("it has no entry point"))
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
}

impl ForwardedSignals {
    /// Ends the forwarding.
    pub fn close(self) {
        self.handle.close();
        let _ = self.thread.join();
    }
}

/// Keeps this process alive until the program ends: what the terminal sends (`SIGINT`, `SIGQUIT`) reaches the
/// program by itself, what is sent to this process alone (`SIGTERM`, `SIGHUP`) is passed on.
///
/// # Errors
///
/// When the handlers cannot be installed.
pub fn forward_signals(pid: u32) -> io::Result<ForwardedSignals> {
    let mut signals = Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    let thread = thread::Builder::new().name("avtrace-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if matches!(signal, SIGTERM | SIGHUP) {
                tracee::send_signal(pid, signal);
            }
        }
    })?;
    Ok(ForwardedSignals { handle, thread })
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
        eprintln!("avtrace: bpf: {}", record.args());
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
    fn this_process_has_an_entry_point_and_a_namespace() {
        let pid = std::process::id();
        assert_ne!(entry_point(pid).unwrap(), 0);
        let (_, inode, innermost) = pid_namespace(pid).unwrap();
        assert_ne!(inode, 0);
        assert_ne!(innermost, 0);
    }
}
