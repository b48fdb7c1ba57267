//! All threads of a program on one processor, so that what is recorded is in the order in which it happened.

use std::io;

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// Binds a process that stands still, and what it will start, to the first processor that it may run on.
///
/// # Errors
///
/// When its threads cannot be listed, or the kernel refuses.
pub(super) fn on_one_processor(pid: u32) -> io::Result<()> {
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = entry?.file_name();
        let Some(thread) = name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw)
        else {
            continue;
        };
        let allowed = sched_getaffinity(thread)?;
        let first = (0..CpuSet::count()).find(|&processor| allowed.is_set(processor) == Ok(true));
        let mut one = CpuSet::new();
        one.set(first.unwrap_or(0))?;
        sched_setaffinity(thread, &one)?;
    }
    Ok(())
}
