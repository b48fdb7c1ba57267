//! Memory of probes that a process has mapped is unmapped at the end.

use std::io;

use crate::probe_memory;
use linux::supervisor::Supervisor;

/// Has a process of which no thread runs unmap all memory of probes. No thread may stand in it, nor come back to it.
///
/// # Errors
///
/// When ptrace fails, or the process may not make the system call.
pub(super) fn unmap(supervisor: &mut Supervisor, process: u32) -> io::Result<()> {
    let ranges = probe_memory::ranges(supervisor.living_thread(process))?;
    if ranges.is_empty() {
        return Ok(());
    }
    supervisor.with_calls(process, |calls| {
        for (start, length) in ranges {
            calls.call(libc::SYS_munmap, [start, length, 0, 0, 0, 0])?;
        }
        Ok(())
    })
}
