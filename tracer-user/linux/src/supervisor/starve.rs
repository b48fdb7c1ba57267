//! Starvation of single threads: a starved thread is held at its next stop, of any kind, until it is fed. Starvation
//! ends with the thread, and when its process replaces the program.

use std::io;

use super::{Supervisor, ThreadState, request};

const IO_PGETEVENTS: i64 = 333;

/// System calls that fail with `EINTR` when a stop interrupts them, also without a signal (signal(7), "Interruption of
/// system calls and library functions by stop signals"), and those that do so with a timeout of their socket.
const INTERRUPTED: [i64; 17] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
];

/// Result of a system call that the kernel makes again unless a handler of a signal is called (`ERESTARTNOHAND` in
/// `include/linux/errno.h`): then it is `EINTR`.
const RESTART: i64 = -514;

impl Supervisor {
    /// Has a running thread stop soon, and stay so until it is fed. Returns false if it does not run.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn starve(&mut self, thread: u32) -> io::Result<bool> {
        let id = thread.cast_signed();
        let Some(known) = self.threads.get(&id) else { return Ok(false) };
        if known.state != ThreadState::Running || known.has_ended || known.is_in_vfork {
            return Ok(false);
        }
        request::interrupt(id)?;
        self.starved.insert(id);
        Ok(true)
    }

    /// Lets a starved thread go on.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn feed(&mut self, thread: u32) -> io::Result<()> {
        let id = thread.cast_signed();
        if self.starved.remove(&id) && !self.is_awaited(id) {
            self.go_on(id)?;
        }
        Ok(())
    }

    /// Lets all starved threads go on.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn feed_all(&mut self) -> io::Result<()> {
        let starved: Vec<i32> = self.starved.iter().copied().collect();
        starved.into_iter().try_for_each(|id| self.feed(id.cast_unsigned()))
    }

    /// Notes that a thread has stopped for this event: if it is starved, whatever call the stop has interrupted goes on
    /// later.
    pub(super) fn stops_starved(&mut self, id: i32, event: i32) -> io::Result<()> {
        if !self.starved.contains(&id) {
            return Ok(());
        }
        if matches!(event, libc::PTRACE_EVENT_EXIT | libc::PTRACE_EVENT_EXEC) {
            self.starved.remove(&id);
            return Ok(());
        }
        if event != libc::PTRACE_EVENT_STOP {
            return Ok(());
        }
        let mut registers = request::registers(id)?;
        let has_failed = registers.rax.cast_signed() == -i64::from(libc::EINTR);
        if has_failed && INTERRUPTED.contains(&registers.orig_rax.cast_signed()) {
            registers.rax = RESTART.cast_unsigned();
            request::set_registers(id, registers)?;
        }
        Ok(())
    }

    /// Returns whether a thread is held for something else: an event that has not been dealt with.
    fn is_awaited(&self, id: i32) -> bool {
        self.held.contains(&id)
            || self.pending.iter().any(|event| event.threads().contains(&id))
            || self.expected.values().any(|birth| birth.parent == id)
    }
}
