//! Memory that one thread has to itself: what it does there is kept, and told when another thread comes.
//!
//! A thread that has made a record of an access to a word owns the word until another one touches it. What it does there
//! in later epochs has nothing of another thread before it that the record has not, and nothing after it until then. So
//! of the same access again it is enough to keep the last epoch; of writes and of reads, since they are told apart by what
//! comes after. The states are those of Octet (Bond et al., "Octet: Capturing and Controlling Cross-Thread Dependences
//! Efficiently"): exclusive for writing, exclusive for reading, shared. A word that is handed over more than once counts
//! as shared from then on, and each first access of an epoch makes a record.
//!
//! Words have places in a table, as many as its size allows: a word whose place is another one's is not owned. All that
//! changes a place is done while holding its lock, and so is finding room for the records that tell of it: their order
//! is that of the changes. Who does not get the lock soon says so in the place, and whoever has it next lets nobody own
//! the word; what an owner had kept then comes too late, and counts as lost. What touches several words disowns them
//! before there is room for its record and after, since others may come to own them meanwhile.

use aya_ebpf::{
    Global,
    macros::map,
    maps::{Array, ring_buf::RingBufEntry},
};
use tracer_ebpf::{Class, Kind, LastAccess, OwnedRecord, PairRecord};

use crate::{
    emit::{access_header, atomic_add, atomic_or, count_lost, fill, reserve},
    epoch::{
        self, Access, MAX_BYTES, MAX_WORDS, Present, is_not_zero, thread_and_epoch, unchecked,
    },
};

/// Whether what is done to owned words is kept.
#[unsafe(no_mangle)]
static OWNERSHIP_ENABLED: Global<u32> = Global::new(0);

/// What is kept of a word.
#[repr(C)]
#[derive(Clone, Copy)]
struct Kept {
    /// 1 while somebody is at it.
    lock: u64,
    /// How many make a record of an access to a word of this place without the lock, and whether others have touched the
    /// word without it since [`Kept::take`] looked.
    passing: u64,
    passed: u64,
    /// The address divided by 8, and 1 more: 0 where there is none.
    word: u64,
    /// Who owns it, as [`Present::born`]; 0 when it is shared.
    owner: u64,
    /// When the owner last wrote it and last read it, as [`Present::owner`], where there is no record of that; else 0.
    written: u64,
    read: u64,
    /// The highest stack pointers since the last record before.
    write_sp: u64,
    read_sp: u64,
    write_site: u32,
    read_site: u32,
    /// Which bytes the owner writes (8 bits) and reads (8), of accesses that are kept: always the same. How often others
    /// wanted the place (8), and how often the word was handed over (8).
    bits: u32,
    unused: u32,
}

/// How many bits of a hash tell a word's place.
const PLACE_BITS: u32 = 17;
const PLACES: u64 = 1 << PLACE_BITS;

/// The words: 10 MiB.
#[map]
static KEPT: Array<Kept> = Array::with_max_entries(1 << PLACE_BITS, 0);

/// Not 0 when words are not owned any more: something was touched that is too large to be looked at.
#[map]
static ENDED: Array<u64> = Array::with_max_entries(1, 0);

/// How often to try for a lock, eight times each. It is held for less than a microsecond, but for a thread that is put
/// off its CPU.
const TRIES: u32 = 16;

/// How often others may want a place before it is theirs.
const PATIENCE: u32 = 8;

/// How often a word is handed over before it is shared.
const HANDOVERS: u32 = 2;

/// The largest access whose words are looked at, in words: the verifier goes through each of them.
const MAX_LARGE: u64 = 128;

const READS: u32 = 8;
const WANTED: u32 = 16;
const HANDED: u32 = 24;

