//! Steps of a thread on a slot: its lock, the way around it, and the order of changes and records.

use super::{Environment, Memory, Ownership, Shared, slot::Admission};
use crate::{
    table::{Access, ThreadState},
    verifier::{is_not_zero, unchecked},
};

/// Defers an access to one word that is new in its epoch (returns `None`), or reserves its record after the deferred
/// accesses that must come before it. Ends the epoch where the record does. Makes `tries` rounds of attempts at the
/// lock.
#[inline(always)]
pub fn defer_or_reserve<E: Environment>(
    environment: E,
    slot: &Ownership<E::Memory>,
    thread: &mut ThreadState,
    access: &Access,
    (word, is_contended): (u64, bool),
    tries: u32,
) -> Option<E::Entry> {
    if !slot.lock(tries) {
        thread.epochs.now += 1;
        slot.bypassing.add(1);
        let entry = environment.reserve();
        slot.bypassed.or(1);
        if bypass(slot, word, thread.epochs.incarnation) != 0 && environment.is_enabled() {
            environment.count_lost();
        }
        environment.mark_shared(word);
        slot.bypassing.add(u64::MAX);
        return entry;
    }
    let admission = slot.admit(environment, thread, access, word);
    if admission == Admission::Contended || is_contended && admission != Admission::Deferred {
        thread.epochs.now += 1;
    }
    environment.insert(thread, access, word);
    let entry = if admission == Admission::Deferred { None } else { environment.reserve() };
    slot.unlock();
    entry
}

/// Ends another thread's ownership of a word that this thread accesses and does not claim. Deferred accesses are
/// flushed; `after` the reservation of this access's record they count as lost. Makes `tries` rounds of attempts at
/// the lock.
#[inline(always)]
pub fn disown<E: Environment>(
    environment: E,
    slot: &Ownership<E::Memory>,
    word: u64,
    (incarnation, tid): (u64, u32),
    after: bool,
    tries: u32,
) {
    // Checked again under the lock.
    if slot.has_other_owner(word, incarnation) == 0 {
        return;
    }
    if !slot.lock(tries) {
        if bypass(slot, word, incarnation) != 0 {
            environment.count_lost();
        }
        return;
    }
    if slot.has_other_owner(word, incarnation) != 0 {
        if after && slot.written.get() | slot.read.get() != 0 {
            environment.count_lost();
        }
        slot.share(environment, tid);
    }
    slot.unlock();
}

/// Bypasses the lock of a slot: the next holder marks the word shared. Returns 1 if the word has another owner with
/// deferred accesses, or one that may be about to defer some, whose record would follow that of this access; else 0.
/// Without a jump.
#[inline(always)]
pub fn bypass<M: Memory>(slot: &Ownership<M>, word: u64, incarnation: u64) -> u64 {
    let has_other_owner = slot.has_other_owner(word, incarnation);
    // A thread that takes the lock after this sees `bypassed`; of one that took it before, the lock is seen here, or
    // its deferred access.
    slot.bypassed.or(has_other_owner);
    let (locked, written, read) = (slot.lock.load(), slot.written.load(), slot.read.load());
    has_other_owner & is_not_zero(locked | written | read)
}

impl<M: Memory> Ownership<M> {
    /// Returns 1 if another thread than this one owns the word, else 0, without a jump.
    #[inline(always)]
    fn has_other_owner(&self, word: u64, incarnation: u64) -> u64 {
        let (in_slot, owner) = (self.word.load(), self.owner.load());
        unchecked(1 - is_not_zero(in_slot ^ (word + 1)))
            & is_not_zero(owner)
            & is_not_zero(owner ^ incarnation)
    }

    /// Takes the lock, unless that takes more than one attempt and `tries` rounds of eight.
    #[inline(always)]
    fn lock(&self, tries: u32) -> bool {
        if self.lock.exchange(1) == 0 {
            return true;
        }
        for _ in 0..tries {
            // One success is enough: the attempts after it write the 1 that is there. The verifier follows one jump
            // for all.
            if (0..8).fold(1, |taken, _| taken & self.lock.exchange(1)) == 0 {
                return true;
            }
        }
        false
    }

    /// Releases the lock. The exchange is a barrier: all writes before it are visible to the next holder.
    #[inline(always)]
    fn unlock(&self) {
        self.lock.exchange(0);
    }
}
