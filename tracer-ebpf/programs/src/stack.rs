//! Stacks: the memory that a thread has to itself, and the ranges of it that another thread was seen to touch.
//!
//! An access to the thread's own stack makes no record, unless it is to a range that is marked as shared. Another
//! thread's access to a stack marks its range. The marks are in a table of bounded size: a later one may take the place
//! of an earlier one, which the next access of another thread makes anew.

use aya_ebpf::{
    helpers::{bpf_get_current_task, bpf_probe_read_kernel},
    macros::map,
    maps::{Array, HashMap},
};

use crate::task::layout;

/// Largest size of a stack, in bytes.
const MAX_STACK: u64 = 1 << 26;

/// Size of the red zone below the stack pointer, which leaf functions may use, in bytes.
const RED_ZONE: u64 = 128;

/// Binary logarithm of the number of bytes that are shared as one.
const RANGE_BITS: u32 = 6;

/// Binary logarithm of the number of ranges that can be marked.
const MARK_BITS: u32 = 12;

/// Marked ranges by the hash of their numbers: 32 KiB.
#[map]
static SHARED_STACK: Array<u64> = Array::with_max_entries(1 << MARK_BITS, 0);

/// Binary logarithm of the size of the pieces of memory of which the stacks of threads are known.
const PIECE_BITS: u32 = 20;

/// Pieces of memory in which the top of a thread's stack lies, by their numbers.
#[map]
static STACK_PIECES: HashMap<u64, u32> =
    HashMap::with_max_entries(1 << 12, aya_ebpf::bindings::BPF_F_NO_PREALLOC);

/// Stack that an address is on, as far as that is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// The thread's own, in a range that no other thread was seen to touch.
    Private,
    /// The thread's own, in a range that another thread has touched.
    Shared,
    /// None, or another thread's.
    Elsewhere,
}

/// Finds the stack of the current thread's access: between the stack pointer and the top of its stack. The top is the
/// kernel's `start_stack` for the first thread, and the thread pointer for others, in glibc and in musl.
#[inline(always)]
pub fn stack_of(sp: u64, address: u64, bytes: u64) -> Stack {
    let above = address.wrapping_sub(sp.wrapping_sub(RED_ZONE));
    if above > MAX_STACK + RED_ZONE {
        return Stack::Elsewhere;
    }
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task() };
    let is_below = |top: u64| sp < top && top - sp <= MAX_STACK && address < top;
    if !is_below(read(task + u64::from(layout().task_fsbase))) && !is_below(start_stack(task)) {
        return Stack::Elsewhere;
    }
    if is_marked(address) || is_marked(address + (bytes - 1)) {
        Stack::Shared
    } else {
        Stack::Private
    }
}

/// Marks the range of an access that is on another thread's stack.
#[inline(always)]
pub fn mark_shared(address: u64, bytes: u64) {
    // SAFETY: the helper has no conditions.
    let top = start_stack(unsafe { bpf_get_current_task() });
    // SAFETY: the value is not read.
    let is_on_stack = (address < top && top - address <= MAX_STACK)
        || unsafe { STACK_PIECES.get(address >> PIECE_BITS) }.is_some();
    if is_on_stack {
        mark(address);
        mark(address + (bytes - 1));
    }
}

/// Notes the stack of a new thread with this thread pointer, which is at its top.
#[inline(always)]
pub fn begins(thread_pointer: u64) {
    let piece = thread_pointer >> PIECE_BITS;
    if thread_pointer != 0 {
        // In a full table, stacks of later threads have no marks: accesses to them by other threads are not seen.
        let _ = STACK_PIECES.insert(piece, 0, 0);
        let _ = STACK_PIECES.insert(piece.wrapping_sub(1), 0, 0);
    }
}

#[inline(always)]
fn start_stack(task: u64) -> u64 {
    let layout = layout();
    read(read(task + u64::from(layout.task_mm)) + u64::from(layout.mm_start_stack))
}

#[inline(always)]
fn read(at: u64) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(at as *const u64) }.unwrap_or(0)
}

#[inline(always)]
fn slot(address: u64) -> Option<*mut u64> {
    let range = address >> RANGE_BITS;
    let hash = range.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - MARK_BITS);
    SHARED_STACK.get_ptr_mut(hash as u32)
}

#[inline(always)]
fn is_marked(address: u64) -> bool {
    // SAFETY: an aligned number.
    slot(address).is_some_and(|slot| unsafe { slot.read_volatile() } == address >> RANGE_BITS)
}

#[inline(always)]
fn mark(address: u64) {
    if let Some(slot) = slot(address) {
        // SAFETY: an aligned number.
        unsafe { slot.write_volatile(address >> RANGE_BITS) };
    }
}
