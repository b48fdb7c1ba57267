//! Which accesses are repetitions that order nothing new, so that no record of them is needed.
//!
//! A thread's epoch lasts as long as nothing can have been ordered before it that was not at the epoch's start: no region
//! of it begins or ends, it takes no lock and waits for nothing, and meets no memory that another thread has touched.
//! The same access once more in one epoch, with no other thread's access to these bytes in between, has the same events
//! before it and after it as the first. So the first one stands for all: each dependency of the second has one of the
//! first that says as much, and none of them can be of another transaction.
//!
//! Who touched a word last, and how, is kept in a table with one place for several words: a word that is not there counts
//! as touched by somebody else. Records of a repetition are made more often than needed, and never too rarely.

use aya_ebpf::{
    Global,
    helpers::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, HashMap},
};
use tracer_ebpf::AccessDescriptor;

/// Whether instructions that touch memory are probed.
#[unsafe(no_mangle)]
pub static PROBES_ACCESSES: Global<u32> = Global::new(0);

/// How many low bits of an owner are the number of its epoch; those above are the thread. Ids of threads have at most 22.
const EPOCH_BITS: u32 = 42;

/// A thread's present.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Present {
    /// The thread and its epoch, as [`Word::owner`].
    pub owner: u64,
    /// What that was at first: tells the thread from others, also from those that have its id later.
    pub born: u64,
    /// Its highest stack pointer at an access since its last record.
    pub top: u64,
    /// How many accesses were too large for the table when this was looked at.
    large: u64,
}

/// The thread of an owner, and its epoch.
#[inline(always)]
pub fn thread_and_epoch(owner: u64) -> (u64, u64) {
    (owner >> EPOCH_BITS, owner & ((1 << EPOCH_BITS) - 1))
}

/// An access of a thread.
pub struct Access {
    pub tid: u32,
    pub address: u64,
    pub bytes: u64,
    /// Of [`AccessDescriptor::READ`], [`AccessDescriptor::WRITE`] and [`AccessDescriptor::ATOMIC`].
    pub done: u8,
    pub site: u32,
    pub sp: u64,
}

impl Access {
    #[inline(always)]
    pub fn writes(&self) -> bool {
        self.done & AccessDescriptor::WRITE != 0
    }

    /// Its first and last word.
    #[inline(always)]
    pub fn words(&self) -> (u64, u64) {
        (self.address >> 3, (self.address + self.bytes - 1) >> 3)
    }

    /// Which bytes of its word it touches, one bit for each, if it touches one word alone.
    #[inline(always)]
    pub fn bits(&self) -> u64 {
        let (front, back) = self.ends();
        front & back
    }

    /// Which bytes it touches of the first word from its first on, and of the last up to its last.
    #[inline(always)]
    fn ends(&self) -> (u64, u64) {
        let last = self.address + self.bytes - 1;
        (0xff << (self.address & 7) & 0xff, 0xff >> (7 - (last & 7)))
    }

    /// Visits its words, each with the bytes that it touches there; at most [`MAX_WORDS`].
    #[inline(always)]
    fn each_word(&self, mut visit: impl FnMut(u64, u64)) {
        let (first, last) = self.words();
        let last = unchecked(last);
        let (mut front, back) = self.ends();
        for number in 0..MAX_WORDS {
            let word = first + number;
            visit(word, front & (back | (0xff * is_not_zero(word ^ last))));
            if word == last {
                break;
            }
            front = 0xff;
        }
    }
}

/// What an access is in its epoch.
pub struct Novelty {
    /// Whether it is no repetition.
    pub is_new: bool,
    /// Whether it is of memory that others have touched: if it gets a record, that ends the epoch.
    pub is_meeting: bool,
}

/// Threads that have touched memory, by their ids.
#[map]
static PRESENTS: HashMap<u32, Present> =
    HashMap::with_max_entries(1 << 16, aya_ebpf::bindings::BPF_F_NO_PREALLOC);

