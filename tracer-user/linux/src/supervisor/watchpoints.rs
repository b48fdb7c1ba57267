//! Debug registers of held threads: watchpoints, and the stops at their hits. Each thread has its own registers, which
//! need neither a privilege nor a setting of the kernel. New threads and processes start without watchpoints, and
//! `execve` clears them.

use std::{io, mem::offset_of};

use super::{Event, Resume, Supervisor, ThreadState, request};

/// Number of watchpoints that a thread can have.
pub const WATCHPOINTS: usize = 4;

/// Code of a `SIGTRAP` for a watchpoint (`include/uapi/asm-generic/siginfo.h`, `TRAP_HWBKPT`).
const WATCHPOINT_HIT: i32 = 4;

/// Place of a debug register in `struct user`.
pub(crate) const fn register(number: usize) -> usize {
    offset_of!(libc::user, u_debugreg) + number * size_of::<u64>()
}

/// Register that says which watchpoints were hit (Intel SDM, volume 3, chapter 18).
pub(crate) const STATUS: usize = 6;

/// Register that enables watchpoints.
pub(crate) const CONTROL: usize = 7;

/// Hit of watchpoints by a held thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Watchpoints that were hit, a bit each.
    pub watchpoints: u64,
    /// Address of the instruction after the accessing one.
    pub next: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub bp: u64,
    /// Flags after the access.
    pub flags: u64,
}

impl Supervisor {
    /// Has a held thread stop after each read and write of these ranges: at most [`WATCHPOINTS`], of 1, 2, 4 or 8 bytes
    /// each, at addresses that are multiples of that. They replace the ranges of earlier calls.
    ///
    /// # Errors
    ///
    /// The kernel's: `ENOSPC` where others have taken the watchpoints, `EINVAL` for a bad address or length, `ESRCH`
    /// when the thread has ended or does not stand still.
    pub fn watch(&self, thread: u32, ranges: &[(u64, u64)]) -> io::Result<()> {
        let set = |number, value| request::set_user_word(thread as i32, register(number), value);
        for (number, (address, _)) in ranges.iter().enumerate().take(WATCHPOINTS) {
            set(number, *address)?;
        }
        set(CONTROL, control(ranges))
    }

    /// Takes the stop of a thread for `SIGTRAP`. Returns whether it has hit a watchpoint: then it goes on without the
    /// signal.
    pub(super) fn meets_watchpoint(&mut self, id: i32) -> io::Result<bool> {
        if request::signal_cause(id)?.0 != WATCHPOINT_HIT || self.hits(id)? == 0 {
            return Ok(false);
        }
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(false) };
        thread.state = ThreadState::Held(Resume::Continue(0));
        let process = thread.process as u32;
        self.pending.push_back(Event::Hit { process, thread: id as u32 });
        Ok(true)
    }

    fn hits(&self, id: i32) -> io::Result<u64> {
        const ALL: u64 = (1 << WATCHPOINTS) - 1;
        Ok(request::user_word(id, register(STATUS))? & ALL)
    }

    /// Returns the hits of a thread that is held for [`Event::Hit`].
    ///
    /// # Errors
    ///
    /// When it was killed.
    pub fn hit(&self, thread: u32) -> io::Result<Hit> {
        let id = thread as i32;
        let registers = request::registers(id)?;
        Ok(Hit {
            watchpoints: self.hits(id)?,
            // It may have been moved since.
            next: request::fault_address(id)?,
            sp: registers.rsp,
            bp: registers.rbp,
            flags: registers.eflags,
        })
    }
}

pub(crate) fn control(ranges: &[(u64, u64)]) -> u64 {
    const READS_AND_WRITES: u64 = 3;
    let watchpoints = ranges.iter().enumerate().take(WATCHPOINTS);
    watchpoints.fold(0, |control, (number, (_, length))| {
        let length = match length {
            1 => 0,
            2 => 1,
            4 => 3,
            _ => 2,
        };
        let kind = READS_AND_WRITES | length << 2;
        control | 1 << (2 * number) | kind << (16 + 4 * number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_register_has_kinds_and_lengths() {
        assert_eq!(control(&[]), 0);
        assert_eq!(control(&[(0x1000, 8)]), 0xb_0001);
        assert_eq!(control(&[(0x1000, 1), (0x1002, 2), (0x1004, 4)]), 0xf73_0015);
    }
}
