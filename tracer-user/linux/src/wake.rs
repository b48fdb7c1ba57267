//! Ends of waits for children: a thread that waits for processes is woken by a signal to it alone.

use std::{io, sync::Once, time::Duration};

/// A signal that has no other use here; its default is to be ignored.
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
            // SAFETY: the handler does nothing, and the pointers lead to local variables or null.
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

    /// Ends the current wait of the thread; a wait that begins a moment later goes on.
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

/// Timer that wakes a thread again and again, until it is dropped.
#[derive(Debug)]
pub struct WakeTimer(libc::timer_t);

impl WakeTimer {
    /// Starts one for the calling thread, whose waits it ends at this interval.
    ///
    /// # Errors
    ///
    /// When the kernel has no room for it.
    pub fn start(interval: Duration) -> io::Result<Self> {
        let waker = Waker::of_this_thread();
        // SAFETY: a structure of integers and pointers: zeros are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = waker.thread;
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: the pointers lead to local variables.
        let created =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        if created != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Self(timer);
        let interval = libc::timespec {
            tv_sec: interval.as_secs().cast_signed(),
            tv_nsec: interval.subsec_nanos().into(),
        };
        let times = libc::itimerspec { it_interval: interval, it_value: interval };
        // SAFETY: the timer was created above, and the pointers are that of a local variable and null.
        let set =
            unsafe { libc::timer_settime(timer.0, 0, &raw const times, std::ptr::null_mut()) };
        if set == 0 { Ok(timer) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for WakeTimer {
    fn drop(&mut self) {
        // SAFETY: it was created by `start`, and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}
