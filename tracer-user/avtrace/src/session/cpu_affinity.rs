//! All threads of a program on one processor, so that what is recorded is in the order in which it happened.

use std::io;

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use linux::proc;

/// Binds a process that stands still, and what it will start, to the first processor that it may run on.
///
/// # Errors
///
/// When its threads cannot be listed, or the kernel refuses.
pub(super) fn on_one_processor(pid: u32) -> io::Result<()> {
    for thread in proc::threads(pid)? {
        let thread = Pid::from_raw(thread as i32);
        let allowed = sched_getaffinity(thread)?;
        let first = (0..CpuSet::count()).find(|&processor| allowed.is_set(processor) == Ok(true));
        let mut one = CpuSet::new();
        one.set(first.unwrap_or(0))?;
        sched_setaffinity(thread, &one)?;
    }
    Ok(())
}
