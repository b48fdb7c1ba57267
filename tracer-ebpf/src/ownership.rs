//! Ownership of words: accesses of a thread to memory that it has to itself are deferred until another thread comes.
//!
//! The states of a word are those of Octet (Bond et al., "Octet: Capturing and Controlling Cross-Thread Dependences
//! Efficiently", OOPSLA 2013): exclusive to a thread T that has written it (WrEx) or only read it (RdEx), and shared
//! (here RdSh, which includes shared writes).
//!
//! ```text
//!              first record of an access            access of another thread U,
//!              by T                                 the first time
//!   unowned ──────────────────► WrEx(T), RdEx(T) ──────────────────► WrEx(U), RdEx(U)
//!                                 │                                    │
//!                                 │ access to several words,           │ also: access of another thread,
//!                                 │ watchpoint hit, bypass             │ the second time (HANDOVERS)
//!                                 └───────────────► RdSh ◄─────────────┘
//! ```
//!
//! RdSh is final for a word while it has its slot: each first access of an epoch gets a record. In WrEx and RdEx, a
//! new access of the owner to the same bytes is deferred: it has no event of another thread before it that the last
//! record has not, and none after it until another thread comes. So the last epoch is enough, separately for writes
//! and reads, since these differ in what they depend on. Each way out of WrEx or RdEx flushes: it emits the deferred
//! accesses in one [`OwnedRecord`] before the record of the access that ends the ownership.
//!
//! A table has a slot for each word, as far as its size allows: a word that is not in its slot has no owner. After
//! [`MAX_CLAIMS`] accesses to another word in a row the slot changes to that word, which flushes as well.
//!
//! Changes of a slot are made under its lock, and so is the reservation of their records in the ring buffer: the
//! order of the records is that of the changes. A thread that fails to take the lock in time *bypasses* it: it sets
//! `bypassed`, and the next holder marks the word shared. An access that was deferred at that point is counted as
//! lost, since its record would come after that of the bypassing access. An access to several words disowns them
//! before its reservation and once more after it, because another thread may have claimed one in between.

use aya_ebpf::{
    Global,
    macros::map,
    maps::{Array, ring_buf::RingBufEntry},
};
use tracer_ebpf::{
    AccessRecord, Class, Kind, LastAccess, OwnedRecord, SiteId,
    table::{Access, MAX_BYTES, MAX_WORDS, slot, thread_and_epoch},
    verifier::{atomic_add, atomic_or, exchange, is_not_zero, may_go_on, unchecked},
};

use crate::{
    emit::{count_lost, fill, header, reserve},
    epoch::{self, ThreadState},
};

/// Set if accesses of owners are deferred.
#[unsafe(no_mangle)]
static OWNERSHIP_ENABLED: Global<u32> = Global::new(0);

/// Slot of the table: the ownership of one word.
#[repr(C)]
#[derive(Clone, Copy)]
struct Ownership {
    /// 1 while a thread holds the slot's lock.
    lock: u64,
    /// Number of threads that are bypassing the lock: they make a record of an access to a word of this slot.
    bypassing: u64,
    /// Not 0 if a thread has bypassed the lock since the last [`Ownership::admit`].
    bypassed: u64,
    /// The word, as its address divided by 8, plus 1; 0 for an empty slot.
    word: u64,
    /// The owner, as [`ThreadEpochs::incarnation`](tracer_ebpf::table::ThreadEpochs::incarnation); 0 for a shared
    /// or unowned word.
    owner: u64,
    /// The thread epoch ([`ThreadEpochs::now`](tracer_ebpf::table::ThreadEpochs::now)) of the owner's deferred
    /// write; 0 if there is none.
    written: u64,
    /// The thread epoch of the owner's deferred read; 0 if there is none.
    read: u64,
    /// The highest stack pointers since the record before the deferred access.
    write_sp: u64,
    read_sp: u64,
    write_site: SiteId,
    read_site: SiteId,
    /// From the low end, 8 bits each: the mask of the bytes that the owner writes and of those that it reads in
    /// deferred accesses, which are always the same; the number of accesses to another word that belongs in this
    /// slot; and the number of handovers of the word. See [`READ_MASK`], [`CLAIMS`] and [`HANDOVER`].
    bits: u32,
    unused: u32,
}

