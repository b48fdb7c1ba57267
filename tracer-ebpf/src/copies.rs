//! Child processes that are not followed. `fork` copies the memory of its caller with the breakpoints of all probes
//! (`kernel/fork.c`, `dup_mmap`): user space is notified of each copy, and restores the code in it. Nothing else is done
//! to these processes.

use aya_ebpf::{
    bindings::BPF_RB_FORCE_WAKEUP,
    macros::map,
    maps::{Array, HashMap, RingBuf},
};
use tracer_ebpf::CopyRecord;

use crate::{
    emit::{atomic_add, process},
    thread::Child,
};

/// Processes, as the initial PID namespace numbers them, whose memory may have breakpoints that are not theirs: what they
/// fork has them as well. User space removes an entry some time after the code was restored.
#[map]
static COPIES: HashMap<u32, u32> = HashMap::with_max_entries(1 << 14, 0);

/// A [`CopyRecord`] for each new process. Apart from the events: it must not wait until those are dealt with.
#[map]
static NEW_COPIES: RingBuf = RingBuf::with_byte_size(1 << 18, 0);

/// The number of new processes for which there was no room.
#[map]
static LOST_COPIES: Array<u64> = Array::with_max_entries(1, 0);

/// A process that is not followed has been created by the current one, whose memory may have breakpoints.
#[inline(always)]
pub fn inherits(child: &Child) {
    // What finds no room here is restored itself; only what it forks is not known.
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

/// Whether the current process, which is not traced, may have breakpoints that are not its own.
#[inline(always)]
pub fn is_copy() -> bool {
    // SAFETY: the value is not read.
    unsafe { COPIES.get(process()) }.is_some()
}

/// The current process, which is not traced, has other memory now, or has ended.
#[inline(always)]
pub fn forget() {
    // Most were never there.
    let _ = COPIES.remove(process());
}
