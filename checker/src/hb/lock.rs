//! The state of locks: last releases, exclusive and shared. Which acquire is the outermost one is decided by
//! whoever calls.

use crate::event::{LockId, ThreadId};
use crate::hb::access::Access;
use crate::hb::clocks::{Clock, Clocks};

#[derive(Default)]
struct Lock {
    /// The last exclusive release.
    release: Access,
    /// What its thread knew then.
    clock: Clock,
    /// Allocated for reader-writer locks only.
    shared: Option<Box<Shared>>,
}

/// What happened in shared mode since the last exclusive release.
#[derive(Default)]
struct Shared {
    /// Threads that have acquired.
    acquired: Vec<ThreadId>,
    /// The last release of each thread.
    releases: Vec<Access>,
    /// What their threads knew.
    clock: Clock,
}

/// All locks.
#[derive(Default)]
pub(crate) struct Locks(Vec<Lock>);

impl Locks {
    #[inline]
    fn at(&mut self, lock: LockId) -> &mut Lock {
        let index = lock.index();
        if index >= self.0.len() {
            self.0.resize_with(index + 1, Lock::default);
        }
        &mut self.0[index]
    }

    /// Depends on every other thread's last shared release since the last exclusive one; when there is none, on
    /// that one, if another thread's, unless this thread has acquired shared since.
    pub(crate) fn acquire(
        &mut self,
        lock: LockId,
        now: &Access,
        clocks: &mut Clocks,
        mut depends_on: impl FnMut(&Access),
    ) {
        let lock = self.at(lock);
        let thread = now.thread();
        if let Some(shared) = &lock.shared {
            if !shared.releases.is_empty() {
                clocks.learn(thread, &shared.clock);
                for release in shared.releases.iter().filter(|release| release.thread() != thread) {
                    depends_on(release);
                }
                return;
            }
            if shared.acquired.contains(&thread) {
                return;
            }
        }
        if lock.release.is_some() && lock.release.thread() != thread {
            clocks.learn_from(thread, &lock.release, &lock.clock);
            depends_on(&lock.release);
        }
    }

    pub(crate) fn release(&mut self, lock: LockId, now: &Access, clocks: &Clocks) {
        let lock = self.at(lock);
        lock.release = *now;
        clocks.publish(now, &mut lock.clock);
        if let Some(shared) = &mut lock.shared {
            shared.acquired.clear();
            shared.releases.clear();
            shared.clock.clear();
        }
    }

    /// Depends on the last exclusive release, if another thread's, unless this thread has acquired shared since.
    pub(crate) fn acquire_shared(
        &mut self,
        lock: LockId,
        now: &Access,
        clocks: &mut Clocks,
        mut depends_on: impl FnMut(&Access),
    ) {
        let lock = self.at(lock);
        let thread = now.thread();
        let shared = lock.shared.get_or_insert_default();
        if shared.acquired.contains(&thread) {
            return;
        }
        shared.acquired.push(thread);
        if lock.release.is_some() && lock.release.thread() != thread {
            clocks.learn_from(thread, &lock.release, &lock.clock);
            depends_on(&lock.release);
        }
    }

    pub(crate) fn release_shared(&mut self, lock: LockId, now: &Access, clocks: &Clocks) {
        let shared = self.at(lock).shared.get_or_insert_default();
        clocks.publish_more(now, &mut shared.clock);
        match shared.releases.iter_mut().find(|release| release.thread() == now.thread()) {
            Some(release) => *release = *now,
            None => shared.releases.push(*now),
        }
    }

    /// The lock's memory starts or ends a life: what came before is forgotten.
    pub(crate) fn forget(&mut self, lock: LockId) {
        if let Some(lock) = self.0.get_mut(lock.index()) {
            *lock = Lock::default();
        }
    }
}
