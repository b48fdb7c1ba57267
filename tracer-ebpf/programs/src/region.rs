//! Probes on markers and on the entries and exits of functions: regions begin and end, variables are named as shared.

use abi::{Class, Kind, REGISTERS, RegionRecord, RegistersRecord};
use aya_ebpf::{macros::uprobe, programs::ProbeContext};

use crate::{
    debug_log,
    emit::{header, header_of, submit},
    epoch,
    probe::{Hit, hit},
};

/// Records a region's begin or end, at a marker's nop or at an entry or possible exit of a function.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`. A nop is emulated, not single-stepped
/// (`arch/x86/kernel/uprobes.c`, `branch_setup_xol_insn`).
#[uprobe]
pub fn region(ctx: ProbeContext) -> u32 {
    let Some(Hit { cookie, site, tid, regs }) = hit(&ctx) else { return 0 };
    debug_log!(&ctx, "region: kind {} site {} tid {}", cookie.kind(), site.0, tid);
    let record = RegionRecord {
        header: header_of(cookie.kind(), tid, site),
        flags: regs.eflags as u32,
        epoch: epoch::end(tid),
        sp: regs.rsp,
    };
    submit(Class::Region, record);
    0
}

/// Records the registers at an `AVTRACE_SHARED` marker's nop.
///
/// Kernel: as [`region`].
#[uprobe]
pub fn shared(ctx: ProbeContext) -> u32 {
    let Some(Hit { site, tid, regs, .. }) = hit(&ctx) else { return 0 };
    let registers: [u64; REGISTERS.len()] = [
        regs.rax, regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8,
        regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rip,
    ];
    debug_log!(&ctx, "shared: site {} tid {}", site.0, tid);
    let record = RegistersRecord {
        header: header(Kind::Shared, tid, site),
        unused: 0,
        epoch: epoch::end(tid),
        registers,
    };
    submit(Class::Access, record);
    0
}

/// Has no effect: its probe holds the breakpoint of other probes in place.
///
/// Kernel: 6.6 as `uprobe_multi`.
#[uprobe]
pub fn anchor(_ctx: ProbeContext) -> u32 {
    0
}
