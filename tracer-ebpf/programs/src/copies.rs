//! Child processes that are not followed. `fork` copies the memory of its caller with the breakpoints of all probes
//! (`kernel/fork.c`, `dup_mmap`): user space is notified of each copy, and restores the code in it. These processes are
//! left alone otherwise.

use abi::CopyRecord;
use aya_ebpf::{
    bindings::BPF_RB_FORCE_WAKEUP,
    macros::map,
    maps::{Array, HashMap, RingBuf},
};
use ebpf::verifier::atomic_add;

use crate::{emit::process, task::Child};

/// Processes whose memory may have breakpoints that are not theirs, in the numbers of the initial PID namespace. Their
/// children inherit these. User space removes an entry some time after it has restored the code.
#[map]
static COPIES: HashMap<u32, u32> = HashMap::with_max_entries(1 << 14, 0);

/// Ring buffer with a [`CopyRecord`] for each new process, apart from the events: it must not wait until those are
/// read.
#[map]
static NEW_COPIES: RingBuf = RingBuf::with_byte_size(1 << 18, 0);

/// Number of new processes that found no room.
#[map]
static LOST_COPIES: Array<u64> = Array::with_max_entries(1, 0);

/// Emits a record of a new process that is not followed, whose parent's memory may have breakpoints.
#[inline(always)]
pub fn inherits(child: &Child) {
    // A process that finds no room here is restored all the same; only its children are not.
    let _ = COPIES.insert(child.process, 0, 0);
    if child.shares_memory() {
        return;
    }
    let record = CopyRecord {
        number: child.number,
        process: child.process,
        same_namespace: u32::from(child.same_namespace),
        unused: 0,
    };
    if let Some(mut entry) = NEW_COPIES.reserve::<CopyRecord>(0) {
        entry.write(record);
        entry.submit(BPF_RB_FORCE_WAKEUP.into());
    } else if let Some(lost) = LOST_COPIES.get_ptr_mut(0) {
        // SAFETY: the element is 8 bytes, aligned, and lives as long as the map.
        unsafe { atomic_add(lost, 1) };
    }
}

/// Returns whether the current process, which is not traced, may have breakpoints that are not its own.
#[inline(always)]
pub fn is_copy() -> bool {
    // SAFETY: the value is not read.
    unsafe { COPIES.get(process()) }.is_some()
}

/// Removes the current process, which is not traced: it has new memory, or ends.
#[inline(always)]
pub fn forget() {
    // Most processes have no entry.
    let _ = COPIES.remove(process());
}
