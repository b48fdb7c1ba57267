//! Reasons why there can be no probes in a process, each with a remedy.

use std::io;

/// Reason for which there can be no probes in a process.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// The program gives the GS base a meaning of its own.
    #[error(
        "the program uses the GS base for itself, which `--capture inline` needs: use `--capture kernel`, as root"
    )]
    UsesGs,
    /// Filters of system calls let nothing through.
    #[error(
        "the program runs in strict seccomp mode, where `--capture inline` cannot map memory: use `--capture kernel`, as root"
    )]
    StrictSeccomp,
    /// The process denies memory that was writable and becomes executable.
    #[error(
        "the program is started with `PR_SET_MDWE`, which denies new code: use `--capture kernel`, as root"
    )]
    DeniesWriteExecute,
    /// The program would lose the privileges that its file gives.
    #[error(
        "the program's file is set-user-ID, set-group-ID or has capabilities, which it loses when a user traces it: run \
         avtrace as root"
    )]
    Privileged,
    /// An option is for the kernel side.
    #[error("`{option}` is not possible with `--capture inline`: use `--capture kernel`, as root")]
    NeedsKernel {
        /// The option.
        option: &'static str,
    },
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// Failure, as a clause.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The program has no memory in common with avtrace.
    #[error("the program shares no memory with avtrace")]
    NoMemory,
}
