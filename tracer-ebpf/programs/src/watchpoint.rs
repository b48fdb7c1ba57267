//! Hits of hardware watchpoints: reads and writes of watched variables.

use abi::{Class, Kind, SiteId, WatchpointRecord};
use aya_ebpf::{
    bindings::bpf_perf_event_data,
    helpers::{bpf_get_current_task, bpf_probe_read_kernel, bpf_probe_read_user},
    macros::perf_event,
    programs::PerfEventContext,
};

use crate::{
    debug_log,
    emit::{frames, header, return_address, submit, traced_thread},
    epoch, ownership,
    task::layout,
};

/// Records an access to a watched range, after the instruction and in its thread (`kernel/events/hw_breakpoint.c`).
///
/// Kernel: 4.9, and 5.13 for watchpoints that threads inherit and child processes do not.
#[perf_event]
pub fn watchpoint(ctx: PerfEventContext) -> u32 {
    // SAFETY: the kernel passes a valid `bpf_perf_event_data`.
    let address = unsafe { (*ctx.ctx).addr };
    // Eight bytes from the watched address on, of which user space uses the watched ones. At the end of a mapping the
    // read fails, and the value is unknown.
    // SAFETY: the helper checks the address.
    report(&ctx, false, || unsafe { bpf_probe_read_user(address as *const u64) }.unwrap_or(0))
}

/// Variant of [`watchpoint`] for sampling watchpoints, which does not read the value. A read is an access to the
/// watched variable, so the processor traps again, in the kernel. In a virtual machine that takes ten times as long
/// as everything else (`exc_debug_user` in `arch/x86/kernel/traps.c` has the reason why breakpoints stay enabled
/// there).
///
/// Kernel: as [`watchpoint`].
#[perf_event]
pub fn sample(ctx: PerfEventContext) -> u32 {
    report(&ctx, true, || 0)
}

/// Records a hit.
#[inline(always)]
fn report(ctx: &PerfEventContext, is_sample: bool, value: impl FnOnce() -> u64) -> u32 {
    let Some(tid) = traced_thread() else { return 0 };
    // SAFETY: the kernel passes a valid `bpf_perf_event_data`.
    let bpf_perf_event_data { regs, addr, .. } = unsafe { &*ctx.ctx };
    let (address, ip, sp, bp) = (*addr, original_address(regs.rip), regs.rsp, regs.rbp);
    let value = value();
    debug_log!(ctx, "watchpoint: address {:x} ip {:x} tid {}", address, ip, tid);
    ownership::disown::<false>(address, tid);
    submit(
        Class::Access,
        WatchpointRecord {
            header: header(Kind::Watchpoint, tid, SiteId::NONE),
            is_sample: is_sample.into(),
            epoch: epoch::end(tid),
            address,
            value,
            sp,
            frames: frames(ip, sp, bp),
            flags: regs.eflags,
            // The return address of a call in a copy is corrected after this.
            top: original_address(return_address(sp)),
        },
    );
    ownership::disown::<true>(address, tid);
    0
}

/// The longest instruction, in bytes.
const LONGEST: u64 = 15;

/// Address of an instruction in the program's code. The kernel executes a probed instruction in a copy elsewhere
/// (`kernel/events/uprobes.c`, `xol_get_insn_slot`).
#[inline(always)]
fn original_address(ip: u64) -> u64 {
    let layout = layout();
    // SAFETY: the helper checks the address.
    let read = |at: u64| unsafe { bpf_probe_read_kernel(at as *const u64) }.unwrap_or(0);
    // SAFETY: the helper has no conditions.
    let task = unsafe { bpf_get_current_task() };
    let utask = read(task + u64::from(layout.task_utask));
    if utask == 0 {
        return ip;
    }
    let copy = read(utask + u64::from(layout.utask_xol_vaddr));
    let passed = ip.wrapping_sub(copy);
    if copy == 0 || passed == 0 || passed > LONGEST {
        return ip;
    }
    read(utask + u64::from(layout.utask_vaddr)) + passed
}
