//! Reasons for which a program is not known to be atomic.

use std::{io, path::PathBuf};

/// Reason for which a run has no result, or not the one that was asserted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no avtrace.
    #[error(
        "no avtrace on PATH: install it (`cargo install --path avtrace` in its repository), or name the executable with \
         the environment variable AVTRACE"
    )]
    NotFound,
    /// The executable that `AVTRACE` names is not there.
    #[error("the environment variable AVTRACE names `{}`, which is no file: name the executable of avtrace", .0.display())]
    NotThere(PathBuf),
    /// It cannot be started.
    #[error("cannot run `{}`: {error}; check that it may be executed", .path.display())]
    Start {
        /// Executable.
        path: PathBuf,
        /// Error.
        error: io::Error,
    },
    /// It has failed: the program cannot be traced, for instance.
    #[error(
        "avtrace has failed: {message} (`avtrace doctor` says what works on this machine, and what grants the rest)"
    )]
    Failed {
        /// Its own words, in a line.
        message: String,
    },
    /// Its report cannot be read.
    #[error(
        "cannot read avtrace's report: {error}; use the avtrace-test that comes with this avtrace"
    )]
    Report {
        /// Error.
        error: serde_json::Error,
    },
    /// Files of the run cannot be made or read.
    #[error("cannot keep the files of a run: {error}; check the directory for temporary files")]
    Files {
        /// Error.
        error: io::Error,
    },
    /// The run shows defects that count.
    #[error("not atomic:\n{text}")]
    NotAtomic {
        /// Report for people.
        text: String,
    },
    /// The program has failed.
    #[error(
        "the program failed: {ending}; run it without avtrace to see whether it fails there, too\n{output}"
    )]
    Program {
        /// Exit status, or signal.
        ending: String,
        /// Output of the program.
        output: String,
    },
    /// No region ran.
    #[error(
        "nothing was checked, as no region ran: name functions that should be atomic with the option --atomic, or mark \
         them; `avtrace --list-regions PROGRAM` shows candidates\n{text}"
    )]
    NothingChecked {
        /// Report for people.
        text: String,
    },
}
