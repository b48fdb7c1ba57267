//! End of this process by a signal.

use std::process::ExitCode;

use nix::sys::prctl;

use crate::status::Ending;

/// Ends this process by a signal, as one of its programs has ended, so that its parent sees the same. It leaves no core
/// file: the program's own is the one to look at. Where a signal has no effect, as on the first process of a PID
/// namespace, it returns the exit status that a shell would show.
#[must_use]
pub fn die_by(signal: i32) -> ExitCode {
    // Without it there is a second core file at worst.
    let _ = prctl::set_dumpable(false);
    // SAFETY: the set is a local variable, for which zeros are valid; no handler is installed.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
    ExitCode::from(Ending::Killed(signal).shell_status() as u8)
}
