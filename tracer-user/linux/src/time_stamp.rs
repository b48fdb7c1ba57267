//! The processor's time stamp counter, and the kernel's clock that never goes back.

use std::arch::x86_64::{_mm_lfence, _rdtsc};

/// Reads the counter: after all that the program has read before, and before all that it reads after it.
#[must_use]
pub fn now() -> u64 {
    // SAFETY: the instructions exist on all x86-64 processors. Where the kernel has forbidden the counter
    // (`PR_SET_TSC`), which is up to this process, it gets a signal.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// Returns the time of `CLOCK_MONOTONIC` in nanoseconds.
#[must_use]
pub fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to a local variable. It fails for no clock that exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_goes_up() {
        let first = now();
        assert!((0..1000).map(|_| now()).is_sorted_by(|a, b| a < b) && now() > first);
    }
}