/// Lowest bits of the fields of [`Ownership::bits`].
const READ_MASK: u32 = 8;
const CLAIMS: u32 = 16;
const HANDOVER: u32 = 24;

/// Binary logarithm of the number of slots.
const SLOT_BITS: u32 = 17;
const SLOTS: u64 = 1 << SLOT_BITS;

/// The table: 11 MiB.
#[map]
static OWNERSHIP: Array<Ownership> = Array::with_max_entries(1 << SLOT_BITS, 0);

/// Not 0 after the end of all ownership: an access was too large to disown its words.
#[map]
static ENDED: Array<u64> = Array::with_max_entries(1, 0);

/// Number of rounds of eight attempts to take a lock. A lock is held for less than a microsecond, unless its holder is
/// preempted.
const TRIES: u32 = 16;

/// Number of accesses to another word before the slot changes to it.
const MAX_CLAIMS: u32 = 8;

/// Number of handovers after which a word is shared.
const HANDOVERS: u32 = 2;

/// Largest access whose words are disowned one by one without a bounded loop, in words: the verifier follows each.
const MAX_LARGE: u64 = 128;

/// Defers an access that is new in its epoch (returns `None`), or reserves its record after the deferred accesses that
/// must come before it. Ends the epoch where the record does.
///
/// The access may be larger than [`MAX_BYTES`] with `LARGE`, and of any size with `LOOPS` (if the kernel bounds loops).
/// [`after_reservation`] must follow.
#[inline(always)]
pub fn defer_or_reserve<const LARGE: bool, const LOOPS: bool>(
    thread: &mut ThreadState,
    access: &Access,
    is_contended: bool,
) -> Option<RingBufEntry<AccessRecord>> {
    let (first, last) = access.words();
    if first == last {
        return defer_or_reserve_word(thread, access, is_contended, first);
    }
    if is_contended {
        thread.epochs.now += 1;
    }
    if !LARGE || access.bytes <= MAX_BYTES {
        epoch::insert(thread, access);
        disown_few::<false>(first, last, thread.epochs.incarnation, access.tid);
    } else if LOOPS {
        // Words that this does not reach are found, and counted, after the reservation.
        disown_all::<false>(first, last, thread.epochs.incarnation, access.tid);
    } else if last - first < MAX_LARGE {
        disown_many(first, last, thread.epochs.incarnation, access.tid);
    }
    reserve(Class::Access)
}

/// Disowns the words of an access to several words after the reservation of its record, whether that succeeded or not:
/// other threads may have claimed one meanwhile.
#[inline(always)]
pub fn after_reservation<const LARGE: bool, const LOOPS: bool>(
    thread: &ThreadState,
    access: &Access,
) {
    let (first, last) = access.words();
    if LOOPS && access.bytes > MAX_BYTES {
        if !disown_all::<true>(first, last, thread.epochs.incarnation, access.tid) {
            end_ownership();
        }
    } else if LARGE && access.bytes > MAX_BYTES {
        check_large(first, last, thread.epochs.incarnation, access.tid);
    } else if first != last {
        disown_few::<true>(first, last, thread.epochs.incarnation, access.tid);
    }
}

#[inline(always)]
fn defer_or_reserve_word(
    thread: &mut ThreadState,
    access: &Access,
    is_contended: bool,
    word: u64,
) -> Option<RingBufEntry<AccessRecord>> {
    let slot = OWNERSHIP.get_ptr_mut(slot::<SLOT_BITS>(word))?;
    if !lock::<TRIES>(slot) {
        thread.epochs.now += 1;
        // SAFETY: aligned numbers that live as long as the map.
        unsafe { atomic_add(&raw mut (*slot).bypassing, 1) };
        let entry = reserve(Class::Access);
        // SAFETY: as above.
        unsafe { atomic_or(&raw mut (*slot).bypassed, 1) };
        if bypass(slot, word, thread.epochs.incarnation) != 0 && is_enabled() {
            count_lost(Class::Access);
        }
        epoch::mark_shared(word);
        // SAFETY: as above.
        unsafe { atomic_add(&raw mut (*slot).bypassing, u64::MAX) };
        return entry;
    }
    // SAFETY: the slot is this thread's while it holds the lock.
    let admission = unsafe { &mut *slot }.admit(thread, access, word);
    if admission == Admission::Contended || is_contended && admission != Admission::Deferred {
        thread.epochs.now += 1;
    }
    epoch::insert_word(thread, access, word);
    let entry = if admission == Admission::Deferred { None } else { reserve(Class::Access) };
    unlock(slot);
    entry
}

