//! Failures while symbols are read; a lookup without a result is a [`Miss`](super::Miss) instead.

use std::io;
use std::path::PathBuf;

/// A failure to read or understand a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be opened, mapped or read.
    #[error("failed to read `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is not an ELF file that this tool handles.
    #[error("`{}` is not a 64-bit x86 ELF file: {reason}", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        reason: String,
    },
    /// A part of an ELF file is damaged.
    #[error("malformed {what} in `{}`: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The part: a section's name, for instance.
        what: &'static str,
        /// Description of the problem.
        reason: String,
    },
    /// A line of `/proc/PID/maps` is not of the kernel's form.
    #[error("malformed line {line} in the memory map: `{text}`")]
    Maps {
        /// The line's number, from 1.
        line: usize,
        /// The line itself.
        text: String,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
}