/// Keeps an access that is new in its epoch, or finds room for its record: after those of others that it needs. What ends
/// the epoch does so here. It can be large if `LARGE`, and of any size if the kernel bounds loops (`LOOPS`).
#[inline(always)]
pub fn take<const LARGE: bool, const LOOPS: bool>(
    present: &mut Present,
    access: &Access,
    is_meeting: bool,
) -> Option<RingBufEntry<PairRecord>> {
    let (first, last) = access.words();
    if first == last {
        return take_word(present, access, is_meeting, first);
    }
    if is_meeting {
        present.owner += 1;
    }
    if !LARGE || access.bytes <= MAX_BYTES {
        epoch::note(present, access);
        touch_few::<false>(first, last, present.born, access.tid);
    } else if LOOPS {
        // What stays untold is found, and counted, after the record.
        touch_all::<false>(first, last, present.born, access.tid);
    } else if last - first < MAX_LARGE {
        touch_many(first, last, present.born, access.tid);
    }
    reserve(Class::Access)
}

/// There was room for the record of an access, or it is lost. Others may have come to own a word of several meanwhile.
#[inline(always)]
pub fn taken<const LARGE: bool, const LOOPS: bool>(present: &Present, access: &Access) {
    let (first, last) = access.words();
    if LOOPS && access.bytes > MAX_BYTES {
        if !touch_all::<true>(first, last, present.born, access.tid) {
            end_owning();
        }
    } else if LARGE && access.bytes > MAX_BYTES {
        touched_large(first, last, present.born, access.tid);
    } else if first != last {
        touch_few::<true>(first, last, present.born, access.tid);
    }
}

#[inline(always)]
fn take_word(
    present: &mut Present,
    access: &Access,
    is_meeting: bool,
    word: u64,
) -> Option<RingBufEntry<PairRecord>> {
    let kept = KEPT.get_ptr_mut(place(word))?;
    if !lock::<TRIES>(kept) {
        present.owner += 1;
        // SAFETY: aligned numbers that live as long as the map.
        unsafe { atomic_add(&raw mut (*kept).passing, 1) };
        let entry = reserve(Class::Access);
        // SAFETY: as above.
        unsafe { atomic_or(&raw mut (*kept).passed, 1) };
        if pass(kept, word, present.born) != 0 && keeps() {
            count_lost(Class::Access);
        }
        epoch::estrange(word);
        // SAFETY: as above.
        unsafe { atomic_add(&raw mut (*kept).passing, u64::MAX) };
        return entry;
    }
    // SAFETY: the place is this thread's while it has the lock.
    let taken = unsafe { &mut *kept }.take(present, access, word);
    if taken == Taken::Met || is_meeting && taken != Taken::Kept {
        present.owner += 1;
    }
    epoch::note_word(present, access, word);
    let entry = if taken == Taken::Kept { None } else { reserve(Class::Access) };
    unlock(kept);
    entry
}

/// Whether another thread than this one has a word: 1 or 0, without a jump.
#[inline(always)]
fn is_anothers(kept: *const Kept, word: u64, born: u64) -> u64 {
    // SAFETY: aligned numbers that live as long as the map.
    let (known, owner) = unsafe {
        ((&raw const (*kept).word).read_volatile(), (&raw const (*kept).owner).read_volatile())
    };
    unchecked(1 - is_not_zero(known ^ (word + 1))) & is_not_zero(owner) & is_not_zero(owner ^ born)
}

/// A thread touches a word without the lock of its place. Whether another one has it and has kept something, or may be
/// about to, that is not told in time: 1 or 0, without a jump.
#[inline(always)]
fn pass(kept: *mut Kept, word: u64, born: u64) -> u64 {
    let is_anothers = is_anothers(kept, word, born);
    // Who takes the lock after this sees it; who had it before is seen, or what was kept.
    // SAFETY: aligned numbers that live as long as the map.
    unsafe {
        atomic_or(&raw mut (*kept).passed, is_anothers);
        let locked = (&raw const (*kept).lock).read_volatile();
        let written = (&raw const (*kept).written).read_volatile();
        let read = (&raw const (*kept).read).read_volatile();
        is_anothers & is_not_zero(locked | written | read)
    }
}

