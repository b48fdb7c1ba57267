//! Epochs of threads: decides which accesses are repetitions: they add no new order and need no record.
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
use ebpf::table::{
    Access, EPOCH_BITS, MAX_BYTES, ThreadEpochs, ThreadState, WordAccesses, slot, thread_and_epoch,
};

/// Set if memory instructions are probed.
#[unsafe(no_mangle)]
pub static PROBES_ACCESSES: Global<u32> = Global::new(0);

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

/// Binary logarithm of the number of slots.
const SLOT_BITS: u32 = 19;

/// The table of words: 8 MiB.
#[map]
static WORDS: Array<WordAccesses> = Array::with_max_entries(1 << SLOT_BITS, 0);

/// Number of accesses so far that were too large for the table.
#[map]
static LARGE_ACCESSES: Array<u64> = Array::with_max_entries(1, 0);

/// Ends a thread's epoch; returns the number of the new one, or 0 for a thread without accesses.
#[inline(always)]
pub fn end(tid: u32) -> u64 {
    if PROBES_ACCESSES.load() == 0 {
        return 0;
    }
    let Some(thread) = THREADS.get_ptr_mut(tid) else { return 0 };
    // SAFETY: only the thread itself changes its state, and the element outlives the program.
    unsafe {
        (*thread).epochs.now += 1;
        (*thread).highest_sp = 0;
        thread_and_epoch((*thread).epochs.now).1
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
        thread.epochs.now += 1;
    }
    if access.bytes > MAX_BYTES {
        return Novelty { is_new: true, is_contended: true };
    }
    let epochs = thread.epochs;
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
        let content = WordAccesses { thread_epoch, accesses };
        let (new, contended) = content.compare(epochs, access, word, mask);
        is_new |= new;
        is_contended |= contended;
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
    // SAFETY: as in `novelty`.
    unsafe {
        let (thread_epoch, accesses) = (&raw mut (*slot).thread_epoch, &raw mut (*slot).accesses);
        let accesses_before = accesses.read_volatile();
        let before =
            WordAccesses { thread_epoch: thread_epoch.read_volatile(), accesses: accesses_before };
        let after = before.after(thread.epochs.now, access, word, mask);
        thread_epoch.write_volatile(after.thread_epoch);
        accesses.write_volatile(after.accesses);
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
    // SAFETY: as in `novelty`.
    unsafe {
        (&raw mut (*slot).thread_epoch).write_volatile(WordAccesses::SHARED.thread_epoch);
        (&raw mut (*slot).accesses).write_volatile(WordAccesses::SHARED.accesses);
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
        let state = ThreadState {
            epochs: ThreadEpochs { now, incarnation: now },
            highest_sp: 0,
            large_accesses: 0,
        };
        // The lookup fails where this does. A branch on its result is compiled to a read of a register that the call
        // has overwritten, which the verifier refuses.
        let _ = THREADS.insert(tid, state, 0);
        THREADS.get_ptr_mut(tid)
    })?;
    // SAFETY: only the thread itself uses its state, and the element outlives the program.
    Some(unsafe { &mut *thread })
}

/// Incarnation of a thread that has accessed memory; 0 for any other.
#[inline(always)]
pub fn incarnation(tid: u32) -> u64 {
    // SAFETY: as in `thread_state`.
    THREADS.get_ptr(tid).map_or(0, |thread| unsafe { (*thread).epochs.incarnation })
}

/// Removes the state of a thread that ends.
#[inline(always)]
pub fn forget(tid: u32) {
    if PROBES_ACCESSES.load() != 0 {
        // A thread without accesses has no epoch.
        let _ = THREADS.remove(tid);
    }
}