/// Returns 1 if another thread than this one owns the word, else 0, without a jump.
#[inline(always)]
fn has_other_owner(slot: *const Ownership, word: u64, incarnation: u64) -> u64 {
    // SAFETY: aligned numbers that live as long as the map.
    let (in_slot, owner) = unsafe {
        ((&raw const (*slot).word).read_volatile(), (&raw const (*slot).owner).read_volatile())
    };
    unchecked(1 - is_not_zero(in_slot ^ (word + 1)))
        & is_not_zero(owner)
        & is_not_zero(owner ^ incarnation)
}

/// Bypasses the lock of a slot: the next holder marks the word shared. Returns 1 if the word has another owner with
/// deferred accesses, or one that may be about to defer some, whose record would follow that of this access; else 0.
/// Without a jump.
#[inline(always)]
fn bypass(slot: *mut Ownership, word: u64, incarnation: u64) -> u64 {
    let has_other_owner = has_other_owner(slot, word, incarnation);
    // A thread that takes the lock after this sees `bypassed`; of one that took it before, the lock is seen here, or
    // its deferred access. SAFETY: aligned numbers that live as long as the map.
    unsafe {
        atomic_or(&raw mut (*slot).bypassed, has_other_owner);
        let locked = (&raw const (*slot).lock).read_volatile();
        let written = (&raw const (*slot).written).read_volatile();
        let read = (&raw const (*slot).read).read_volatile();
        has_other_owner & is_not_zero(locked | written | read)
    }
}

/// Disowns the word of an access that always gets a record, once before its reservation and once `AFTER` it.
#[inline(always)]
pub fn disown<const AFTER: bool>(address: u64, tid: u32) {
    if epoch::PROBES_ACCESSES.load() != 0 {
        disown_word::<TRIES, AFTER>(address >> 3, epoch::incarnation(tid), tid);
    }
}

#[inline(always)]
fn is_enabled() -> bool {
    // SAFETY: an aligned number.
    OWNERSHIP_ENABLED.load() != 0
        && ENDED.get_ptr(0).is_some_and(|ended| unsafe { ended.read_volatile() } == 0)
}

/// Bypasses the slots of a large access after its reservation. Deferred accesses of other owners count as lost: to
/// disown as many words once more would exceed the verifier's limit. An access that is too large even for this ends
/// all ownership.
#[inline(never)]
fn check_large(first: u64, last: u64, incarnation: u64, tid: u32) {
    let mut is_lost = 0;
    if last - first < MAX_LARGE {
        let last = unchecked(last);
        for number in 0..MAX_LARGE {
            let word = first + number;
            epoch::mark_touched(word, tid);
            let Some(slot) = OWNERSHIP.get_ptr_mut(slot::<SLOT_BITS>(word)) else { return };
            is_lost |= bypass(slot, word, incarnation);
            if word == last {
                break;
            }
        }
    } else {
        end_ownership();
    }
    // Accesses that were deferred at the end of all ownership count as lost already.
    if is_lost != 0 && is_enabled() {
        count_lost(Class::Access);
    }
}

/// Ends all ownership for good; deferred accesses count as lost.
#[inline(always)]
fn end_ownership() {
    epoch::mark_all_touched();
    if let Some(ended) = ENDED.get_ptr_mut(0)
        && is_enabled()
    {
        // SAFETY: an aligned number.
        unsafe { ended.write_volatile(1) };
        count_lost(Class::Access);
    }
}

/// Number of words, or of slots if those are fewer, that [`disown_all`] visits for an access.
#[inline(always)]
pub fn rounds(access: &Access) -> u64 {
    let (first, last) = access.words();
    (last - first).min(SLOTS - 1) + 1
}

