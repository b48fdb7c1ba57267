//! Memory of inline probes: the memory map of a process shows it, by the name of its files.

use std::{
    fmt::{self, Display},
    io,
};

use linux::proc::{self, Status};
use symbolize::{MapName, parse_maps};

/// Name of the files in memory, as the memory map of a process has them.
const FILE: &str = "/memfd:avtrace";

/// Reason not to set breakpoints in every process. Where one hits the jump to a trampoline, the kernel executes the
/// instruction of the file and goes on behind it, in the middle of the jump (`kernel/events/uprobes.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// This process has inline probes.
    To(u32),
    /// This process is traced by ptrace, as those with inline probes are, and its memory map cannot be read.
    Possible(u32),
}

impl Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(process) => write!(
                f,
                "breakpoints in every process would break process {process}, which has inline probes of avtrace"
            ),
            Self::Possible(process) => write!(
                f,
                "breakpoints in every process would break process {process} if it has inline probes of avtrace: it is \
                 traced, and its memory map cannot be read"
            ),
        }
    }
}

/// Returns whether breakpoints in every process would break one. Not noticed is a process without a tracer whose memory
/// map cannot be read, and which has inline probes of an avtrace that was killed.
///
/// # Errors
///
/// When `/proc` cannot be read.
pub(crate) fn harm_of_breakpoints_everywhere() -> io::Result<Option<Harm>> {
    let mut possible = None;
    for process in proc::processes()? {
        match is_in(process) {
            Ok(true) => return Ok(Some(Harm::To(process))),
            Ok(false) => {}
            Err(error) if proc::is_gone(&error) => {}
            Err(_) => {
                let status = Status::of_process(process).ok();
                if status.and_then(|status| status.tracer()).is_some_and(|tracer| tracer != 0) {
                    possible = Some(Harm::Possible(process));
                }
            }
        }
    }
    Ok(possible)
}

/// Returns whether a process has memory of probes.
///
/// # Errors
///
/// When its memory map cannot be read.
pub(crate) fn is_in(process: u32) -> io::Result<bool> {
    Ok(!ranges(process)?.is_empty())
}

/// Returns the start and length of each mapping of such memory, in a process or in that of a thread.
///
/// # Errors
///
/// When its memory map cannot be read.
pub(crate) fn ranges(process: u32) -> io::Result<Vec<(u64, u64)>> {
    let is_own = |name: &MapName| match name {
        MapName::File { path, .. } => path.to_string_lossy().starts_with(FILE),
        _ => false,
    };
    let maps = parse_maps(&proc::maps(process)?).map_err(io::Error::other)?;
    let own = maps.iter().filter(|map| is_own(&map.name));
    Ok(own.map(|map| (map.start.0, map.end.0 - map.start.0)).collect())
}
