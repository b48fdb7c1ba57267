//! Epochs of threads: decides which accesses are repetitions that order nothing new and need no record.
//!
//! A thread's epoch lasts until something can be ordered before the thread that was not before it at the epoch's
//! start: a region of the thread begins or ends, it acquires a lock or waits, or it accesses memory that another
//! thread has accessed. A second access of the same kind to the same bytes in one epoch, with no access of another
//! thread to these bytes in between, has the same events before it and after it as the first. So the first one
//! represents all: each dependency of the second has an equivalent one of the first, in the same transaction.
//!
//! A table has the last accessing thread of each word, with one slot for several words: a word that is not in its slot
//! counts as accessed by another thread. Errors go one way: a repetition may get a record, a new access always does.
//! Ownership (`ownership`) decides further which of the new accesses are deferred.

use aya_ebpf::{
    Global,
    helpers::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, HashMap},
};
use tracer_ebpf::AccessDescriptor;

use crate::verifier::{is_not_zero, unchecked};

/// Set if memory instructions are probed.
#[unsafe(no_mangle)]
pub static PROBES_ACCESSES: Global<u32> = Global::new(0);

/// Number of low bits of a thread epoch that are the number of the epoch; those above are the thread's id. Ids of
/// threads have at most 22 bits.
const EPOCH_BITS: u32 = 42;

/// State of a thread that has accessed memory.
///
/// A *thread epoch* is the thread's id and the number of its epoch in one integer: see [`thread_and_epoch`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadState {
    /// The thread's current thread epoch.
    pub now: u64,
    /// The thread's first thread epoch: distinguishes it from all others, also from later ones with its id.
    pub incarnation: u64,
    /// Highest stack pointer at an access since the last record.
    pub highest_sp: u64,
    /// The number of [`LARGE_ACCESSES`] when the thread last looked.
    large_accesses: u64,
}

/// Splits a thread epoch into the thread's id and the epoch's number.
#[inline(always)]
pub fn thread_and_epoch(thread_epoch: u64) -> (u64, u64) {
    (thread_epoch >> EPOCH_BITS, thread_epoch & ((1 << EPOCH_BITS) - 1))
}

/// Access of a thread to memory.
pub struct Access {
    pub tid: u32,
    pub address: u64,
    pub bytes: u64,
    /// Flags [`AccessDescriptor::READ`], [`AccessDescriptor::WRITE`] and [`AccessDescriptor::ATOMIC`].
    pub flags: u8,
    pub site: u32,
    pub sp: u64,
}

impl Access {
    /// Returns whether the access writes.
    #[inline(always)]
    pub fn writes(&self) -> bool {
        self.flags & AccessDescriptor::WRITE != 0
    }

    /// First and last word, as addresses divided by 8.
    #[inline(always)]
    pub fn words(&self) -> (u64, u64) {
        (self.address >> 3, (self.address + self.bytes - 1) >> 3)
    }

    /// Accessed bytes of the word, one bit each, for an access to one word.
    #[inline(always)]
    pub fn byte_mask(&self) -> u64 {
        let (front, back) = self.end_masks();
        front & back
    }

    /// Bytes of the first word from the access's first byte on, and of the last word up to its last byte.
    #[inline(always)]
    fn end_masks(&self) -> (u64, u64) {
        let last = self.address + self.bytes - 1;
        (0xff << (self.address & 7) & 0xff, 0xff >> (7 - (last & 7)))
    }

