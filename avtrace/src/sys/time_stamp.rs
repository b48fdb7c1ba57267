//! The processor's time stamp counter.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_goes_up() {
        let first = now();
        assert!((0..1000).map(|_| now()).is_sorted_by(|a, b| a < b) && now() > first);
    }
}
