//! Locks that threads hold exclusively, and how often they have taken one, from the events of a stream.

use checker::event::{LockId, Op, ThreadId};

/// Locks of a thread.
#[derive(Debug, Default)]
struct Thread {
    /// Each lock that it holds exclusively, with the number of times.
    held: Vec<(LockId, u32)>,
    /// Number of locks that it has taken, shared ones too.
    taken: u64,
}

/// Locks that each thread holds exclusively.
#[derive(Debug, Default)]
pub struct HeldLocks(Vec<Thread>);

impl HeldLocks {
    /// Notes an operation of a thread.
    #[inline]
    pub fn note(&mut self, thread: ThreadId, op: Op) {
        match op {
            Op::Acquire(lock) => {
                let Thread { held, taken } = self.thread(thread);
                *taken += 1;
                match held.iter_mut().find(|(other, _)| *other == lock) {
                    Some((_, times)) => *times += 1,
                    None => held.push((lock, 1)),
                }
            }
            Op::Release(lock) => {
                let held = &mut self.thread(thread).held;
                let Some(index) = held.iter().position(|(other, _)| *other == lock) else { return };
                held[index].1 -= 1;
                if held[index].1 == 0 {
                    held.swap_remove(index);
                }
            }
            Op::AcquireShared(_) => self.thread(thread).taken += 1,
            Op::Reset(lock) => {
                self.0.iter_mut().for_each(|of| of.held.retain(|(other, _)| *other != lock));
            }
            Op::Exit => self.thread(thread).held = Vec::new(),
            _ => {}
        }
    }

    #[inline]
    fn thread(&mut self, thread: ThreadId) -> &mut Thread {
        if self.0.len() <= thread.index() {
            self.0.resize_with(thread.index() + 1, Thread::default);
        }
        &mut self.0[thread.index()]
    }

    /// Iterates over the locks that a thread holds.
    pub fn of(&self, thread: ThreadId) -> impl Iterator<Item = LockId> + Clone {
        let held = self.0.get(thread.index()).into_iter().flat_map(|thread| &thread.held);
        held.map(|&(lock, _)| lock)
    }

    /// Returns the number of locks that a thread has taken so far.
    #[must_use]
    #[inline]
    pub fn taken_by(&self, thread: ThreadId) -> u64 {
        self.0.get(thread.index()).map_or(0, |thread| thread.taken)
    }

    /// Events were lost: forgets all holds.
    pub fn gap(&mut self) {
        self.0.iter_mut().for_each(|thread| thread.held.clear());
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