/// Disowns the words of an access of any size, as [`disown_word`] does; of one with more words than the table has
/// slots, the words that have a slot. Returns whether the kernel let the loop come to its end: it allows 8 million
/// rounds (`BPF_MAX_LOOPS` in `include/linux/bpf.h`), on newer kernels a quarter of a second
/// (`bpf_check_timed_may_goto` in `kernel/bpf/core.c`).
#[inline(never)]
fn disown_all<const AFTER: bool>(first: u64, last: u64, incarnation: u64, tid: u32) -> bool {
    let by_slot = last - first >= SLOTS;
    if by_slot {
        epoch::mark_all_touched();
    }
    let rounds = if by_slot { SLOTS } else { last - first + 1 };
    // 0, which the verifier must not know: it would follow the rounds one by one.
    let mut number = unchecked(first).wrapping_sub(first);
    while number < rounds {
        if !may_go_on() {
            return false;
        }
        let word = if by_slot {
            let Some(slot) = OWNERSHIP.get_ptr(number as u32) else { return false };
            // SAFETY: an aligned number that lives as long as the map. 0 becomes a word that no access has.
            unsafe { (&raw const (*slot).word).read_volatile() }.wrapping_sub(1)
        } else {
            first + number
        };
        if word.wrapping_sub(first) <= last - first {
            disown_word::<1, AFTER>(word, incarnation, tid);
        }
        number += 1;
    }
    true
}

/// Disowns the words of an access of at most [`MAX_BYTES`], before its reservation or `AFTER` it.
#[inline(never)]
fn disown_few<const AFTER: bool>(first: u64, last: u64, incarnation: u64, tid: u32) {
    disown_words::<MAX_WORDS, TRIES, AFTER>(first, last, incarnation, tid);
}

/// Disowns the words of a large access before its reservation, with fewer attempts at each lock.
#[inline(never)]
fn disown_many(first: u64, last: u64, incarnation: u64, tid: u32) {
    disown_words::<MAX_LARGE, 1, false>(first, last, incarnation, tid);
}

#[inline(always)]
fn disown_words<const MAX: u64, const TRIES: u32, const AFTER: bool>(
    first: u64,
    last: u64,
    incarnation: u64,
    tid: u32,
) {
    let last = unchecked(last);
    for number in 0..MAX {
        disown_word::<TRIES, AFTER>(first + number, incarnation, tid);
        if first + number == last {
            break;
        }
    }
}

/// Ends another thread's ownership of a word that this thread accesses and does not claim, and marks the word as
/// touched. Deferred accesses are flushed; `AFTER` the reservation of this access's record they count as lost.
#[inline(never)]
fn disown_word<const TRIES: u32, const AFTER: bool>(word: u64, incarnation: u64, tid: u32) {
    epoch::mark_touched(word, tid);
    if !is_enabled() {
        return;
    }
    let Some(slot) = OWNERSHIP.get_ptr_mut(slot::<SLOT_BITS>(word)) else { return };
    // Checked again under the lock.
    if has_other_owner(slot, word, incarnation) == 0 {
        return;
    }
    if !lock::<TRIES>(slot) {
        if bypass(slot, word, incarnation) != 0 {
            count_lost(Class::Access);
        }
        return;
    }
    if has_other_owner(slot, word, incarnation) != 0 {
        // SAFETY: the slot is this thread's while it holds the lock.
        let ownership = unsafe { &mut *slot };
        if AFTER && ownership.written | ownership.read != 0 {
            count_lost(Class::Access);
        }
        ownership.share(tid);
    }
    unlock(slot);
}

/// Outcome of an access to one word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// The access is deferred.
    Deferred,
    /// The access gets a record.
    Recorded,
    /// The access gets a record, and other threads may have accessed the word before.
    Contended,
}

