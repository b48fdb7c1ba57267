//! Threads of a session: their start, and the value that they return.

use std::thread::{self, JoinHandle};

use super::system_error::SystemError;

/// Starts a thread of this name.
pub(super) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SystemError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|error| SystemError { what: "cannot start a thread", error })
}

/// Waits for a thread, and passes its panic on.
pub(super) fn joined<T>(thread: JoinHandle<T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
