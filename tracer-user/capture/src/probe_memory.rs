//! Memory of inline probes that a process has mapped. The name of its files shows it.

use std::io;

use linux::{
    proc::{self, Status},
    supervisor::Supervisor,
};
use symbolize::MapName;

use crate::mappings::mappings;

/// Name of the files in memory, as the memory map of a process has them.
const FILE: &str = "/memfd:avtrace";

/// Checks that breakpoints in every process break none. Where a breakpoint hits the jump of an inline probe, the kernel
/// executes the instruction of the file and goes on behind it, in the middle of the jump (`kernel/events/uprobes.c`).
///
/// The check misses a process without a tracer whose memory map cannot be read, and which has inline probes of an
/// avtrace that was killed.
///
/// # Errors
///
/// When a process has inline probes, or may have them, or `/proc` cannot be read.
pub(crate) fn check_breakpoints_everywhere() -> io::Result<()> {
    for process in proc::processes()? {
        let harm = match is_in(process) {
            Ok(true) => ", which has inline probes of avtrace",
            // Processes with inline probes have a tracer.
            Err(error) if !proc::is_gone(&error) && is_traced(process) => {
                " if it has inline probes of avtrace: it is traced, and its memory map cannot be read"
            }
            Ok(false) | Err(_) => continue,
        };
        let error = format!("breakpoints in every process would break process {process}{harm}");
        return Err(io::Error::other(error));
    }
    Ok(())
}

fn is_traced(process: u32) -> bool {
    let status = Status::of_process(process).unwrap_or_default();
    status.tracer().is_some_and(|tracer| tracer != 0)
}

/// Returns whether a process has memory of probes.
///
/// # Errors
///
/// When its memory map cannot be read.
pub(crate) fn is_in(process: u32) -> io::Result<bool> {
    Ok(!ranges(process)?.is_empty())
}

/// Has a process of which no thread runs unmap all memory of probes. No thread may stand in it, nor come back to it.
///
/// # Errors
///
/// When ptrace fails, or the process may not make the system call.
pub(crate) fn unmap(supervisor: &mut Supervisor, process: u32) -> io::Result<()> {
    let ranges = ranges(supervisor.living_thread(process))?;
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

/// Returns the start and length of each mapping of such memory, in the process of a thread.
fn ranges(thread: u32) -> io::Result<Vec<(u64, u64)>> {
    let is_own = |name: &MapName| match name {
        MapName::File { path, .. } => path.to_string_lossy().starts_with(FILE),
        _ => false,
    };
    let maps = mappings(thread)?;
    let own = maps.iter().filter(|map| is_own(&map.name));
    Ok(own.map(|map| (map.start.0, map.end.0 - map.start.0)).collect())
}
