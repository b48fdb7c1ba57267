//! Trial of hardware breakpoints that a tracer sets through ptrace, on a child of its own.

use std::{
    io,
    mem::offset_of,
    sync::atomic::{AtomicU64, Ordering},
};

use nix::{
    sys::{
        ptrace::{self, AddressType, Options},
        signal::{Signal, kill},
    },
    unistd::Pid,
};

use super::{
    perf::Trial,
    status::{Status, wait},
};

/// Status with which the child ends where nobody may trace it.
const REFUSED: i32 = 1;

/// Bits of DR7: the first breakpoint, on writes, of eight bytes (Intel SDM, volume 3, "Debug Control Register (DR7)").
const FIRST_ON_WRITES_OF_EIGHT: i64 = 1 | 1 << 16 | 2 << 18;

/// Tries one, on a write of a child, which has ended afterwards. To be called while this process is single-threaded.
#[must_use]
pub fn trial() -> Trial {
    let watched = AtomicU64::new(0);
    // SAFETY: this process is single-threaded, so that the child may do what it likes.
    match unsafe { libc::fork() } {
        -1 => Trial::Untried,
        0 => {
            // SAFETY: numbers alone. Before its first stop the child would outlive this process.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if ptrace::traceme().is_err() {
                // SAFETY: ends the child without running what the parent has registered for its exit.
                unsafe { libc::_exit(REFUSED) }
            }
            // SAFETY: no memory is involved; the tracer continues it.
            unsafe { libc::raise(libc::SIGSTOP) };
            watched.store(1, Ordering::SeqCst);
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        child => {
            let child = Pid::from_raw(child);
            let trial = observe(child, watched.as_ptr() as u64).unwrap_or(Trial::Refused);
            // It may have ended.
            let _ = kill(child, Signal::SIGKILL);
            while let Ok(Status::Stopped { .. }) = wait(child.as_raw()) {}
            trial
        }
    }
}

/// Sets a breakpoint in a child at its first stop, and resumes it up to there.
fn observe(child: Pid, address: u64) -> io::Result<Trial> {
    let Status::Stopped { .. } = wait(child.as_raw())? else { return Ok(Trial::Refused) };
    ptrace::setoptions(child, Options::PTRACE_O_EXITKILL)?;
    ptrace::write_user(child, debug_register(0), address.cast_signed())?;
    ptrace::write_user(child, debug_register(7), FIRST_ON_WRITES_OF_EIGHT)?;
    ptrace::cont(child, None)?;
    match wait(child.as_raw())? {
        Status::Stopped { signal: libc::SIGTRAP, .. } => {
            // Without the bit of the first one, the processor did not say which it was.
            let is_known = ptrace::read_user(child, debug_register(6))? & 1 != 0;
            Ok(if is_known { Trial::Works } else { Trial::Kills })
        }
        _ => Ok(Trial::Silent),
    }
}

/// Returns the place of a debug register in the user area (`<sys/user.h>`).
fn debug_register(number: usize) -> AddressType {
    let offset = offset_of!(libc::user, u_debugreg) + number * size_of::<u64>();
    std::ptr::without_provenance_mut(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_registers_are_in_the_user_area() {
        // `arch/x86/include/asm/user_64.h`.
        assert_eq!([0, 7].map(|number| debug_register(number).addr()), [848, 904]);
    }
}
