//! Slot of the table: the ownership of one word, and its transitions, which are made under the slot's lock.

use abi::{LastAccess, SiteId};

use super::{Deferred, Environment, Held, Memory, Shared};
use crate::table::{Access, ThreadState, thread_and_epoch};

/// Slot of the table: the ownership of one word.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Ownership<M: Memory> {
    /// 1 while a thread holds the slot's lock.
    pub(super) lock: M::Shared,
    /// Number of threads that are bypassing the lock: they make a record of an access to a word of this slot.
    pub(super) bypassing: M::Shared,
    /// Not 0 if a thread has bypassed the lock since the last [`Ownership::admit`].
    pub(super) bypassed: M::Shared,
    /// The word, as its address divided by 8, plus 1; 0 for an empty slot.
    pub(super) word: M::Shared,
    /// The owner, as [`ThreadEpochs::incarnation`](crate::table::ThreadEpochs::incarnation); 0 for a shared or unowned
    /// word.
    pub(super) owner: M::Shared,
    /// The thread epoch ([`ThreadEpochs::now`](crate::table::ThreadEpochs::now)) of the owner's deferred write; 0 if
    /// there is none.
    pub(super) written: M::Shared,
    /// The thread epoch of the owner's deferred read; 0 without one.
    pub(super) read: M::Shared,
    /// The highest stack pointers since the record before the deferred access.
    pub(super) write_sp: M::Held<u64>,
    pub(super) read_sp: M::Held<u64>,
    pub(super) write_site: M::Held<SiteId>,
    pub(super) read_site: M::Held<SiteId>,
    /// From the low end, 8 bits each: the mask of the bytes that the owner writes and of those that it reads in
    /// deferred accesses, which are always the same; the number of accesses to another word that belongs in this
    /// slot; and the number of handovers of the word. See [`READ_MASK`], [`CLAIMS`] and [`HANDOVER`].
    pub(super) bits: M::Held<u32>,
    pub(super) unused: M::Held<u32>,
}

/// Lowest bits of the fields of [`Ownership::bits`].
const READ_MASK: u32 = 8;
const CLAIMS: u32 = 16;
const HANDOVER: u32 = 24;

/// Outcome of an access to one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The access is deferred.
    Deferred,
    /// The access gets a record.
    Recorded,
    /// The access gets a record, and other threads may have accessed the word before.
    Contended,
}

impl<M: Memory> Ownership<M> {
    /// The word in the slot without the lock, as its address divided by 8; of an empty slot, one that no access has.
    #[inline(always)]
    pub fn word(&self) -> u64 {
        self.word.load().wrapping_sub(1)
    }

    /// Admits an access to a word that belongs in this slot. The caller holds the lock.
    #[inline(always)]
    pub(super) fn admit<E: Environment<Memory = M>>(
        &self,
        environment: E,
        thread: &ThreadState,
        access: &Access,
        word: u64,
    ) -> Admission {
        if !environment.is_enabled() {
            return Admission::Recorded;
        }
        let (bypassing, bypassed) = (self.bypassing.load(), self.bypassed.load());
        if bypassing | bypassed != 0 {
            self.bypassed.set(0);
            self.share(environment, access.tid);
            return Admission::Contended;
        }
        if self.word.get() != word + 1 {
            let claims = (self.bits.get() >> CLAIMS & 0xff) + 1;
            if self.word.get() == 0 || claims > E::MAX_CLAIMS {
                self.share(environment, access.tid);
                self.bits.set(0);
                self.claim(thread, access, word);
            } else {
                self.bits.set(self.bits.get() + (1 << CLAIMS));
            }
            // The table of epochs alone knows of other threads' accesses to this word.
            return Admission::Recorded;
        }
        self.bits.set(self.bits.get() & !(0xff << CLAIMS));
        if self.owner.get() != thread.epochs.incarnation {
            if self.owner.get() != 0 {
                self.share(environment, access.tid);
                self.bits.set(self.bits.get() + (1 << HANDOVER));
                if self.bits.get() >> HANDOVER & 0xff < E::HANDOVERS {
                    self.claim(thread, access, word);
                }
            }
            return Admission::Contended;
        }
        self.defer(thread, access)
    }

    /// Defers an access of the owner to the same bytes as before.
    #[inline(always)]
    fn defer(&self, thread: &ThreadState, access: &Access) -> Admission {
        if self.must_record(access) {
            return Admission::Recorded;
        }
        let mask = access.byte_mask() as u32;
        let (writes, reads) = (self.bits.get() & 0xff, self.bits.get() >> READ_MASK & 0xff);
        if access.writes() {
            if writes == mask {
                self.written.set(thread.epochs.now);
                self.write_sp.set(thread.highest_sp);
                self.write_site.set(access.site);
                return Admission::Deferred;
            }
            if writes == 0 {
                // RdEx becomes WrEx.
                self.bits.set(self.bits.get() | mask);
            }
            return Admission::Recorded;
        }
        if reads != 0 && reads != mask {
            return Admission::Recorded;
        }
        self.bits.set(self.bits.get() | mask << READ_MASK);
        // Each deferred read has a record of the same bytes before it: of a read or of a write.
        if mask & !(writes | reads) != 0 {
            return Admission::Recorded;
        }
        self.read.set(thread.epochs.now);
        self.read_sp.set(thread.highest_sp);
        self.read_site.set(access.site);
        Admission::Deferred
    }

    /// Returns whether an access may not be deferred, nor stand for one: it commutes with those of other threads, of
    /// which one has come already. A deferred access counts as a plain read or write.
    #[inline(always)]
    fn must_record(&self, access: &Access) -> bool {
        access.commutes() && self.bits.get() >> HANDOVER & 0xff != 0
    }

    /// Makes the thread the owner of the word: WrEx or RdEx. This access gets a record.
    #[inline(always)]
    fn claim(&self, thread: &ThreadState, access: &Access, word: u64) {
        let mask = access.byte_mask() as u32;
        self.word.set(word + 1);
        self.owner.set(thread.epochs.incarnation);
        let mask = if self.must_record(access) { 0 } else { mask };
        let masks = if access.writes() { mask } else { mask << READ_MASK };
        self.bits.set(self.bits.get() & !0xffff | masks);
    }

    /// Ends the ownership: RdSh. Deferred accesses are flushed.
    #[inline(always)]
    pub(super) fn share<E: Environment<Memory = M>>(&self, environment: E, tid: u32) {
        flush(environment, self, tid);
        self.owner.set(0);
    }
}

/// Emits the deferred accesses of the owner, if any, in a record of the acting thread `tid`.
#[inline(never)]
fn flush<E: Environment>(environment: E, slot: &Ownership<E::Memory>, tid: u32) {
    let (written, read) = (slot.written.get(), slot.read.get());
    if written | read == 0 {
        return;
    }
    slot.written.set(0);
    slot.read.set(0);
    environment.emit(tid, || {
        let (owner, _) = thread_and_epoch(slot.owner.get());
        let last_access = |thread_epoch, sp, site, bits| LastAccess {
            epoch: thread_and_epoch(thread_epoch).1,
            sp,
            site,
            bytes: bits & 0xff,
        };
        let bits = slot.bits.get();
        let write = last_access(written, slot.write_sp.get(), slot.write_site.get(), bits);
        let read = last_access(read, slot.read_sp.get(), slot.read_site.get(), bits >> READ_MASK);
        Deferred { owner, address: (slot.word.get() - 1) << 3, write, read }
    });
}
