//! Objects in memory that is given out again, or given back: the next objects there are others. Many need no call to
//! begin or end their lives: Rust's locks, `std::mutex`, and all that are initialised statically.

use std::{collections::BTreeMap, ops::Range};

use checker::{
    event::{LockId, Op},
    format::ObjectKind,
};

use super::{Known, SyncObjects};

/// Addresses of objects.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The addresses of all objects that have ids, but for the latest, with the number of bytes that are their own.
    addresses: BTreeMap<u64, u64>,
    /// Number of locks and of other objects among them.
    known: [usize; 2],
    /// Set for a lock that was forgotten and not used since.
    forgotten: Vec<bool>,
}

impl Places {
    /// Notes a step on a lock that has been seen before.
    #[inline]
    pub(super) fn used(&mut self, lock: LockId) {
        if let Some(forgotten) = self.forgotten.get_mut(lock.index()) {
            *forgotten = false;
        }
    }
}

impl SyncObjects {
    /// Forgets the objects in a range of addresses, whose memory has ended: objects there are others from now on.
    pub fn forget_memory(&mut self, range: &Range<u64>, emit: &mut impl FnMut(Op)) {
        self.find_places();
        let mut at = range.start;
        while let Some((&address, _)) = self.places.addresses.range(at..range.end).next() {
            self.forget_at(address, emit);
            at = address + 1;
        }
    }

    /// Takes in where the latest objects are.
    fn find_places(&mut self) {
        let Places { addresses, known: [locks, syncs], .. } = &mut self.places;
        let (new_locks, new_syncs) = (&self.locks[*locks..], &self.syncs[*syncs..]);
        // What touches a word of which no function is known is all that there is to see of it.
        let is_known =
            |known: &&Known| !matches!(known.object, ObjectKind::Sync | ObjectKind::LockWord);
        let new = new_locks.iter().chain(new_syncs).filter(is_known);
        addresses.extend(new.map(|known| (known.address, known.bytes)));
        (*locks, *syncs) = (self.locks.len(), self.syncs.len());
    }

    /// Returns whether an address is one of an object's own bytes: code that touches it there is the object's own,
    /// wherever the compiler has put it. Data guarded by a lock that is taken in line starts right behind the lock.
    pub fn is_at(&mut self, address: u64) -> bool {
        self.find_places();
        let before = self.places.addresses.range(..=address).next_back();
        let Some((start, _)) = before.filter(|&(start, bytes)| address - start < *bytes) else {
            return false;
        };
        let lives = |lock: &LockId| !self.places.forgotten.get(lock.index()).is_some_and(|&is| is);
        self.lock_ids.get(start).is_none_or(lives)
    }

    fn forget_at(&mut self, address: u64, emit: &mut impl FnMut(Op)) {
        if let Some(&lock) = self.lock_ids.get(&address) {
            let forgotten = &mut self.places.forgotten;
            if lock.index() >= forgotten.len() {
                forgotten.resize(lock.index() + 1, false);
            }
            if !std::mem::replace(&mut forgotten[lock.index()], true) {
                self.owners.remove(&lock);
                self.inline.forget(lock);
                emit(Op::Reset(lock));
            }
        }
        if let Some(condition) = self.conditions.get_mut(&address) {
            condition.waiters = 0;
            condition.set.into_iter().for_each(|set| emit(Op::Alloc(set)));
        }
        if let Some(semaphore) = self.semaphores.get_mut(&address) {
            semaphore.reset(0);
        }
        if let Some(barrier) = self.barriers.get_mut(&address) {
            barrier.reset(None);
        }
        self.onces.remove(&address);
    }
}
