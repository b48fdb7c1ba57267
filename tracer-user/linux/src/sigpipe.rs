//! State of `SIGPIPE` when this process started. Rust's runtime ignores the signal before `main`; a program that is
//! started from here gets the state that this process was given.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// The C library calls this before Rust's runtime does anything.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = remember;

extern "C" fn remember() {
    // SAFETY: a structure of integers and pointers: zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed; the pointer leads to a local variable.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    WAS_IGNORED.store(result == 0 && action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

/// Restores the state of `SIGPIPE` that this process was started with. Only for a child that is about to execute a
/// program.
pub(super) fn restore() {
    let action = if WAS_IGNORED.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither is a handler that could run.
    unsafe { libc::signal(libc::SIGPIPE, action) };
}
