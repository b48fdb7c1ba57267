//! Hardware watchpoints: a watched variable was read or written.

use aya_ebpf::{
    bindings::bpf_perf_event_data, helpers::bpf_probe_read_user, macros::perf_event,
    programs::PerfEventContext,
};
use tracer_ebpf::{AccessRecord, Class, Kind};

use crate::{
    debug_log,
    emit::{frames, header, submit, traced_thread},
};

/// After an instruction that touched a watched range, in the thread that did it
/// (`kernel/events/hw_breakpoint.c`).
///
/// Kernel: 4.9, and 5.13 for watchpoints that threads inherit and child processes do not.
#[perf_event]
pub fn access(ctx: PerfEventContext) -> u32 {
    // SAFETY: the kernel hands a valid `bpf_perf_event_data`.
    let address = unsafe { (*ctx.ctx).addr };
    // Eight bytes from the watched address on; user space cuts them to the watched length. At the end of a
    // mapping the read fails, and the value is unknown.
    // SAFETY: the helper checks the address.
    report(&ctx, || unsafe { bpf_probe_read_user(address as *const u64) }.unwrap_or(0))
}

/// The same for a watchpoint that comes by and moves on: the value is left alone. To read it is an access to what is
/// watched, and the processor traps again, in the kernel. In a virtual machine that takes ten times as long as all the
/// rest (`exc_debug_user` in `arch/x86/kernel/traps.c` says why breakpoints stay on meanwhile).
///
/// Kernel: as [`access`].
#[perf_event]
pub fn sample(ctx: PerfEventContext) -> u32 {
    report(&ctx, || 0)
}

/// Records a hit.
#[inline(always)]
fn report(ctx: &PerfEventContext, value: impl FnOnce() -> u64) -> u32 {
    let Some(tid) = traced_thread() else { return 0 };
    // SAFETY: the kernel hands a valid `bpf_perf_event_data`.
    let bpf_perf_event_data { regs, addr, .. } = unsafe { &*ctx.ctx };
    let (address, ip, sp, bp) = (*addr, regs.rip, regs.rsp, regs.rbp);
    let value = value();
    debug_log!(ctx, "access: address {:x} ip {:x} tid {}", address, ip, tid);
    submit(
        Class::Access,
        AccessRecord {
            header: header(Kind::Access, tid, 0),
            address,
            value,
            sp,
            frames: frames(ip, sp, bp),
            flags: regs.eflags,
        },
    );
    0
}
