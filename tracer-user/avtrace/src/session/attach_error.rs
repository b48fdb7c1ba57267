//! Reasons for which avtrace cannot attach to a process.

use std::io;

use super::{process_selection::MAX_PROCESSES, program::ProgramError};
use capture::in_process::InProcessError;

/// Reason for which avtrace cannot attach to a process; each message has a remedy.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is none of this id.
    #[error("there is no process {pid} (`pgrep -n NAME` finds the latest one of a name)")]
    NoProcess {
        /// The id.
        pid: u32,
    },
    /// The id is that of another thread than the first of a process.
    #[error("{thread} is a thread of process {pid}: use `--pid {pid}`")]
    Thread {
        /// The id.
        thread: u32,
        /// The process.
        pid: u32,
    },
    /// The id is avtrace's own.
    #[error("process {pid} is avtrace itself")]
    Itself {
        /// The id.
        pid: u32,
    },
    /// The process has ended, and waits for its parent; or its first thread has.
    #[error(
        "process {pid} has ended, or its first thread has: nothing can be read of its memory (`pgrep NAME` lists the \
         processes of a name)"
    )]
    Ended {
        /// The process.
        pid: u32,
    },
    /// The process has ended while avtrace attached to it.
    #[error(
        "process {pid} has ended before avtrace was attached to it: start it anew with `avtrace PROGRAM`"
    )]
    EndedMeanwhile {
        /// The process.
        pid: u32,
    },
    /// The end was asked for before the process was attached to.
    #[error("the end was asked for before avtrace was attached to process {pid}")]
    EndedBefore {
        /// The process.
        pid: u32,
    },
    /// avtrace has a defect, of which it has said more.
    #[error("process {pid}: avtrace has panicked, as said above; please report that")]
    Panicked {
        /// The process.
        pid: u32,
    },
    /// The process is under ptrace.
    #[error(
        "process {pid} is traced by process {tracer} (`{name}`), which has its breakpoints: detach that first \
         (`detach` in gdb)"
    )]
    Traced {
        /// The process.
        pid: u32,
        /// The process that traces it.
        tracer: u32,
        /// Its name.
        name: String,
    },
    /// The process may not be looked at.
    #[error(
        "process {pid} is of another user, and may not be looked at: run `sudo avtrace attach --pid {pid}`"
    )]
    NotPermitted {
        /// The process.
        pid: u32,
    },
    /// The kernel does not let this process trace it.
    #[error("process {pid} cannot be traced with ptrace: {reason}")]
    Untraceable {
        /// The process.
        pid: u32,
        /// Reason, with a remedy.
        reason: String,
    },
    /// The process cannot have probes in it.
    #[error("process {pid}: {error}")]
    Refused {
        /// The process.
        pid: u32,
        /// Reason, with a remedy.
        error: InProcessError,
    },
    /// The process has no program.
    #[error(
        "process {pid} is a thread of the kernel, which has no program: name a process that runs one (`ps -ef` \
         has the names of such threads in brackets)"
    )]
    KernelThread {
        /// The process.
        pid: u32,
    },
    /// There are too many others.
    #[error(
        "{MAX_PROCESSES} other processes are traced, and that is the limit: attach to process {pid} by another \
         `avtrace attach --pid {pid}`"
    )]
    TooMany {
        /// The process.
        pid: u32,
    },
    /// None of several processes can be attached to; the reasons have been printed.
    #[error(
        "none of the {count} processes can be traced, for the reasons above: mend one, or name others with --pid, \
         --name or --cgroup"
    )]
    None {
        /// Number of processes.
        count: usize,
    },
    /// The program cannot be traced.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The process cannot be looked at.
    #[error("cannot look at process {pid}: {error}")]
    System {
        /// The process.
        pid: u32,
        /// Reason.
        error: io::Error,
    },
}
