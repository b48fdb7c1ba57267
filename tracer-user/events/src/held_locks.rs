//! Locks that threads hold exclusively, and how often they have taken one, from the events of a stream.

use checker::event::{LockId, Op, ThreadId};

/// Locks that each thread holds exclusively.
#[derive(Debug, Default)]
pub struct HeldLocks {
    /// By thread: each lock with the number of times that it is held.
    held: Vec<Vec<(LockId, u32)>>,
    /// By thread: number of locks that it has taken, shared ones too.
    taken: Vec<u64>,
}

impl HeldLocks {
    /// Notes an operation of a thread.
    #[inline]
    pub fn note(&mut self, thread: ThreadId, op: Op) {
        if matches!(
            op,
            Op::Acquire(_) | Op::AcquireShared(_) | Op::Release(_) | Op::Reset(_) | Op::Exit
        ) {
            self.change(thread, op);
        }
    }

    /// Notes an operation that may change the holds of a thread, or the number of locks that it has taken.
    fn change(&mut self, thread: ThreadId, op: Op) {
        if let Op::Acquire(_) | Op::AcquireShared(_) = op {
            if self.taken.len() <= thread.index() {
                self.taken.resize(thread.index() + 1, 0);
            }
            self.taken[thread.index()] += 1;
        }
        match op {
            Op::Acquire(lock) => {
                if self.held.len() <= thread.index() {
                    self.held.resize_with(thread.index() + 1, Vec::new);
                }
                let held = &mut self.held[thread.index()];
                match held.iter_mut().find(|(other, _)| *other == lock) {
                    Some((_, times)) => *times += 1,
                    None => held.push((lock, 1)),
                }
            }
            Op::Release(lock) => {
                let Some(held) = self.held.get_mut(thread.index()) else { return };
                let Some(index) = held.iter().position(|(other, _)| *other == lock) else { return };
                held[index].1 -= 1;
                if held[index].1 == 0 {
                    held.swap_remove(index);
                }
            }
            Op::Reset(lock) => {
                self.held.iter_mut().for_each(|held| held.retain(|(other, _)| *other != lock));
            }
            Op::Exit => {
                if let Some(held) = self.held.get_mut(thread.index()) {
                    *held = Vec::new();
                }
            }
            _ => {}
        }
    }

    /// Iterates over the locks that a thread holds.
    pub fn of(&self, thread: ThreadId) -> impl Iterator<Item = LockId> + Clone {
        self.held.get(thread.index()).into_iter().flatten().map(|&(lock, _)| lock)
    }

    /// Returns the number of locks that a thread has taken so far.
    #[must_use]
    pub fn taken_by(&self, thread: ThreadId) -> u64 {
        self.taken.get(thread.index()).copied().unwrap_or(0)
    }

    /// Events were lost: forgets all holds.
    pub fn gap(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_until_its_last_release_or_its_end() {
        let (a, b) = (ThreadId(3), ThreadId(1));
        let (l, m) = (LockId(0), LockId(7));
        let mut held = HeldLocks::default();
        for op in [Op::Acquire(l), Op::Acquire(m), Op::Acquire(l), Op::Release(l)] {
            held.note(a, op);
        }
        held.note(b, Op::Release(l));
        assert!(held.of(a).eq([l, m]) && held.of(b).next().is_none());
        held.note(a, Op::Release(l));
        assert!(held.of(a).eq([m]));
        held.note(b, Op::Reset(m));
        assert!(held.of(a).next().is_none());
        held.note(b, Op::AcquireShared(l));
        assert!(held.of(b).next().is_none(), "others may hold it as well");
        assert_eq!((held.taken_by(a), held.taken_by(b)), (3, 1), "it has taken it");
        held.note(b, Op::Acquire(l));
        held.gap();
        assert!(held.of(b).next().is_none());
    }
}
