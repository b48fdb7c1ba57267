//! Trial of hardware breakpoints that a tracer sets through ptrace, on a child that is forked for it.

use std::{io, sync::OnceLock};

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

/// Status with which the child ends if it may not be traced.
const REFUSED: i32 = 1;

/// Number of hits of a trial. A fault that shows once in many thousands is not found.
const HITS: usize = 16;

/// Tries a hardware breakpoint on writes of a child, which has ended afterwards. The first call must come while this
/// process is single-threaded; later calls return its result.
#[must_use]
pub fn trial() -> Trial {
    static TRIAL: OnceLock<Trial> = OnceLock::new();
    *TRIAL.get_or_init(try_in_child)
}

fn try_in_child() -> Trial {
    let mut watched = 0u64;
    let watched = &raw mut watched;
    // SAFETY: this process is single-threaded, so that the child may call any function.
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
            for _ in 0..HITS {
                // Nobody reads it: stores that are not volatile may become one, or none.
                // SAFETY: a local variable of this function, in memory of the child's own.
                unsafe { watched.write_volatile(1) };
            }
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        child => {
            let child = Pid::from_raw(child);
            let trial = observe(child, watched as u64).unwrap_or(Trial::Refused);
            // It may have ended.
            let _ = kill(child, Signal::SIGKILL);
            while let Ok(Status::Stopped { .. }) = wait(child.as_raw()) {}
            tracing::debug!(?trial, "hardware breakpoints through ptrace");
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
    for seen in 0..HITS {
        ptrace::cont(child, None)?;
        match wait(child.as_raw())? {
            Status::Stopped { signal: libc::SIGTRAP, .. } => {}
            _ if seen == 0 => return Ok(Trial::Silent),
            _ => return Ok(Trial::Loses),
        }
        let place = register(STATUS) as AddressType;
        // Without the bit of the first one, the processor did not say which it was.
        if ptrace::read_user(child, place)? & 1 == 0 {
            return Ok(Trial::Kills);
        }
        ptrace::write_user(child, place, 0)?;
    }
    Ok(Trial::Works)
}