    /// Visits the words, each with the mask of its accessed bytes; at most [`MAX_WORDS`].
    #[inline(always)]
    fn each_word(&self, mut visit: impl FnMut(u64, u64)) {
        let (first, last) = self.words();
        let last = unchecked(last);
        let (mut front, back) = self.end_masks();
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

/// Relation of an access to its thread's epoch.
pub struct Novelty {
    /// Set if the access is no repetition.
    pub is_new: bool,
    /// Set if other threads have accessed the memory: a record of the access ends the epoch.
    pub is_contended: bool,
}

/// Threads that have accessed memory, by their ids.
#[map]
static THREADS: HashMap<u32, ThreadState> =
    HashMap::with_max_entries(1 << 16, aya_ebpf::bindings::BPF_F_NO_PREALLOC);

/// Slot of the table: the last thread that accessed a word, and its accesses.
#[repr(C)]
#[derive(Clone, Copy)]
struct WordAccesses {
    /// The thread epoch. Written first and read last, so that no thread finds its own there together with the
    /// accesses of another one.
    thread_epoch: u64,
    /// From the top: the low bits of the thread's id (4 bits), the word's address divided by 8 (44), the mask of the
    /// bytes that the thread has written (8), and of those that it has read (8).
    accesses: u64,
}

/// Binary logarithm of the number of slots.
const SLOT_BITS: u32 = 19;

/// The table of words: 8 MiB.
#[map]
static WORDS: Array<WordAccesses> = Array::with_max_entries(1 << SLOT_BITS, 0);

/// Number of accesses so far that were too large for the table.
#[map]
static LARGE_ACCESSES: Array<u64> = Array::with_max_entries(1, 0);

/// Largest access that can be a repetition, in bytes.
pub const MAX_BYTES: u64 = AccessDescriptor::MAX_USUAL as u64;

/// Largest number of words of an access with [`MAX_BYTES`].
pub const MAX_WORDS: u64 = MAX_BYTES / 8 + 1;

/// Ends a thread's epoch; returns the number of the new one, or 0 for a thread without accesses.
#[inline(always)]
pub fn end(tid: u32) -> u64 {
    if PROBES_ACCESSES.load() == 0 {
        return 0;
    }
    let Some(thread) = THREADS.get_ptr_mut(tid) else { return 0 };
    // SAFETY: only the thread itself changes its state, and the element outlives the program.
    unsafe {
        (*thread).now += 1;
        (*thread).highest_sp = 0;
        thread_and_epoch((*thread).now).1
    }
}

/// Compares an access with its thread's epoch. A new access must be added with [`insert`] or [`insert_word`], unless
/// it is large.
///
/// The verifier follows each path through a loop: this one has no branch but its end.
#[inline(always)]
pub fn novelty(thread: &mut ThreadState, access: &Access) -> Novelty {
    let large_accesses = LARGE_ACCESSES.get_ptr(0).map_or(0, |number| {
        // SAFETY: an aligned number.
        unsafe { number.read_volatile() }
    });
    if thread.large_accesses != large_accesses {
        thread.large_accesses = large_accesses;
        thread.now += 1;
    }
    if access.bytes > MAX_BYTES {
        return Novelty { is_new: true, is_contended: true };
    }
    let (incarnation, now) = (thread.incarnation, thread.now);
    let reads_count = if access.writes() { 0 } else { 0xff };
    let (mut is_new, mut is_contended) = (0, 0);
    access.each_word(|word, mask| {
        let Some(slot) = WORDS.get_ptr(slot::<SLOT_BITS>(word)) else { return };
        // SAFETY: two aligned numbers; `WordAccesses` says which are read while another thread writes them.
        let (accesses, thread_epoch) = unsafe {
            (
                (&raw const (*slot).accesses).read_volatile(),
                (&raw const (*slot).thread_epoch).read_volatile(),
            )
        };
        let covered = accesses >> 8 | accesses & reads_count;
        // Not 0 if the slot is another word's or another thread's, also one that had this one's id before: of threads
        // with one id the later has the higher thread epochs.
        let foreign = accesses >> 16 ^ tagged(access.tid, word)
            | thread_epoch >> EPOCH_BITS ^ u64::from(access.tid)
            | thread_epoch.wrapping_sub(incarnation) >> 63;
        let uncovered = foreign | mask & !covered;
        is_new |= uncovered | thread_epoch ^ now;
        // Others may have accessed the other bytes of the word before, and those that were only read.
        is_contended |= is_not_zero(accesses) & is_not_zero(uncovered);
    });
    Novelty { is_new: is_new != 0, is_contended: is_contended != 0 }
}

/// Adds an access to the table. Writes of atomic instructions are not added: a lock is released by a plain store, which
/// its acquire must not cover.
#[inline(always)]
pub fn insert(thread: &ThreadState, access: &Access) {
    access.each_word(|word, mask| insert_bytes(thread, access, word, mask));
}

/// Variant of [`insert`] for an access to one word.
#[inline(always)]
pub fn insert_word(thread: &ThreadState, access: &Access, word: u64) {
    insert_bytes(thread, access, word, access.byte_mask());
}

#[inline(always)]
fn insert_bytes(thread: &ThreadState, access: &Access, word: u64, mask: u64) {
    let Some(slot) = WORDS.get_ptr_mut(slot::<SLOT_BITS>(word)) else { return };
    let is_store = access.flags & (AccessDescriptor::WRITE | AccessDescriptor::ATOMIC)
        == AccessDescriptor::WRITE;
    let mask = if is_store { mask << 8 } else { mask };
    // SAFETY: as in `novelty`.
    unsafe {
        let (thread_epoch, accesses) = (&raw mut (*slot).thread_epoch, &raw mut (*slot).accesses);
        let before = accesses.read_volatile();
        let tag = tagged(access.tid, word);
        let foreign = is_not_zero(before >> 16 ^ tag | thread_epoch.read_volatile() ^ thread.now);
        thread_epoch.write_volatile(thread.now);
        accesses.write_volatile(tag << 16 | mask | before & 0xffff & foreign.wrapping_sub(1));
    }
}

/// Marks a word as accessed by this thread in a way that always has a record: shared for all other threads.
#[inline(always)]
pub fn mark_touched(word: u64, tid: u32) {
    let Some(slot) = WORDS.get_ptr(slot::<SLOT_BITS>(word)) else { return };
    // SAFETY: as in `novelty`.
    let thread_epoch = unsafe { (&raw const (*slot).thread_epoch).read_volatile() };
    if thread_epoch >> EPOCH_BITS != u64::from(tid) {
        mark_shared(word);
    }
}

/// Marks a word as shared: for each thread, another one has accessed it.
#[inline(always)]
pub fn mark_shared(word: u64) {
    let Some(slot) = WORDS.get_ptr_mut(slot::<SLOT_BITS>(word)) else { return };
    // SAFETY: as in `novelty`. No thread has the number 0.
    unsafe {
        (&raw mut (*slot).thread_epoch).write_volatile(0);
        (&raw mut (*slot).accesses).write_volatile(u64::MAX << 16);
    }
}

/// Marks all memory as accessed: ends the epochs of all threads.
#[inline(always)]
pub fn mark_all_touched() {
    if let Some(number) = LARGE_ACCESSES.get_ptr_mut(0) {
        // SAFETY: an aligned number; one increment is enough for two threads at once.
        unsafe { number.write_volatile(number.read_volatile() + 1) };
    }
}

/// State of a thread, created at its first access.
#[inline(always)]
pub fn thread_state(tid: u32) -> Option<&'static mut ThreadState> {
    let thread = THREADS.get_ptr_mut(tid).or_else(|| {
        // Epochs advance more slowly than this clock, so a later thread with this id gets other thread epochs.
        // SAFETY: the helper has no conditions.
        let epoch = unsafe { bpf_ktime_get_ns() } >> 8 & ((1 << EPOCH_BITS) - 1);
        let now = u64::from(tid) << EPOCH_BITS | epoch;
        let state = ThreadState { now, incarnation: now, highest_sp: 0, large_accesses: 0 };
        THREADS.insert(tid, state, 0).ok()?;
        THREADS.get_ptr_mut(tid)
    })?;
    // SAFETY: only the thread itself uses its state, and the element outlives the program.
    Some(unsafe { &mut *thread })
}

/// Incarnation of a thread that has accessed memory; 0 for any other.
#[inline(always)]
pub fn incarnation(tid: u32) -> u64 {
    // SAFETY: as in `thread_state`.
    THREADS.get_ptr(tid).map_or(0, |thread| unsafe { (*thread).incarnation })
}

/// Removes the state of a thread that ends.
#[inline(always)]
pub fn forget(tid: u32) {
    if PROBES_ACCESSES.load() != 0 {
        // A thread without accesses has none.
        let _ = THREADS.remove(tid);
    }
}

/// A word with the low bits of a thread's id above it.
#[inline(always)]
fn tagged(tid: u32, word: u64) -> u64 {
    u64::from(tid & 15) << 44 | word & ((1 << 44) - 1)
}

/// Number of a word's slot in a table of `2^BITS` slots (Fibonacci hashing).
#[inline(always)]
pub fn slot<const BITS: u32>(word: u64) -> u32 {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as u32
}
