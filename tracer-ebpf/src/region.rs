//! Probes on markers and on the entries and exits of functions: a region begins or ends, a variable is named as
//! shared.

use aya_ebpf::{
    EbpfContext as _, helpers::bpf_get_attach_cookie, macros::uprobe, programs::ProbeContext,
};
use tracer_ebpf::{Class, Cookie, Header, Kind, REGISTERS, RegionRecord, RegistersRecord};

use crate::{
    debug_log,
    emit::{header, submit, traced_at},
};

/// At a begin or end marker's nop, or where a function begins or may end; the cookie tells which.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`. A nop is emulated, not single-stepped
/// (`arch/x86/kernel/uprobes.c`, `branch_setup_xol_insn`).
#[uprobe]
pub fn region(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is this program's own.
    let cookie = Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let Some(tid) = traced_at(cookie.site()) else { return 0 };
    let Some(kind) = Kind::from_u16(cookie.kind()) else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let (sp, flags) = unsafe { ((*ctx.regs).rsp, (*ctx.regs).eflags) };
    debug_log!(&ctx, "region: kind {} site {} tid {}", kind as u16, cookie.site(), tid);
    // The low half has all flags that conditional jumps look at.
    let header = Header { detail: flags as u16, ..header(kind, tid, cookie.site()) };
    submit(Class::Region, RegionRecord { header, sp });
    0
}

/// At an `AVTRACE_SHARED` marker's nop.
///
/// Kernel: as [`region`].
#[uprobe]
pub fn shared(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is this program's own.
    let site = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    let Some(tid) = traced_at(site) else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let registers: [u64; REGISTERS.len()] = [
        regs.rax, regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8,
        regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rip,
    ];
    debug_log!(&ctx, "shared: site {} tid {}", site, tid);
    submit(Class::Access, RegistersRecord { header: header(Kind::Shared, tid, site), registers });
    0
}

/// Anywhere: a probe that keeps the breakpoint of others in place.
///
/// Kernel: 6.6 as `uprobe_multi`.
#[uprobe]
pub fn anchor(_ctx: ProbeContext) -> u32 {
    0
}
