//! Probes on jumps out of functions (`longjmp`), with the stack pointer of the target: regions that are left in this
//! way have no separate end.

use abi::{Class, JumpRecord, Kind};
use aya_ebpf::{
    helpers::{bpf_get_current_task, bpf_probe_read_user},
    macros::uprobe,
    programs::ProbeContext,
};

use crate::{
    debug_log,
    emit::{header, submit},
    epoch,
    probe::{Hit, hit},
    task,
};

/// Offset of the stack pointer in a `jmp_buf`, in bytes: in glibc and in musl (`setjmp` for x86-64).
const SAVED_SP: u64 = 0x30;

/// Offset of the number that mangles pointers in the thread control block of glibc, in bytes.
const POINTER_GUARD: u64 = 0x30;

/// Records the jump at the entry of a function whose first argument is the `jmp_buf`.
///
/// Kernel: 6.6 as `uprobe_multi`.
#[uprobe]
pub fn jump(ctx: ProbeContext) -> u32 {
    let Some(Hit { site, tid, regs, .. }) = hit(&ctx) else { return 0 };
    let target_sp = target(regs.rdi, regs.rsp).unwrap_or(0);
    debug_log!(&ctx, "jump: to {:x} tid {}", target_sp, tid);
    let record = JumpRecord {
        header: header(Kind::Jump, tid, site),
        unused: 0,
        epoch: epoch::end(tid),
        target_sp,
    };
    submit(Class::Region, record);
    0
}

/// Stack pointer in a `jmp_buf`, if it is plausible: a little above the current one. glibc mangles it, musl does not.
fn target(buffer: u64, sp: u64) -> Option<u64> {
    const FAR: u64 = 1 << 30;
    let is_plausible = |to: &u64| *to & 7 == 0 && to.wrapping_sub(sp) <= FAR;
    // SAFETY: the helper checks the address.
    let saved = unsafe { bpf_probe_read_user((buffer + SAVED_SP) as *const u64) }.ok()?;
    if is_plausible(&saved) {
        return Some(saved);
    }
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task() };
    let block = task::thread_pointer(task as *const u8);
    // SAFETY: the helper checks the address.
    let guard = unsafe { bpf_probe_read_user((block + POINTER_GUARD) as *const u64) }.ok()?;
    Some(saved.rotate_right(17) ^ guard).filter(is_plausible)
}
