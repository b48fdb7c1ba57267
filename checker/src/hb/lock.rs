//! State of locks: last releases, exclusive and shared. The caller decides which acquire is the outermost
//! one.

use crate::event::LockId;
use crate::hb::clocks::Clock;
use crate::hb::current_event::CurrentEvent;
use crate::hb::last_events::LastEvents;
use crate::hb::stamp::EventStamp;

#[derive(Default)]
struct Lock {
    /// Last exclusive release.
    release: EventStamp,
    /// Knowledge of its thread then.
    clock: Clock,
    /// Allocated for reader-writer locks only.
    shared: Option<Box<Shared>>,
    /// Number of resets: distinguishes the locks that have had this id.
    life: u32,
}

/// Shared acquires and releases since the last exclusive release.
#[derive(Default)]
struct Shared {
    /// Last acquire of each thread.
    acquires: LastEvents,
    /// Last release of each thread.
    releases: LastEvents,
    /// Knowledge of their threads.
    clock: Clock,
}

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

    /// Returns the number of the lock among those that have had its id.
    pub(crate) fn life(&self, lock: LockId) -> u32 {
        self.0.get(lock.index()).map_or(0, |lock| lock.life)
    }

    /// Acquires the lock exclusively. Depends on every other thread's last shared release since the last
    /// exclusive one; if there is none, on the exclusive one, if it is another thread's, unless this thread
    /// has acquired shared since. Returns the number of dependencies on events that were dropped as
    /// irrelevant.
    pub(crate) fn acquire(
        &mut self,
        lock: LockId,
        now: &mut CurrentEvent<'_>,
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

    pub(crate) fn release(&mut self, lock: LockId, now: &CurrentEvent<'_>) {
        let lock = self.at(lock);
        lock.release = *now.event;
        now.publish(&mut lock.clock);
        if let Some(shared) = &mut lock.shared {
            shared.acquires.clear();
            shared.releases.clear();
            shared.clock.clear();
        }
    }

    /// Acquires the lock shared. Depends on the last exclusive release, if another thread's, unless this
    /// thread has acquired shared since.
    pub(crate) fn acquire_shared(
        &mut self,
        lock: LockId,
        now: &mut CurrentEvent<'_>,
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

    pub(crate) fn release_shared(&mut self, lock: LockId, now: &CurrentEvent<'_>) {
        let shared = self.at(lock).shared.get_or_insert_default();
        now.publish_into(&mut shared.clock);
        shared.releases.put(now.event, now.table);
    }

    /// Forgets everything about the lock: its memory starts or ends a life.
    pub(crate) fn forget(&mut self, lock: LockId) {
        let lock = self.at(lock);
        *lock = Lock { life: lock.life.wrapping_add(1), ..Lock::default() };
    }

    /// Returns the number of acquires and releases stored in lists.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let shared = self.0.iter().filter_map(|lock| lock.shared.as_ref());
        shared.map(|shared| shared.acquires.len() + shared.releases.len()).sum()
    }
}