/// Who touched a word last, and what of it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Word {
    /// The thread and its epoch. Written first and read last, so that nobody finds his own there with what another one
    /// did.
    owner: u64,
    /// From the top: the low bits of the thread's id (4 bits), the word's address divided by 8 (44), the bytes that the
    /// owner has written (8), and those that it has read (8).
    touched: u64,
}

/// How many bits of a hash tell a word's place.
const PLACE_BITS: u32 = 19;

/// The words: 8 MiB.
#[map]
static WORDS: Array<Word> = Array::with_max_entries(1 << PLACE_BITS, 0);

/// How many accesses were too large for the table so far.
#[map]
static LARGE: Array<u64> = Array::with_max_entries(1, 0);

/// The largest access that can be a repetition, in bytes.
pub const MAX_BYTES: u64 = AccessDescriptor::MAX_USUAL as u64;

/// How many words such an access can touch.
pub const MAX_WORDS: u64 = MAX_BYTES / 8 + 1;

/// Ends a thread's epoch; returns the new one.
#[inline(always)]
pub fn end(tid: u32) -> u64 {
    if PROBES_ACCESSES.load() == 0 {
        return 0;
    }
    let Some(present) = PRESENTS.get_ptr_mut(tid) else { return 0 };
    // SAFETY: only the thread itself changes what is its own, and the element outlives the program.
    unsafe {
        (*present).owner += 1;
        (*present).top = 0;
        thread_and_epoch((*present).owner).1
    }
}

/// What an access is in its thread's epoch. To be followed by [`note`] or [`note_word`] if it is new, unless it is large.
///
/// The verifier goes through each way that leads through a loop: this one has none but its length.
#[inline(always)]
pub fn novelty(present: &mut Present, access: &Access) -> Novelty {
    let large = LARGE.get_ptr(0).map_or(0, |large| {
        // SAFETY: an aligned number.
        unsafe { large.read_volatile() }
    });
    if present.large != large {
        present.large = large;
        present.owner += 1;
    }
    if access.bytes > MAX_BYTES {
        return Novelty { is_new: true, is_meeting: true };
    }
    let (born, own) = (present.born, present.owner);
    let reads_count = if access.writes() { 0 } else { 0xff };
    let (mut is_new, mut is_meeting) = (0, 0);
    access.each_word(|word, bits| {
        let Some(place) = WORDS.get_ptr(place(word)) else { return };
        // SAFETY: two aligned numbers; which of them are seen when another thread writes them is said at `Word`.
        let (touched, owner) = unsafe {
            (
                (&raw const (*place).touched).read_volatile(),
                (&raw const (*place).owner).read_volatile(),
            )
        };
        let known = touched >> 8 | touched & reads_count;
        // Not 0 if the word is another thread's, also one that had this one's id; of threads alike the later owner is more.
        let strange = touched >> 16 ^ tagged(access.tid, word)
            | owner >> EPOCH_BITS ^ u64::from(access.tid)
            | owner.wrapping_sub(born) >> 63;
        let unknown = strange | bits & !known;
        is_new |= unknown | owner ^ own;
        // Of other bytes of a word, and of what was read alone, others may have been there before.
        is_meeting |= is_not_zero(touched) & is_not_zero(unknown);
    });
    Novelty { is_new: is_new != 0, is_meeting: is_meeting != 0 }
}

/// Notes that an access was made. What an atomic instruction has written is not noted: a lock is let go of by a store, and
/// that it is taken does not say that it is.
#[inline(always)]
pub fn note(present: &Present, access: &Access) {
    access.each_word(|word, bits| note_bytes(present, access, word, bits));
}

/// The same for an access to one word.
#[inline(always)]
pub fn note_word(present: &Present, access: &Access, word: u64) {
    note_bytes(present, access, word, access.bits());
}

