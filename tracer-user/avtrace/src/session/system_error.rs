//! Failure of a system call that always works but for a lack of resources.

use std::io;

/// Failed system call.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}{}", remedy(error))]
pub struct SystemError {
    /// Attempted step.
    pub what: &'static str,
    pub error: io::Error,
}

/// Returns the remedy for a lack of resources.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) => {
            " (raise the limits of memory or threads: `ulimit -v`, `ulimit -u`)"
        }
        Some(libc::EMFILE) => " (raise the limit of open files: `ulimit -n`)",
        _ => "",
    }
}
