//! Memory of probes that a process has mapped: it is found by the name of its files, and unmapped at the end.

use std::io;

use symbolize::MapName;

use super::image::mappings;
use linux::supervisor::Supervisor;

/// Name of the files in memory, as the memory map of a process has them.
const FILE: &str = "/memfd:avtrace";

/// Returns whether a process has memory of probes.
///
/// # Errors
///
/// When its memory map cannot be read.
pub(super) fn is_there(process: u32) -> io::Result<bool> {
    Ok(!ranges(process)?.is_empty())
}

/// Has a process of which no thread runs unmap all memory of probes. No thread may stand in it, nor come back to it.
///
/// # Errors
///
/// When ptrace fails, or the process may not make the system call.
pub(super) fn unmap(supervisor: &mut Supervisor, process: u32) -> io::Result<()> {
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

/// Returns the start and length of each mapping.
fn ranges(process: u32) -> io::Result<Vec<(u64, u64)>> {
    let is_own = |name: &MapName| match name {
        MapName::File { path, .. } => path.to_string_lossy().starts_with(FILE),
        _ => false,
    };
    let maps = mappings(process)?;
    let own = maps.iter().filter(|map| is_own(&map.name));
    Ok(own.map(|map| (map.start.0, map.end.0 - map.start.0)).collect())
}