impl Ownership {
    /// Admits an access to a word that belongs in this slot: the transitions of the module's diagram. The caller
    /// holds the lock.
    #[inline(always)]
    fn admit(&mut self, thread: &ThreadState, access: &Access, word: u64) -> Admission {
        if !is_enabled() {
            return Admission::Recorded;
        }
        // SAFETY: aligned numbers.
        let (bypassing, bypassed) = unsafe {
            (
                (&raw const self.bypassing).read_volatile(),
                (&raw const self.bypassed).read_volatile(),
            )
        };
        if bypassing | bypassed != 0 {
            self.bypassed = 0;
            self.share(access.tid);
            return Admission::Contended;
        }
        if self.word != word + 1 {
            let claims = (self.bits >> CLAIMS & 0xff) + 1;
            if self.word == 0 || claims > MAX_CLAIMS {
                self.share(access.tid);
                self.bits = 0;
                self.claim(thread, access, word);
            } else {
                self.bits += 1 << CLAIMS;
            }
            // The table of epochs alone knows of other threads' accesses to this word.
            return Admission::Recorded;
        }
        self.bits &= !(0xff << CLAIMS);
        if self.owner != thread.epochs.incarnation {
            if self.owner != 0 {
                self.share(access.tid);
                self.bits += 1 << HANDOVER;
                if self.bits >> HANDOVER & 0xff < HANDOVERS {
                    self.claim(thread, access, word);
                }
            }
            return Admission::Contended;
        }
        let mask = access.byte_mask() as u32;
        let (writes, reads) = (self.bits & 0xff, self.bits >> READ_MASK & 0xff);
        if access.writes() {
            if writes == mask {
                (self.written, self.write_sp) = (thread.epochs.now, thread.highest_sp);
                self.write_site = access.site;
                return Admission::Deferred;
            }
            if writes == 0 {
                // RdEx becomes WrEx.
                self.bits |= mask;
            }
            return Admission::Recorded;
        }
        if reads != 0 && reads != mask {
            return Admission::Recorded;
        }
        self.bits |= mask << READ_MASK;
        // Each deferred read has a record of the same bytes before it: of a read or of a write.
        if mask & !(writes | reads) != 0 {
            return Admission::Recorded;
        }
        (self.read, self.read_sp) = (thread.epochs.now, thread.highest_sp);
        self.read_site = access.site;
        Admission::Deferred
    }

    /// Makes the thread the owner of the word: WrEx or RdEx. This access gets a record.
    #[inline(always)]
    fn claim(&mut self, thread: &ThreadState, access: &Access, word: u64) {
        let mask = access.byte_mask() as u32;
        self.word = word + 1;
        self.owner = thread.epochs.incarnation;
        self.bits &= !0xffff;
        self.bits |= if access.writes() { mask } else { mask << READ_MASK };
    }

    /// Ends the ownership: RdSh. Deferred accesses are flushed.
    #[inline(always)]
    fn share(&mut self, tid: u32) {
        flush(self, tid);
        self.owner = 0;
    }
}

/// Emits the deferred accesses of the owner, if any, in a record of the acting thread `tid`.
#[inline(never)]
fn flush(ownership: &mut Ownership, tid: u32) {
    let (written, read) = (ownership.written, ownership.read);
    if written | read == 0 {
        return;
    }
    (ownership.written, ownership.read) = (0, 0);
    let Some(entry) = reserve::<OwnedRecord>(Class::Access) else { return };
    let (owner, _) = thread_and_epoch(ownership.owner);
    let last_access = |thread_epoch, sp, site, bits| LastAccess {
        epoch: thread_and_epoch(thread_epoch).1,
        sp,
        site,
        bytes: bits & 0xff,
    };
    let write = last_access(written, ownership.write_sp, ownership.write_site, ownership.bits);
    let read =
        last_access(read, ownership.read_sp, ownership.read_site, ownership.bits >> READ_MASK);
    let record = OwnedRecord {
        header: header(Kind::Owned, tid, SiteId::NONE),
        owner: owner as u32,
        address: (ownership.word - 1) << 3,
        write,
        read,
    };
    fill(entry, record);
}

/// Takes the lock of a slot, unless that takes too long.
#[inline(always)]
fn lock<const TRIES: u32>(slot: *mut Ownership) -> bool {
    // SAFETY: an aligned number that lives as long as the map.
    let try_once = || unsafe { exchange(&raw mut (*slot).lock, 1) };
    if try_once() == 0 {
        return true;
    }
    for _ in 0..TRIES {
        // One success is enough: the attempts after it write the 1 that is there. The verifier follows one jump for
        // all.
        if (0..8).fold(1, |taken, _| taken & try_once()) == 0 {
            return true;
        }
    }
    false
}

/// Releases the lock of a slot.
#[inline(always)]
fn unlock(slot: *mut Ownership) {
    // SAFETY: an aligned number that lives as long as the map. The exchange is a barrier: all writes before it are
    // visible to the next holder.
    unsafe { exchange(&raw mut (*slot).lock, 0) };
}
