//! Reasons why there can be no probes in a process, each with a remedy.

mod unreadable;

use std::io;

pub use self::unreadable::Unreadable;
use linux::proc;

/// Reason for which there can be no probes in a process.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// The program refuses them.
    #[error("{0}: use `--capture kernel`, as root")]
    Refused(#[from] ProgramRefusal),
    /// A system call failed.
    #[error("{what}: {error}{}", remedy(error))]
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

/// Reason for which a program cannot have probes in it, whoever traces it. [`Display`](std::fmt::Display) is a clause.
#[derive(Debug, thiserror::Error)]
pub enum ProgramRefusal {
    /// The program gives the GS base a meaning of its own.
    #[error("the program uses the GS base for itself, which inline probes need{}", within(place.as_deref()))]
    UsesGs {
        /// Place of the code that does, where that is how it was found.
        place: Option<String>,
    },
    /// The program creates threads that no tracer gets.
    #[error(
        "the program creates threads that no tracer sees (`CLONE_UNTRACED`, {}), which would record to the rings of \
         others",
        place.as_ref().map_or_else(|| "before its entry point".to_owned(), |place| format!("in {place}"))
    )]
    HidesThreads {
        /// Place of the code that does, where that is how it was found.
        place: Option<String>,
    },
    /// The program ends with an error where a tracer is there.
    #[error(
        "the program has LeakSanitizer, which ends programs that are traced by ptrace unless `ASAN_OPTIONS` has \
         `detect_leaks=0`"
    )]
    HasLeakSanitizer,
    /// Filters of system calls let nothing through.
    #[error("the program runs in strict seccomp mode, where inline probes cannot map memory")]
    StrictSeccomp,
    /// A filter of system calls, or another rule of the kernel's, denies one that inline probes need.
    #[error("the program may not call {call}, which inline probes need ({error}; {})", cause(*is_filtered))]
    DeniedCall {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        error: io::Error,
        /// The program has a seccomp filter.
        is_filtered: bool,
    },
    /// A filter of system calls answers one that inline probes need, and nothing was done.
    #[error(
        "the program's seccomp filter answers {call} in the kernel's place, which inline probes need"
    )]
    AnsweredCall {
        /// The system call.
        call: &'static str,
    },
    /// A filter of system calls has killed the program at one that inline probes need.
    #[error("the program's seccomp filter kills it for a system call that inline probes need")]
    Killed,
    /// The process denies memory that was writable and becomes executable.
    #[error("the program is started with `PR_SET_MDWE`, which denies new code")]
    DeniesWriteExecute,
    /// The kernel keeps the memory of the process, or what it says of it, from this one.
    #[error("{reason} ({error})")]
    Unreadable {
        /// Reason for that.
        reason: Unreadable,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Another process runs in the same memory, without a place for its records.
    #[error("process {other} runs in the same memory, and would execute inline probes as well")]
    SharesMemory {
        /// The other process.
        other: u32,
    },
    /// The process has probes of an avtrace that was killed.
    #[error(
        "the process has memory of inline probes left, of an avtrace that was killed or could not take it back"
    )]
    HasLeftOvers,
    /// Code cannot be changed.
    #[error(
        "the kernel does not let the program's code be changed through `/proc/PID/mem` ({error}; \
         `proc_mem.force_override` may deny it)"
    )]
    DeniesWriting {
        /// The kernel's answer.
        error: io::Error,
    },
}

/// Reason why a program did not come to its entry point.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It was not started.
    #[error(transparent)]
    Start(#[from] io::Error),
    /// It was started, and cannot have probes.
    #[error(transparent)]
    InProcess(InProcessError),
}

impl InProcessError {
    /// Returns whether the process had ended, or was killed, when the kernel was asked.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::System { error, .. } if proc::is_gone(error))
    }

    /// Returns whether the program would end with an error because it has a tracer.
    #[must_use]
    pub const fn is_of_leak_sanitizer(&self) -> bool {
        matches!(self, Self::Refused(ProgramRefusal::HasLeakSanitizer))
    }

    /// Returns the reason why the program refuses probes in it, as a clause; `None` for errors of another kind.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => Some(refusal.to_string()),
            Self::System { .. } | Self::NoMemory => None,
        }
    }
}

/// Returns what helps where memory lacks.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => ": free memory, or raise its limit (`ulimit -v`)",
        _ => "",
    }
}

fn within(place: Option<&str>) -> String {
    place.map(|place| format!(" (in {place})")).unwrap_or_default()
}

const fn cause(is_filtered: bool) -> &'static str {
    if is_filtered { "it has a seccomp filter" } else { "a security module may deny it" }
}

/// Explains an error of looking at a process.
pub(super) fn failed(what: &'static str, process: u32) -> impl Fn(io::Error) -> InProcessError {
    move |error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ProgramRefusal::Unreadable { reason: Unreadable::of(process), error }.into()
        }
        _ => InProcessError::System { what, error },
    }
}

/// Explains an error of looking at a process before its entry point, or of changing its memory there.
pub(super) fn explained(error: io::Error, process: u32) -> InProcessError {
    // The kernel's answer if `/proc/PID/mem` may change no code.
    if error.raw_os_error() == Some(libc::EIO) {
        return ProgramRefusal::DeniesWriting { error }.into();
    }
    failed("cannot hold the program at its entry point", process)(error)
}
