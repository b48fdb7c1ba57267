//! Locks that were used last, by their addresses: most operations are on few locks.

use checker::{event::LockId, format::ObjectKind};

/// Number of entries.
const RECENT: usize = 1 << 8;

/// A lock at an address.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    lock: LockId,
    object: ObjectKind,
}

/// Table of locks, one at each place: another lock takes the place of the one before.
#[derive(Debug, Default)]
pub(super) struct RecentLocks(Vec<Option<Entry>>);

impl RecentLocks {
    /// Returns the lock of a kind at an address, if it is in the table.
    #[inline]
    pub(super) fn get(&self, address: u64, object: ObjectKind) -> Option<LockId> {
        let entry = self.0.get(place(address))?.as_ref()?;
        (entry.address == address && entry.object == object).then_some(entry.lock)
    }

    /// Adds the lock that an address stands for from now on.
    pub(super) fn put(&mut self, address: u64, object: ObjectKind, lock: LockId) {
        self.0.resize(RECENT, None);
        self.0[place(address)] = Some(Entry { address, lock, object });
    }
}

/// Place of an address. Locks of an array are some multiple of a word apart.
#[inline]
const fn place(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % RECENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kind_of_lock_at_an_address_takes_its_place() {
        let mut locks = RecentLocks::default();
        assert_eq!(locks.get(0x1000, ObjectKind::Mutex), None);
        locks.put(0x1000, ObjectKind::Mutex, LockId(3));
        assert_eq!(locks.get(0x1000, ObjectKind::Mutex), Some(LockId(3)));
        assert_eq!(locks.get(0x1000, ObjectKind::RwLock), None);
        locks.put(0x1000, ObjectKind::RwLock, LockId(4));
        assert_eq!(locks.get(0x1000, ObjectKind::Mutex), None, "a mutex there is another one");
    }
}
