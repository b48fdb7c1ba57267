//! Errors of the kernel side, each with a remedy.

use std::{error::Error, io};

use super::{btf::BtfError, privileges::denial};

/// Reason for which the kernel side does not work; each message has a remedy.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The process may not load BPF programs.
    #[error("no permission to load BPF programs: {}", denial())]
    NotPermitted,
    /// The kernel's type information is missing.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The embedded object is not the one that this build knows.
    #[error(
        "the embedded BPF programs have ABI version {found}, this build knows {expected}: rebuild avtrace"
    )]
    Abi {
        /// In the object.
        found: u32,
        /// In this build.
        expected: u32,
    },
    /// The embedded object is damaged.
    #[error("the embedded BPF object is damaged ({0}): rebuild avtrace")]
    Object(String),
    /// Child processes cannot be followed without harm to others.
    #[error(
        "--follow-forks is not possible here: {0}. Without the option the first process is traced, and what it becomes"
    )]
    CannotFollow(String),
    /// Probes cannot be limited to a process, and would break others.
    #[error("{0}. Try again when nothing is traced inline, or use --capture inline")]
    HarmsOthers(io::Error),
    /// The kernel refuses the programs.
    #[error(
        "the kernel refuses the BPF programs ({0}): Linux 5.15 or newer with CONFIG_BPF_SYSCALL, CONFIG_UPROBES \
         and CONFIG_BPF_EVENTS is needed"
    )]
    Refused(String),
    /// There is not enough memory, or not enough of another limited resource.
    #[error(
        "cannot set up the BPF programs ({0}): raise the limits of memory (`ulimit -v`) and of open files (`ulimit -n`)"
    )]
    Resources(String),
    /// The buffer of records cannot be mapped.
    #[error(
        "cannot map the buffer of records ({0}): raise the limit of memory (`ulimit -v`), or choose a smaller `--buffer`"
    )]
    Buffer(String),
    /// A probe that was hit has left no record.
    #[error("a probe in avtrace itself was hit, and its record of {missing} did not come")]
    Silent {
        /// Record that is missing.
        missing: &'static str,
    },
    /// A program cannot be attached.
    #[error("cannot attach to {what}: {error}")]
    Attach {
        /// Place of attachment.
        what: String,
        /// The kernel's answer.
        error: io::Error,
    },
}

pub(super) fn cause(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

/// The error for a BPF system call that failed.
pub(super) fn refused(error: &(dyn Error + 'static)) -> KernelError {
    circumstance(error).unwrap_or_else(|| KernelError::Refused(chain(error)))
}

/// The error for a part of the embedded object that cannot be used.
pub(super) fn unusable(error: &(dyn Error + 'static)) -> KernelError {
    circumstance(error).unwrap_or_else(|| KernelError::Object(chain(error)))
}

/// The cause that a user can do something about, without another avtrace or another kernel.
fn circumstance(error: &(dyn Error + 'static)) -> Option<KernelError> {
    let mut link = Some(error);
    while let Some(error) = link {
        match error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            Some(libc::EPERM | libc::EACCES) => return Some(KernelError::NotPermitted),
            Some(libc::ENOMEM | libc::EAGAIN | libc::EMFILE | libc::ENFILE) => {
                return Some(KernelError::Resources(error.to_string()));
            }
            _ => link = error.source(),
        }
    }
    None
}

/// An error with its causes, in one line.
fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    message.lines().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps the error of a system call, as aya does.
    #[derive(Debug, thiserror::Error)]
    #[error("`mmap` failed")]
    struct Failed(#[source] io::Error);

    #[test]
    fn what_a_user_can_change_is_no_damage() {
        let failed = |number| Failed(io::Error::from_raw_os_error(number));
        for explain in [refused, unusable] {
            assert!(matches!(explain(&failed(libc::ENOMEM)), KernelError::Resources(_)));
            assert!(matches!(explain(&failed(libc::EPERM)), KernelError::NotPermitted));
        }
        assert!(matches!(refused(&failed(libc::EINVAL)), KernelError::Refused(_)));
        let KernelError::Object(message) = unusable(&failed(libc::EINVAL)) else { unreachable!() };
        assert!(message.starts_with("`mmap` failed: "), "{message}");
    }
}
