//! Trial of hardware breakpoints that a tracer sets through ptrace, on a child of its own.

use std::{
    io,
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
    supervisor::watchpoints::{CONTROL, STATUS, control, register},
};

/// Status with which the child ends where nobody may trace it.
const REFUSED: i32 = 1;

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
    let set = |number, value: u64| {
        let place = register(number) as AddressType;
        ptrace::write_user(child, place, value.cast_signed())
    };
    set(0, address)?;
    set(CONTROL, control(&[(address, 8)]))?;
    ptrace::cont(child, None)?;
    match wait(child.as_raw())? {
        Status::Stopped { signal: libc::SIGTRAP, .. } => {
            // Without the bit of the first one, the processor did not say which it was.
            let is_known = ptrace::read_user(child, register(STATUS) as AddressType)? & 1 != 0;
            Ok(if is_known { Trial::Works } else { Trial::Kills })
        }
        _ => Ok(Trial::Silent),
    }
}
