//! The state of locks: last releases, exclusive and shared. Which acquire is the outermost one is decided by
//! whoever calls.

use crate::event::LockId;
use crate::hb::clocks::Clock;
use crate::hb::last::Last;
use crate::hb::now::Now;
use crate::hb::stamp::EventStamp;

#[derive(Default)]
struct Lock {
    /// The last exclusive release.
    release: EventStamp,
    /// What its thread knew then.
    clock: Clock,
    /// Allocated for reader-writer locks only.
    shared: Option<Box<Shared>>,
    /// How often the lock became another one.
    life: u32,
}

/// What happened in shared mode since the last exclusive release.
#[derive(Default)]
struct Shared {
    /// The last acquire of each thread.
    acquires: Last,
    /// The last release of each thread.
    releases: Last,
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

    /// Makes room for the lock.
    #[cold]
    pub(crate) fn ensure(&mut self, lock: LockId) {
        self.at(lock);
    }

    #[inline]
    pub(crate) fn has(&self, lock: LockId) -> bool {
        lock.index() < self.0.len()
    }

    /// Tells the lock from those that had its id before.
    pub(crate) fn life(&self, lock: LockId) -> u32 {
        self.0.get(lock.index()).map_or(0, |lock| lock.life)
    }

    /// Depends on every other thread's last shared release since the last exclusive one; when there is none, on
    /// that one, if another thread's, unless this thread has acquired shared since. Returns how many dependencies
    /// are on events that do not matter any more.
    pub(crate) fn acquire(
        &mut self,
        lock: LockId,
        now: &mut Now<'_>,
        mut depends_on: impl FnMut(&EventStamp),
    ) -> u64 {
        let lock = self.at(lock);
        let thread = now.event.thread();
        if let Some(shared) = &lock.shared {
            if !shared.releases.is_empty() {
                now.learn(&shared.clock);
                for release in shared.releases.of_others(thread) {
                    depends_on(release);
                }
                return shared.releases.dropped();
            }
            if shared.acquires.contains(thread) {
                return 0;
            }
        }
        if lock.release.is_some() && lock.release.thread() != thread {
            now.learn_from(&lock.release, &lock.clock);
            depends_on(&lock.release);
        }
        0
    }

    pub(crate) fn release(&mut self, lock: LockId, now: &Now<'_>) {
        let lock = self.at(lock);
        lock.release = *now.event;
        now.publish(&mut lock.clock);
        if let Some(shared) = &mut lock.shared {
            shared.acquires.clear();
            shared.releases.clear();
            shared.clock.clear();
        }
    }

    /// Depends on the last exclusive release, if another thread's, unless this thread has acquired shared since.
    pub(crate) fn acquire_shared(
        &mut self,
        lock: LockId,
        now: &mut Now<'_>,
        mut depends_on: impl FnMut(&EventStamp),
    ) {
        let lock = self.at(lock);
        let thread = now.event.thread();
        let shared = lock.shared.get_or_insert_default();
        if !shared.acquires.put(now.event, now.table) {
            return;
        }
        if lock.release.is_some() && lock.release.thread() != thread {
            now.learn_from(&lock.release, &lock.clock);
            depends_on(&lock.release);
        }
    }

    pub(crate) fn release_shared(&mut self, lock: LockId, now: &Now<'_>) {
        let shared = self.at(lock).shared.get_or_insert_default();
        now.publish_more(&mut shared.clock);
        shared.releases.put(now.event, now.table);
    }

    /// The lock's memory starts or ends a life: what came before is forgotten.
    pub(crate) fn forget(&mut self, lock: LockId) {
        let lock = self.at(lock);
        *lock = Lock { life: lock.life.wrapping_add(1), ..Lock::default() };
    }

    /// How many acquires and releases are kept in lists.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let shared = self.0.iter().filter_map(|lock| lock.shared.as_ref());
        shared.map(|shared| shared.acquires.len() + shared.releases.len()).sum()
    }
}
