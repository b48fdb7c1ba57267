//! Probes on jumps out of functions (`longjmp`): where the stack goes to. Regions that are left that way have no end.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_get_attach_cookie, bpf_get_current_task, bpf_probe_read_user},
    macros::uprobe,
    programs::ProbeContext,
};
use tracer_ebpf::{Class, Kind, RegionRecord};

use crate::{
    debug_log,
    emit::{header, submit, traced_at},
    thread,
};

/// Where a `jmp_buf` has the stack pointer, in bytes: in glibc and in musl (`setjmp` for x86-64).
const SAVED_SP: u64 = 0x30;

/// Where the thread control block of glibc has the number that pointers are mangled with, in bytes.
const POINTER_GUARD: u64 = 0x30;

/// At the entry of a function that jumps; the first argument is the `jmp_buf`.
///
/// Kernel: 6.6 as `uprobe_multi`.
#[uprobe]
pub fn jump(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is this program's own.
    let site = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    let Some(tid) = traced_at(site) else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let sp = target(regs.rdi, regs.rsp).unwrap_or(0);
    debug_log!(&ctx, "jump: to {:x} tid {}", sp, tid);
    submit(Class::Region, RegionRecord { header: header(Kind::Jump, tid, site), sp });
    0
}

/// The stack pointer that a `jmp_buf` leads to, if it is understood: it is a little way up this very stack.
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
    let block = thread::thread_pointer(task as *const u8);
    // SAFETY: the helper checks the address.
    let guard = unsafe { bpf_probe_read_user((block + POINTER_GUARD) as *const u64) }.ok()?;
    Some(saved.rotate_right(17) ^ guard).filter(is_plausible)
}
