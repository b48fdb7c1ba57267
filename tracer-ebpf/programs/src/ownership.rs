//! Table of ownership: walks over the words of accesses, with the protocol of `ebpf::octet` at each.
//!
//! A table has a slot for each word, as far as its size allows: a word that is not in its slot has no owner.
//! An access to several words disowns them before its reservation and once more after it, because another thread may
//! have claimed one in between.

use abi::{AccessRecord, Class, Kind, OwnedRecord, SiteId};
use aya_ebpf::{Global, macros::map, maps::Array};
use ebpf::{
    octet::{self, Deferred, Environment, MapMemory, Reservation},
    table::{Access, MAX_BYTES, MAX_WORDS, ThreadState, slot},
    verifier::{may_go_on, unchecked},
};

use crate::{
    emit::{Room, count_lost, fill, header, reserve},
    epoch,
};

/// Set if accesses of owners are deferred.
#[unsafe(no_mangle)]
static OWNERSHIP_ENABLED: Global<u32> = Global::new(0);

/// Slot of the table.
#[repr(transparent)]
struct Ownership(octet::Ownership<MapMemory>);

// SAFETY: all CPUs use the numbers as the protocol does: in one step, or under the slot's lock.
unsafe impl Sync for Ownership {}

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
) -> Option<Room<AccessRecord>> {
    let (first, last) = access.words();
    if first == last {
        let slot = slot_of(first)?;
        let word = (first, is_contended);
        return octet::defer_or_reserve(Kernel, slot, thread, access, word, TRIES);
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

/// The ring buffer, the counters of lost events and the table of epochs.
#[derive(Clone, Copy)]
struct Kernel;

impl Environment for Kernel {
    type Memory = MapMemory;
    type Entry = Room<AccessRecord>;

    #[inline(always)]
    fn is_enabled(self) -> bool {
        is_enabled()
    }

    #[inline(always)]
    fn reserve(self) -> Option<Self::Entry> {
        reserve(Class::Access)
    }

    #[inline(always)]
    fn emit(self, tid: u32, deferred: impl FnOnce() -> Deferred) {
        let Some(entry) = reserve::<OwnedRecord>(Class::Access) else { return };
        let header = header(Kind::Owned, tid, SiteId::NONE);
        let Deferred { owner, address, write, read } = deferred();
        fill(entry, OwnedRecord { header, owner: owner as u32, address, write, read });
    }

    #[inline(always)]
    fn count_lost(self) {
        count_lost(Class::Access);
    }

    #[inline(always)]
    fn insert(self, thread: &ThreadState, access: &Access, word: u64) {
        epoch::insert_word(thread, access, word);
    }

    #[inline(always)]
    fn mark_shared(self, word: u64) {
        epoch::mark_shared(word);
    }
}

/// Slot of a word.
#[inline(always)]
fn slot_of(word: u64) -> Option<&'static octet::Ownership<MapMemory>> {
    // SAFETY: numbers that live as long as the map.
    OWNERSHIP.get_ptr(slot::<SLOT_BITS>(word)).map(|slot| unsafe { &(*slot).0 })
}

/// Disowns the word of an access that always gets a record, once before its reservation and once `AFTER` it.
#[inline(always)]
pub fn disown<const AFTER: bool>(address: u64, tid: u32) {
    if epoch::PROBES_ACCESSES.load() != 0 {
        disown_word::<false, AFTER>(address >> 3, epoch::incarnation(tid), tid);
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
            let Some(slot) = slot_of(word) else { return };
            is_lost |= octet::bypass(slot, word, incarnation);
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
            // SAFETY: as in `slot_of`.
            unsafe { &(*slot).0 }.word()
        } else {
            first + number
        };
        if word.wrapping_sub(first) <= last - first {
            disown_word::<true, AFTER>(word, incarnation, tid);
        }
        number += 1;
    }
    true
}

/// Disowns the words of an access of at most [`MAX_BYTES`], before its reservation or `AFTER` it.
#[inline(never)]
fn disown_few<const AFTER: bool>(first: u64, last: u64, incarnation: u64, tid: u32) {
    disown_words::<MAX_WORDS, false, AFTER>(first, last, incarnation, tid);
}

/// Disowns the words of a large access before its reservation, with fewer attempts at each lock.
#[inline(never)]
fn disown_many(first: u64, last: u64, incarnation: u64, tid: u32) {
    disown_words::<MAX_LARGE, true, false>(first, last, incarnation, tid);
}

#[inline(always)]
fn disown_words<const MAX: u64, const LARGE: bool, const AFTER: bool>(
    first: u64,
    last: u64,
    incarnation: u64,
    tid: u32,
) {
    let last = unchecked(last);
    for number in 0..MAX {
        disown_word::<LARGE, AFTER>(first + number, incarnation, tid);
        if first + number == last {
            break;
        }
    }
}

/// Ends another thread's ownership of a word that this thread accesses and does not claim, and marks the word as
/// touched. Deferred accesses are flushed; `AFTER` the reservation of this access's record they count as lost. A
/// `LARGE` access makes fewer attempts at the lock and does not show in the slot.
#[inline(never)]
fn disown_word<const LARGE: bool, const AFTER: bool>(word: u64, incarnation: u64, tid: u32) {
    epoch::mark_touched(word, tid);
    if !is_enabled() {
        return;
    }
    let Some(slot) = slot_of(word) else { return };
    let at = if AFTER { Reservation::After } else { Reservation::Before };
    if LARGE {
        octet::disown_unshown(Kernel, slot, word, (incarnation, tid), at, 1);
    } else {
        octet::disown(Kernel, slot, word, (incarnation, tid), at, TRIES);
    }
}
