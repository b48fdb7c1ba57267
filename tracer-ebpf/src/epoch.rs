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
use tracer_ebpf::Touch;

/// Whether instructions that touch memory are probed.
#[unsafe(no_mangle)]
static SEES_TOUCHES: Global<u32> = Global::new(0);

/// How many low bits of an owner are the number of its epoch; those above are the thread. Ids of threads have at most 22.
const EPOCH_BITS: u32 = 42;

/// A thread's present.
#[repr(C)]
#[derive(Clone, Copy)]
struct Present {
    /// The thread and its epoch, as [`Word::owner`].
    owner: u64,
    /// How many accesses were too large for the table when this was looked at.
    large: u64,
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

/// The largest access whose words are looked at, in bytes.
const MAX_BYTES: u64 = 64;

/// How many words such an access can touch.
const MAX_WORDS: u64 = MAX_BYTES / 8 + 1;

/// Ends a thread's epoch.
#[inline(always)]
pub fn end(tid: u32) {
    if SEES_TOUCHES.load() != 0
        && let Some(present) = PRESENTS.get_ptr_mut(tid)
    {
        // SAFETY: only the thread itself changes what is its own, and the element outlives the program.
        unsafe { (*present).owner += 1 };
    }
}

/// Whether an access of a thread needs a record; notes that it was made. `done` is of [`Touch::READ`] and
/// [`Touch::WRITE`].
#[inline(always)]
pub fn is_new(tid: u32, address: u64, bytes: u64, done: u8) -> bool {
    let Some(present) = present(tid) else { return true };
    let Some(large) = LARGE.get_ptr_mut(0) else { return true };
    if bytes > MAX_BYTES || bytes == 0 {
        // Everybody's epoch ends: what is in the table may have been touched.
        // SAFETY: an aligned number; that two who count at once count one is as good.
        unsafe { large.write_volatile(large.read_volatile() + 1) };
        return true;
    }
    // SAFETY: as above, and only the thread itself changes what is its own.
    let (large, present) = unsafe { (large.read_volatile(), &mut *present) };
    if present.large != large {
        present.large = large;
        present.owner += 1;
    }
    let writes = done & Touch::WRITE != 0;
    let (first, last) = (address >> 3, (address + bytes - 1) >> 3);
    let (mut is_new, mut meets_another) = (false, false);
    for number in 0..MAX_WORDS {
        let word = first + number;
        if word > last {
            break;
        }
        let Some(place) = WORDS.get_ptr_mut(place(word)) else { return true };
        // SAFETY: two aligned numbers; which of them are seen when another thread writes them is said at `Word`.
        let (touched, owner) = unsafe {
            (
                (&raw const (*place).touched).read_volatile(),
                (&raw const (*place).owner).read_volatile(),
            )
        };
        let bits = bits(word, first, last, address, bytes);
        let (written, read) = (touched >> 8 & 0xff, touched & 0xff);
        let known = if writes { written } else { written | read };
        let is_own = touched >> 16 == tagged(tid, word) && owner >> EPOCH_BITS == u64::from(tid);
        let is_known = is_own && bits & !known == 0;
        is_new |= !is_known || owner != present.owner;
        // A read of one's own says nothing of others that have read before it.
        meets_another |= touched != 0 && if is_own { writes && !is_known } else { true };
    }
    if !is_new {
        return false;
    }
    if meets_another {
        present.owner += 1;
    }
    for number in 0..MAX_WORDS {
        let word = first + number;
        if word > last {
            break;
        }
        let Some(place) = WORDS.get_ptr_mut(place(word)) else { return true };
        let bits = bits(word, first, last, address, bytes);
        let bits = if writes { bits << 8 } else { bits };
        // SAFETY: as above.
        unsafe {
            let (owner, touched) = (&raw mut (*place).owner, &raw mut (*place).touched);
            let before = touched.read_volatile();
            let mine = tagged(tid, word);
            let is_own = before >> 16 == mine && owner.read_volatile() == present.owner;
            owner.write_volatile(present.owner);
            touched.write_volatile(if is_own { before | bits } else { mine << 16 | bits });
        }
    }
    true
}

/// A thread's present, which begins now if there was none.
#[inline(always)]
fn present(tid: u32) -> Option<*mut Present> {
    if let Some(present) = PRESENTS.get_ptr_mut(tid) {
        return Some(present);
    }
    // No thread has so many epochs that one of a later thread with its id could be the same.
    // SAFETY: the helper has no conditions.
    let epoch = unsafe { bpf_ktime_get_ns() } >> 8 & ((1 << EPOCH_BITS) - 1);
    let begun = Present { owner: u64::from(tid) << EPOCH_BITS | epoch, large: 0 };
    PRESENTS.insert(tid, begun, 0).ok()?;
    PRESENTS.get_ptr_mut(tid)
}

/// Forgets a thread that ends.
#[inline(always)]
pub fn forget(tid: u32) {
    if SEES_TOUCHES.load() != 0 {
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

/// Which bytes of a word an access touches.
#[inline(always)]
fn bits(word: u64, first: u64, last: u64, address: u64, bytes: u64) -> u64 {
    let from = if word == first { address & 7 } else { 0 };
    let to = if word == last { ((address + bytes - 1) & 7) + 1 } else { 8 };
    ((1 << to) - 1) & !((1 << from) - 1) & 0xff
}
