//! Barriers in the threads of other processes.

use std::io;

/// Command of `membarrier` by which a process registers for [`barrier`].
pub const REGISTER: i32 = 1 << 2;

/// `MEMBARRIER_CMD_QUERY` and `MEMBARRIER_CMD_GLOBAL_EXPEDITED` of `<linux/membarrier.h>`.
const QUERY: i32 = 0;
const GLOBAL_EXPEDITED: i32 = 1 << 1;

/// Has every thread of each process that has executed [`REGISTER`] pass a full barrier, and this thread as well. Costs
/// an interrupt on each processor where one of them runs.
///
/// Minimum kernel version: 4.16 (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`; `kernel/sched/membarrier.c`).
///
/// # Errors
///
/// `ENOSYS` or `EINVAL` where the kernel does not know it.
pub fn barrier() -> io::Result<()> {
    command(GLOBAL_EXPEDITED).map(drop)
}

/// Registers this process for [`barrier`], by [`REGISTER`].
///
/// # Errors
///
/// As of [`barrier`].
pub fn register() -> io::Result<()> {
    command(REGISTER).map(drop)
}

/// Returns whether the kernel knows [`barrier`].
#[must_use]
pub fn is_supported() -> bool {
    command(QUERY).is_ok_and(|known| known & GLOBAL_EXPEDITED != 0)
}

fn command(command: i32) -> io::Result<i32> {
    // SAFETY: the call takes numbers alone.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

#[cfg(test)]
mod tests {
    use std::{
        hint::spin_loop,
        sync::atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
            compiler_fence,
        },
        thread,
    };

    use super::*;

    /// Waits until the other thread has begun a round.
    fn meet(mine: &AtomicU64, other: &AtomicU64, round: u64) {
        mine.store(round, SeqCst);
        while other.load(SeqCst) < round {
            spin_loop();
        }
    }

    /// Two threads each store one word and load the other. On x86 both may find 0, as stores are delayed; not so with a
    /// barrier on one side.
    #[test]
    fn a_barrier_reaches_threads_that_have_none() {
        const ROUNDS: u64 = 5_000;
        if !is_supported() {
            println!("skipped: no MEMBARRIER_CMD_GLOBAL_EXPEDITED");
            return;
        }
        register().unwrap();
        let (x, y) = (AtomicU64::new(0), AtomicU64::new(0));
        let (a, b) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                (1..=ROUNDS)
                    .map(|round| {
                        meet(&b, &a, round);
                        x.store(round, Relaxed);
                        compiler_fence(SeqCst);
                        y.load(Relaxed)
                    })
                    .collect::<Vec<u64>>()
            });
            let seen: Vec<u64> = (1..=ROUNDS)
                .map(|round| {
                    meet(&a, &b, round);
                    y.store(round, Relaxed);
                    barrier().unwrap();
                    x.load(Relaxed)
                })
                .collect();
            let seen_by_other = other.join().unwrap();
            for (round, (x, y)) in (1..).zip(seen.into_iter().zip(seen_by_other)) {
                assert!(x >= round || y >= round, "round {round}: {x} {y}");
            }
        });
    }
}
