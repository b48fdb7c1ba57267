//! Decides which updates of a variable by commuting instructions commute. An atomic update does. Any other, such as
//! `add` without a `lock` prefix, is a read and a write; it commutes only while some lock was held at all updates of
//! the variable so far, so that no update is lost (the candidate set of Savage et al., "Eraser: A Dynamic Data Race
//! Detector for Multithreaded Programs", SOSP 1997).

use std::ops::Range;

use super::{
    extent::Extent,
    word_map::{WordMap, remove_words},
};
use checker::event::{LockId, ThreadId};
use x86::commuting::{CommutingChange, CommutingUpdate};

/// Maximal number of stored variables. For further ones, only atomic updates commute.
const MAX_COUNTERS: usize = 1 << 16;

#[derive(Debug)]
struct Counter {
    /// Offset in its word of eight bytes, and length in bytes.
    part: (u64, u64),
    change: CommutingChange,
    /// First thread that updated it; `None` once another one has.
    owner: Option<ThreadId>,
    /// Locks that were held at all updates; while there is an owner, at its last one.
    locks: Vec<LockId>,
    /// Set if an update was made in one step, and if one was not.
    has_atomic: bool,
    has_plain: bool,
    /// Set for good once updates do not commute.
    is_ordinary: bool,
}

/// Variables with commuting instructions.
#[derive(Debug, Default)]
pub struct Counters {
    /// By the address of the word of eight bytes.
    counters: WordMap<Counter>,
}

impl Counters {
    /// Returns whether an update by a commuting instruction commutes with the updates of the variable so far. `held`
    /// has the locks that the thread holds exclusively.
    pub fn update(
        &mut self,
        thread: ThreadId,
        extent: Extent,
        update: CommutingUpdate,
        held: impl Iterator<Item = LockId> + Clone,
    ) -> bool {
        let Extent { address, bytes } = extent;
        let CommutingUpdate { change, is_atomic } = update;
        let (word, offset) = (address & !7, address & 7);
        if offset + bytes > 8 {
            return false;
        }
        let is_full = self.counters.len() >= MAX_COUNTERS;
        if is_full && !self.counters.contains_key(&word) {
            return is_atomic;
        }
        let part = (offset, bytes);
        let counter = self.counters.entry(word).or_insert_with(|| Counter {
            part,
            change,
            owner: Some(thread),
            locks: Vec::new(),
            has_atomic: false,
            has_plain: false,
            is_ordinary: false,
        });
        if counter.part != part || counter.change != change {
            counter.is_ordinary = true;
        }
        if counter.is_ordinary {
            return false;
        }
        let is_owner = counter.owner == Some(thread);
        // Updates of the first thread without a lock, before it shared the variable, were a read and a write each.
        let starts_anew =
            counter.owner.is_some() && counter.locks.is_empty() && !counter.has_atomic;
        if is_owner || starts_anew {
            counter.locks.clear();
            counter.locks.extend(held);
        } else {
            counter.locks.retain(|lock| held.clone().any(|other| other == *lock));
        }
        if !is_owner {
            counter.owner = None;
        }
        counter.has_atomic |= is_atomic;
        counter.has_plain |= !is_atomic;
        let commutes = !counter.locks.is_empty() || is_atomic && !counter.has_plain;
        counter.is_ordinary = !commutes && !is_owner;
        commutes
    }

    /// Forgets the variables in memory that was given back or given out.
    pub fn forget(&mut self, range: &Range<u64>) {
        remove_words(&mut self.counters, range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ThreadId = ThreadId(0);
    const B: ThreadId = ThreadId(1);
    const AT: Extent = Extent { address: 0x1000, bytes: 8 };
    const L: LockId = LockId(0);
    const M: LockId = LockId(1);

    const ATOMIC: CommutingUpdate =
        CommutingUpdate { change: CommutingChange::Adds, is_atomic: true };
    const PLAIN: CommutingUpdate =
        CommutingUpdate { change: CommutingChange::Adds, is_atomic: false };
    const BITS: CommutingUpdate =
        CommutingUpdate { change: CommutingChange::Bits, is_atomic: true };

    /// Returns which updates commute: each by a thread, in a way, with these locks held.
    fn commute(updates: &[(ThreadId, CommutingUpdate, &[LockId])]) -> Vec<bool> {
        let mut counters = Counters::default();
        let update = |&(thread, update, held): &(ThreadId, CommutingUpdate, &[LockId])| {
            counters.update(thread, AT, update, held.iter().copied())
        };
        updates.iter().map(update).collect()
    }

    #[test]
    fn updates_in_one_step_need_no_lock() {
        assert_eq!(commute(&[(A, ATOMIC, &[]), (B, ATOMIC, &[L]), (A, ATOMIC, &[])]), [true; 3]);
    }

    #[test]
    fn others_need_a_common_lock() {
        let both: &[LockId] = &[L, M];
        assert_eq!(commute(&[(A, PLAIN, both), (B, PLAIN, &[M]), (A, PLAIN, both)]), [true; 3]);
        let without = commute(&[(A, PLAIN, &[L]), (B, PLAIN, &[]), (A, PLAIN, &[L])]);
        assert_eq!(without, [true, false, false]);
        let disjoint = commute(&[(A, PLAIN, &[L]), (B, PLAIN, &[M]), (A, PLAIN, &[L])]);
        assert_eq!(disjoint, [true, false, false]);
    }

    #[test]
    fn what_the_first_thread_does_before_others_come_needs_none() {
        let updates: &[(ThreadId, CommutingUpdate, &[LockId])] = &[
            (A, PLAIN, &[]),
            (A, PLAIN, &[]),
            (B, PLAIN, &[L]),
            (A, PLAIN, &[L]),
            (A, PLAIN, &[]),
        ];
        assert_eq!(commute(updates), [false, false, true, true, false]);
    }

    #[test]
    fn a_lock_does_not_exclude_an_update_in_one_step_without_it() {
        let first = commute(&[(A, ATOMIC, &[]), (B, PLAIN, &[L]), (A, ATOMIC, &[])]);
        assert_eq!(first, [true, false, false]);
        let second = commute(&[(A, PLAIN, &[L]), (B, ATOMIC, &[]), (A, PLAIN, &[L])]);
        assert_eq!(second, [true, false, false]);
    }

    #[test]
    fn different_changes_do_not_commute() {
        assert_eq!(
            commute(&[(A, ATOMIC, &[]), (B, BITS, &[]), (A, ATOMIC, &[])]),
            [true, false, false]
        );
    }

    #[test]
    fn nor_do_those_of_different_parts() {
        let mut counters = Counters::default();
        let mut update =
            |address, bytes| counters.update(A, Extent { address, bytes }, ATOMIC, [].into_iter());
        assert!(update(0x1000, 8) && !update(0x1004, 4) && !update(0x1000, 8));
        assert!(update(0x2004, 4) && !update(0x2006, 4), "across words");
        counters.forget(&(0x1000..0x1008));
        assert!(counters.update(A, AT, ATOMIC, [].into_iter()));
    }
}
