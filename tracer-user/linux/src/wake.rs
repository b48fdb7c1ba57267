//! Ends of waits for children: a thread that waits for processes is woken by a signal to it alone.

use std::{io, sync::Once};

/// A signal that nobody sends for another reason; its disposition is to be ignored.
const SIGNAL: i32 = libc::SIGURG;

/// A thread that can be woken.
#[derive(Clone, Copy, Debug)]
pub struct Waker {
    thread: i32,
}

impl Waker {
    /// Returns the waker of the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            extern "C" fn nothing(_: i32) {}
            // SAFETY: a structure of integers and pointers: zeros are valid.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = nothing as *const () as usize;
            // Without `SA_RESTART`: a wait ends.
            // SAFETY: the handler does nothing, and the pointers are those of local variables or null.
            unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) };
        });
        // SAFETY: no memory is involved.
        Self { thread: unsafe { libc::gettid() } }
    }

    /// Returns whether it is that of the calling thread.
    #[must_use]
    pub fn is_of_this_thread(self) -> bool {
        // SAFETY: no memory is involved.
        self.thread == unsafe { libc::gettid() }
    }

    /// Ends the wait that the thread is in; one that begins a moment later goes on.
    ///
    /// # Errors
    ///
    /// When the thread has ended.
    pub fn wake(self) -> io::Result<()> {
        // SAFETY: no memory is involved.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, SIGNAL) };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
