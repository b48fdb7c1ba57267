//! Locks that are acquired and released in line, without a function that would cover all of it. Stores the holders,
//! so that a release counts only after an acquire that was seen, and the other way round.

use checker::event::{LockId, Op, ThreadId};
use rustc_hash::FxHashMap;

use plan::sync::slow_paths::FastPath;

/// Mode in which a thread holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Exclusive,
    /// Shared, with the number of acquires.
    Shared(u32),
}

/// All such locks.
#[derive(Debug, Default)]
pub(super) struct InlineLocks {
    holds: FxHashMap<(LockId, ThreadId), Hold>,
    /// Releases whose acquisition was not seen.
    unseen: u64,
}

/// Up to two operations.
pub(super) type Ops = (Option<Op>, Option<Op>);

impl InlineLocks {
    /// Returns the operations for a step of a thread on a lock.
    pub(super) fn step(&mut self, fast: FastPath, lock: LockId, thread: ThreadId) -> Ops {
        let key = (lock, thread);
        let held = self.holds.remove(&key);
        match (fast, held) {
            (FastPath::Acquire, None) => {
                self.holds.insert(key, Hold::Exclusive);
                (Some(Op::Acquire(lock)), None)
            }
            // A release in between was not seen.
            (FastPath::Acquire, Some(Hold::Exclusive)) => {
                self.holds.insert(key, Hold::Exclusive);
                (Some(Op::Release(lock)), Some(Op::Acquire(lock)))
            }
            (FastPath::Acquire, Some(Hold::Shared(_))) => {
                self.holds.insert(key, Hold::Exclusive);
                (Some(Op::ReleaseShared(lock)), Some(Op::Acquire(lock)))
            }
            (FastPath::AcquireShared, Some(Hold::Shared(times))) => {
                self.holds.insert(key, Hold::Shared(times + 1));
                (None, None)
            }
            (FastPath::AcquireShared, held) => {
                self.holds.insert(key, Hold::Shared(1));
                (held.map(|_| Op::Release(lock)), Some(Op::AcquireShared(lock)))
            }
            (
                FastPath::Release | FastPath::ReleaseEither | FastPath::ReleaseAndWake,
                Some(Hold::Exclusive),
            ) => (Some(Op::Release(lock)), None),
            (FastPath::ReleaseShared | FastPath::ReleaseEither, Some(Hold::Shared(times))) => {
                if times > 1 {
                    self.holds.insert(key, Hold::Shared(times - 1));
                    return (None, None);
                }
                (Some(Op::ReleaseShared(lock)), None)
            }
            (FastPath::Downgrade, Some(Hold::Exclusive)) => {
                self.holds.insert(key, Hold::Shared(1));
                (Some(Op::Release(lock)), Some(Op::AcquireShared(lock)))
            }
            // The acquisition was not seen, and neither was the order that it makes.
            _ => {
                self.unseen += 1;
                (None, None)
            }
        }
    }

    /// Releases that did not count.
    pub(super) const fn unseen(&self) -> u64 {
        self.unseen
    }

    /// Forgets the holders of a lock whose place another lock takes.
    pub(super) fn forget(&mut self, lock: LockId) {
        self.holds.retain(|(held, _), _| *held != lock);
    }

    /// Events were lost.
    pub(super) fn gap(&mut self) {
        self.holds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: LockId = LockId(3);
    const THREAD: ThreadId = ThreadId(1);

    fn ops(steps: &[FastPath]) -> (Vec<Op>, u64) {
        let mut locks = InlineLocks::default();
        let mut ops = Vec::new();
        for &step in steps {
            let (first, second) = locks.step(step, LOCK, THREAD);
            ops.extend(first.into_iter().chain(second));
        }
        (ops, locks.unseen())
    }

    #[test]
    fn what_is_taken_is_let_go_of() {
        let (acquire, release) = (Op::Acquire(LOCK), Op::Release(LOCK));
        let (shared, unshared) = (Op::AcquireShared(LOCK), Op::ReleaseShared(LOCK));
        assert_eq!(ops(&[FastPath::Acquire, FastPath::Release]), (vec![acquire, release], 0));
        assert_eq!(
            ops(&[FastPath::AcquireShared, FastPath::ReleaseEither]),
            (vec![shared, unshared], 0)
        );
        let nested = [
            FastPath::AcquireShared,
            FastPath::AcquireShared,
            FastPath::ReleaseShared,
            FastPath::ReleaseShared,
        ];
        assert_eq!(ops(&nested), (vec![shared, unshared], 0));
        let downgraded = [FastPath::Acquire, FastPath::Downgrade, FastPath::ReleaseShared];
        assert_eq!(ops(&downgraded), (vec![acquire, release, shared, unshared], 0));
    }

    #[test]
    fn a_release_of_what_was_not_seen_taken_does_not_count() {
        assert_eq!(ops(&[FastPath::Release]), (vec![], 1));
        // A downgrade was not seen.
        assert_eq!(
            ops(&[FastPath::Acquire, FastPath::ReleaseShared, FastPath::ReleaseShared]).1,
            2
        );
        let again = [Op::Acquire(LOCK), Op::Release(LOCK), Op::Acquire(LOCK)];
        assert_eq!(ops(&[FastPath::Acquire, FastPath::Acquire]).0, again);
    }
}
