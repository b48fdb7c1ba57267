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
        // Before the reservation: what another owner has deferred until now may be emitted between the two, and no
        // owner is left then. From here on nothing more is deferred.
        slot.bypassed.or(1);
        let is_late = slot.has_other_owner(word, thread.epochs.incarnation) & slot.may_emit();
        if is_late != 0 && environment.is_enabled() {
            environment.count_lost();
        }
        let entry = environment.reserve();
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

/// Side of the reservation of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Before it.
    Before,
    /// After it.
    After,
}

/// Ends another thread's ownership of a word that this thread accesses and does not claim. Called before and after the
/// reservation of the access's record: this thread counts as bypassing between the two, so that nobody claims the word.
/// Deferred accesses are flushed before the reservation, and count as lost after it. Makes `tries` rounds of attempts
/// at the lock.
#[inline(always)]
pub fn disown<E: Environment>(
    environment: E,
    slot: &Ownership<E::Memory>,
    word: u64,
    (incarnation, tid): (u64, u32),
    at: Reservation,
    tries: u32,
) {
    if at == Reservation::Before {
        slot.bypassing.add(1);
    }
    disown_unshown(environment, slot, word, (incarnation, tid), at, tries);
    if at == Reservation::After {
        slot.bypassing.add(u64::MAX);
    }
}

/// Variant of [`disown`] that does not show in the slot, and costs less where no other thread owns the word. An owner
/// that comes and goes between the two calls is missed.
#[inline(always)]
pub fn disown_unshown<E: Environment>(
    environment: E,
    slot: &Ownership<E::Memory>,
    word: u64,
    (incarnation, tid): (u64, u32),
    at: Reservation,
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
        if at == Reservation::After && slot.written.get() | slot.read.get() != 0 {
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
    has_other_owner & slot.may_emit()
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

    /// Returns 1 if deferred accesses may be emitted from now on, else 0, without a jump. Of a thread that holds the
    /// lock, either the lock is seen or all that it did; the second look is for one that is emitting already.
    #[inline(always)]
    fn may_emit(&self) -> u64 {
        let (locked, written, read) = (self.lock.load(), self.written.load(), self.read.load());
        is_not_zero(locked | written | read | self.lock.load())
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
