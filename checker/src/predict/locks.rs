//! Locks held at an event, of the trace or of another order of it.

use crate::event::{LockId, Op};
use rustc_hash::FxHashMap;

/// Holds of each lock: thread, whether shared, and the number of acquisitions.
pub(super) type Locks = FxHashMap<LockId, Vec<(u32, bool, u32)>>;

/// Applies an event to the holds.
pub(super) fn apply(locks: &mut Locks, row: u32, op: Op) {
    let (lock, is_shared, is_acquire) = match op {
        Op::Acquire(lock) => (lock, false, true),
        Op::AcquireShared(lock) => (lock, true, true),
        Op::Release(lock) => (lock, false, false),
        Op::ReleaseShared(lock) => (lock, true, false),
        Op::Reset(lock) => {
            locks.remove(&lock);
            return;
        }
        _ => return,
    };
    let holds = locks.entry(lock).or_default();
    let index = holds.iter().position(|&(by, shared, _)| by == row && shared == is_shared);
    match (index, is_acquire) {
        (Some(index), true) => holds[index].2 += 1,
        (None, true) => holds.push((row, is_shared, 1)),
        (Some(index), false) => {
            holds[index].2 -= 1;
            if holds[index].2 == 0 {
                holds.swap_remove(index);
            }
        }
        (None, false) => {}
    }
    if holds.is_empty() {
        locks.remove(&lock);
    }
}