/// A word is touched in a way that is recorded whatever is known of it. To be said before the record, and `AFTER` it.
#[inline(always)]
pub fn touched<const AFTER: bool>(address: u64, tid: u32) {
    if epoch::PROBES_ACCESSES.load() != 0 {
        touch_word::<TRIES, AFTER>(address >> 3, epoch::born(tid), tid);
    }
}

#[inline(always)]
fn keeps() -> bool {
    // SAFETY: an aligned number.
    OWNERSHIP_ENABLED.load() != 0
        && ENDED.get_ptr(0).is_some_and(|ended| unsafe { ended.read_volatile() } == 0)
}

/// There was room for the record of a large access. What another thread has come to own meanwhile, and has kept, counts as
/// lost: to disown so many words once more is more than the verifier goes through in a moment. So it is of the words of
/// larger accesses than that: nobody owns anything from then on.
#[inline(never)]
fn touched_large(first: u64, last: u64, born: u64, tid: u32) {
    let mut is_lost = 0;
    if last - first < MAX_LARGE {
        let last = unchecked(last);
        for number in 0..MAX_LARGE {
            let word = first + number;
            epoch::disturb(word, tid);
            let Some(kept) = KEPT.get_ptr_mut(place(word)) else { return };
            is_lost |= pass(kept, word, born);
            if word == last {
                break;
            }
        }
    } else {
        end_owning();
    }
    // What was kept when owning ended counts as lost already.
    if is_lost != 0 && keeps() {
        count_lost(Class::Access);
    }
}

/// Nobody owns anything from now on; what is kept counts as lost.
#[inline(always)]
fn end_owning() {
    epoch::disturb_all();
    if let Some(ended) = ENDED.get_ptr_mut(0)
        && keeps()
    {
        // SAFETY: an aligned number.
        unsafe { ended.write_volatile(1) };
        count_lost(Class::Access);
    }
}

/// How many words, or places of words where those are fewer, [`touch_all`] visits for an access.
#[inline(always)]
pub fn rounds(access: &Access) -> u64 {
    let (first, last) = access.words();
    (last - first).min(PLACES - 1) + 1
}

/// Touches the words of an access of any size, as [`touch_word`] does; of one with more words than the table has places,
/// those words that have a place. Returns whether the kernel let the loop come to its end: it allows 8 million rounds
/// (`BPF_MAX_LOOPS` in `include/linux/bpf.h`), on newer kernels a quarter of a second
/// (`bpf_check_timed_may_goto` in `kernel/bpf/core.c`).
#[inline(never)]
fn touch_all<const AFTER: bool>(first: u64, last: u64, born: u64, tid: u32) -> bool {
    let by_place = last - first >= PLACES;
    if by_place {
        epoch::disturb_all();
    }
    let rounds = if by_place { PLACES } else { last - first + 1 };
    // 0, of which the verifier knows nothing: it would go through the rounds one by one.
    let mut number = unchecked(first).wrapping_sub(first);
    while number < rounds {
        if !may_go_on() {
            return false;
        }
        let word = if by_place {
            let Some(kept) = KEPT.get_ptr(number as u32) else { return false };
            // SAFETY: an aligned number that lives as long as the map. 0 becomes a word that no access has.
            unsafe { (&raw const (*kept).word).read_volatile() }.wrapping_sub(1)
        } else {
            first + number
        };
        if word.wrapping_sub(first) <= last - first {
            touch_word::<1, AFTER>(word, born, tid);
        }
        number += 1;
    }
    true
}

/// Whether the kernel allows one more round of a loop.
#[cfg(target_arch = "bpf")]
#[inline(always)]
fn may_go_on() -> bool {
    let go_on: u64;
    // SAFETY: the jump is over the last instruction here.
    unsafe {
        core::arch::asm!(
            "{go_on} = 0",
            "may_goto +1",
            "{go_on} = 1",
            go_on = out(reg) go_on,
        );
    }
    go_on != 0
}

