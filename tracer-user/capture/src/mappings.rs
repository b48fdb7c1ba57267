//! Memory maps of processes.

use std::io;

use linux::proc;
use symbolize::{Mapping, parse_maps};

/// Reads the memory map of a process, or of the process that a thread is of.
///
/// # Errors
///
/// When it has gone, or its map must not be read.
pub(crate) fn mappings(process: u32) -> io::Result<Vec<Mapping>> {
    parse_maps(&proc::maps(process)?).map_err(io::Error::other)
}