#[inline(always)]
fn note_bytes(present: &Present, access: &Access, word: u64, bits: u64) {
    let Some(place) = WORDS.get_ptr_mut(place(word)) else { return };
    let is_stored = access.done & (AccessDescriptor::WRITE | AccessDescriptor::ATOMIC)
        == AccessDescriptor::WRITE;
    let bits = if is_stored { bits << 8 } else { bits };
    // SAFETY: as in `novelty`.
    unsafe {
        let (owner, touched) = (&raw mut (*place).owner, &raw mut (*place).touched);
        let before = touched.read_volatile();
        let mine = tagged(access.tid, word);
        let strange = is_not_zero(before >> 16 ^ mine | owner.read_volatile() ^ present.owner);
        owner.write_volatile(present.owner);
        touched.write_volatile(mine << 16 | bits | before & 0xffff & strange.wrapping_sub(1));
    }
}

/// Notes that a thread has touched a word in a way that is recorded anyhow: for others it is touched by another.
#[inline(always)]
pub fn disturb(word: u64, tid: u32) {
    let Some(place) = WORDS.get_ptr(place(word)) else { return };
    // SAFETY: as in `novelty`.
    if unsafe { (&raw const (*place).owner).read_volatile() } >> EPOCH_BITS != u64::from(tid) {
        estrange(word);
    }
}

/// A word is touched by another, for everybody.
#[inline(always)]
pub fn estrange(word: u64) {
    let Some(place) = WORDS.get_ptr_mut(place(word)) else { return };
    // SAFETY: as in `novelty`. No thread has the number 0.
    unsafe {
        (&raw mut (*place).owner).write_volatile(0);
        (&raw mut (*place).touched).write_volatile(u64::MAX << 16);
    }
}

/// Ends everybody's epoch: anything may have been touched.
#[inline(always)]
pub fn disturb_all() {
    if let Some(large) = LARGE.get_ptr_mut(0) {
        // SAFETY: an aligned number; that two who count at once count one is as good.
        unsafe { large.write_volatile(large.read_volatile() + 1) };
    }
}

/// A thread's present, which begins now if there was none.
#[inline(always)]
pub fn present(tid: u32) -> Option<&'static mut Present> {
    let present = PRESENTS.get_ptr_mut(tid).or_else(|| {
        // No thread has so many epochs that one of a later thread with its id could be the same.
        // SAFETY: the helper has no conditions.
        let epoch = unsafe { bpf_ktime_get_ns() } >> 8 & ((1 << EPOCH_BITS) - 1);
        let born = u64::from(tid) << EPOCH_BITS | epoch;
        PRESENTS.insert(tid, Present { owner: born, born, top: 0, large: 0 }, 0).ok()?;
        PRESENTS.get_ptr_mut(tid)
    })?;
    // SAFETY: only the thread itself uses what is its own, and the element outlives the program.
    Some(unsafe { &mut *present })
}

/// What tells a thread from others, if it has touched memory; else 0.
#[inline(always)]
pub fn born(tid: u32) -> u64 {
    // SAFETY: as in `present`.
    PRESENTS.get_ptr(tid).map_or(0, |present| unsafe { (*present).born })
}

/// Forgets a thread that ends.
#[inline(always)]
pub fn forget(tid: u32) {
    if PROBES_ACCESSES.load() != 0 {
        // It need not be there.
        let _ = PRESENTS.remove(tid);
    }
}

/// A word with the low bits of a thread's id above it.
#[inline(always)]
fn tagged(tid: u32, word: u64) -> u64 {
    u64::from(tid & 15) << 44 | word & ((1 << 44) - 1)
}

/// A word's place in the table.
#[inline(always)]
fn place(word: u64) -> u32 {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACE_BITS)) as u32
}

/// 1, or 0 of 0: without a jump, which the compiler would make of a comparison.
#[inline(always)]
pub fn is_not_zero(number: u64) -> u64 {
    unchecked(number | number.wrapping_neg()) >> 63
}

/// The same number, of which the compiler knows nothing: it leaves out bounds that it can prove, and the verifier needs.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn unchecked(mut number: u64) -> u64 {
    // The kernel refuses lines of the source without an instruction.
    // SAFETY: nothing is changed.
    unsafe {
        core::arch::asm!("{0} = {0}", inout(reg) number, options(pure, nomem, nostack));
    }
    number
}

/// For clippy on the host.
#[cfg(not(target_arch = "bpf"))]
pub fn unchecked(number: u64) -> u64 {
    number
}
