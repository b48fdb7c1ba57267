//! Reasons for which avtrace cannot attach to a process.

use std::io;

use super::{process_selection::MAX_PROCESSES, program::ProgramError};
use capture::in_process::InProcessError;

/// Reason for which avtrace cannot attach to a process; each message has a remedy.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("there is no process {pid} (`pgrep -n NAME` finds the latest one of a name)")]
    NoProcess { pid: u32 },
    /// The id is that of another thread than the first of a process.
    #[error("{thread} is a thread of process {pid}: use `--pid {pid}`")]
    Thread { thread: u32, pid: u32 },
    #[error("process {pid} is avtrace itself")]
    Itself { pid: u32 },
    /// The process has ended, and waits for its parent; or its first thread has.
    #[error(
        "process {pid} has ended, or its first thread has: nothing can be read of its memory (`pgrep NAME` lists the \
         processes of a name)"
    )]
    Ended { pid: u32 },
    #[error(
        "process {pid} has ended before avtrace was attached to it: start it anew with `avtrace PROGRAM`"
    )]
    EndedMeanwhile { pid: u32 },
    /// The end was asked for before the process was attached to.
    #[error("the end was asked for before avtrace was attached to process {pid}")]
    EndedBefore { pid: u32 },
    /// avtrace has a defect, of which it has said more.
    #[error("process {pid}: avtrace has panicked, as said above; please report that")]
    Panicked { pid: u32 },
    #[error(
        "process {pid} is traced by process {tracer} (`{name}`), which has its breakpoints: detach that first \
         (`detach` in gdb)"
    )]
    Traced {
        pid: u32,
        /// The process that traces it.
        tracer: u32,
        name: String,
    },
    #[error(
        "process {pid} is of another user, and may not be looked at: run `sudo avtrace attach --pid {pid}`"
    )]
    NotPermitted { pid: u32 },
    #[error("process {pid} cannot be traced with ptrace: {reason}")]
    Untraceable {
        pid: u32,
        /// Reason, with a remedy.
        reason: String,
    },
    #[error("process {pid}: {error}")]
    Refused {
        pid: u32,
        /// Reason, with a remedy.
        error: InProcessError,
    },
    #[error(
        "process {pid} is a thread of the kernel, which has no program: name a process that runs one (`ps -ef` \
         has the names of such threads in brackets)"
    )]
    KernelThread { pid: u32 },
    #[error(
        "{MAX_PROCESSES} other processes are traced, and that is the limit: attach to process {pid} by another \
         `avtrace attach --pid {pid}`"
    )]
    TooMany { pid: u32 },
    /// None of several processes can be attached to; the reasons have been printed.
    #[error(
        "none of the {count} processes can be traced, for the reasons above: mend one, or name others with --pid, \
         --name or --cgroup"
    )]
    None {
        /// Number of processes.
        count: usize,
    },
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("cannot look at process {pid}: {error}")]
    System { pid: u32, error: io::Error },
}