/// For clippy on the host.
#[cfg(not(target_arch = "bpf"))]
fn may_go_on() -> bool {
    true
}

/// The words of an access that is not large are touched: before its record and after, as in [`touched`].
#[inline(never)]
fn touch_few<const AFTER: bool>(first: u64, last: u64, born: u64, tid: u32) {
    touch_words::<MAX_WORDS, TRIES, AFTER>(first, last, born, tid);
}

/// The same for a large one, where the lock of a place is not tried for so long.
#[inline(never)]
fn touch_many(first: u64, last: u64, born: u64, tid: u32) {
    touch_words::<MAX_LARGE, 1, false>(first, last, born, tid);
}

#[inline(always)]
fn touch_words<const MAX: u64, const TRIES: u32, const AFTER: bool>(
    first: u64,
    last: u64,
    born: u64,
    tid: u32,
) {
    let last = unchecked(last);
    for number in 0..MAX {
        touch_word::<TRIES, AFTER>(first + number, born, tid);
        if first + number == last {
            break;
        }
    }
}

/// A thread touches a word, and does not come to own it: for others it is touched by another, and if one of them owns it,
/// that is told, and over. What was kept before there is a record of this counts as lost if it is told `AFTER`.
#[inline(never)]
fn touch_word<const TRIES: u32, const AFTER: bool>(word: u64, born: u64, tid: u32) {
    epoch::disturb(word, tid);
    if !keeps() {
        return;
    }
    let Some(kept) = KEPT.get_ptr_mut(place(word)) else { return };
    // What is seen here is looked at again under the lock.
    if is_anothers(kept, word, born) == 0 {
        return;
    }
    if !lock::<TRIES>(kept) {
        if pass(kept, word, born) != 0 {
            count_lost(Class::Access);
        }
        return;
    }
    if is_anothers(kept, word, born) != 0 {
        // SAFETY: the place is this thread's while it has the lock.
        let kept = unsafe { &mut *kept };
        if AFTER && kept.written | kept.read != 0 {
            count_lost(Class::Access);
        }
        kept.share(tid);
    }
    unlock(kept);
}

/// What becomes of an access to one word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It is kept.
    Kept,
    /// It gets a record.
    Recorded,
    /// It gets a record, and others may have touched the word before.
    Met,
}

impl Kept {
    /// An access to a word that has this place.
    #[inline(always)]
    fn take(&mut self, present: &Present, access: &Access, word: u64) -> Taken {
        if !keeps() {
            return Taken::Recorded;
        }
        // SAFETY: aligned numbers.
        let (passing, passed) = unsafe {
            ((&raw const self.passing).read_volatile(), (&raw const self.passed).read_volatile())
        };
        if passing | passed != 0 {
            self.passed = 0;
            self.share(access.tid);
            return Taken::Met;
        }
        if self.word != word + 1 {
            let wanted = (self.bits >> WANTED & 0xff) + 1;
            if self.word == 0 || wanted > PATIENCE {
                self.share(access.tid);
                self.bits = 0;
                self.claim(present, access, word);
            } else {
                self.bits += 1 << WANTED;
            }
            // Whether others have touched it is known by the epochs alone.
            return Taken::Recorded;
        }
        self.bits &= !(0xff << WANTED);
        if self.owner != present.born {
            if self.owner != 0 {
                self.share(access.tid);
                self.bits += 1 << HANDED;
                if self.bits >> HANDED & 0xff < HANDOVERS {
                    self.claim(present, access, word);
                }
            }
            return Taken::Met;
        }
        let bits = access.bits() as u32;
        let (writes, reads) = (self.bits & 0xff, self.bits >> READS & 0xff);
        if access.writes() {
            if writes == bits {
                (self.written, self.write_sp) = (present.owner, present.top);
                self.write_site = access.site;
                return Taken::Kept;
            }
            if writes == 0 {
                self.bits |= bits;
            }
            return Taken::Recorded;
        }
        if reads != 0 && reads != bits {
            return Taken::Recorded;
        }
        self.bits |= bits << READS;
        // What is read was recorded as read before, or as written.
        if bits & !(writes | reads) != 0 {
            return Taken::Recorded;
        }
        (self.read, self.read_sp) = (present.owner, present.top);
        self.read_site = access.site;
        Taken::Kept
    }

    /// The word is of the thread that makes a record of this access to it.
    #[inline(always)]
    fn claim(&mut self, present: &Present, access: &Access, word: u64) {
        let bits = access.bits() as u32;
        self.word = word + 1;
        self.owner = present.born;
        self.bits &= !0xffff;
        self.bits |= if access.writes() { bits } else { bits << READS };
    }

    /// Nobody owns the word any more.
    #[inline(always)]
    fn share(&mut self, tid: u32) {
        tell(self, tid);
        self.owner = 0;
    }
}

/// Tells what the owner did since it made a record.
#[inline(never)]
fn tell(kept: &mut Kept, tid: u32) {
    let (written, read) = (kept.written, kept.read);
    if written | read == 0 {
        return;
    }
    (kept.written, kept.read) = (0, 0);
    let Some(entry) = reserve::<OwnedRecord>(Class::Access) else { return };
    let header = access_header(Kind::Owned as u16, 0, tid, 0, 0);
    let (owner, _) = thread_and_epoch(kept.owner);
    let deed = |at, sp, site, bits| LastAccess {
        epoch: thread_and_epoch(at).1,
        sp,
        site,
        bytes: bits & 0xff,
    };
    let write = deed(written, kept.write_sp, kept.write_site, kept.bits);
    let read = deed(read, kept.read_sp, kept.read_site, kept.bits >> READS);
    fill(entry, OwnedRecord { header, owner, address: (kept.word - 1) << 3, write, read });
}

/// Takes the lock of a place, if that can be had soon.
#[inline(always)]
fn lock<const TRIES: u32>(kept: *mut Kept) -> bool {
    // SAFETY: an aligned number that lives as long as the map.
    let try_once = || unsafe { exchange(&raw mut (*kept).lock, 1) };
    if try_once() == 0 {
        return true;
    }
    for _ in 0..TRIES {
        // To have had it once is to have it. The verifier goes through one jump for all.
        if (0..8).fold(1, |taken, _| taken & try_once()) == 0 {
            return true;
        }
    }
    false
}

/// Lets go of it.
#[inline(always)]
fn unlock(kept: *mut Kept) {
    // SAFETY: an aligned number that lives as long as the map. All that was written before is there for whoever sees it.
    unsafe { exchange(&raw mut (*kept).lock, 0) };
}

/// A word's place in the table.
#[inline(always)]
fn place(word: u64) -> u32 {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACE_BITS)) as u32
}

/// Writes a number and returns what was there, in one step. `core` offers no such atomics for this target.
///
/// # Safety
///
/// `number` is aligned and valid for reads and writes.
#[cfg(target_arch = "bpf")]
#[inline(always)]
unsafe fn exchange(number: *mut u64, new: u64) -> u64 {
    let mut value = new;
    // SAFETY: by the caller's promise; the instruction touches these 8 bytes alone.
    unsafe {
        core::arch::asm!(
            "{value} = xchg_64({number} + 0, {value})",
            number = in(reg) number,
            value = inout(reg) value,
        );
    }
    value
}

/// For clippy on the host.
///
/// # Safety
///
/// `number` is aligned and valid for reads and writes.
#[cfg(not(target_arch = "bpf"))]
unsafe fn exchange(number: *mut u64, new: u64) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(number) }
        .swap(new, core::sync::atomic::Ordering::Relaxed)
}
