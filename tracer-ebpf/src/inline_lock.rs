//! Probes where a lock is taken or let go of in line: beside the atomic instruction. Where the lock is, and when it
//! counts, is in the cookie.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_get_attach_cookie, bpf_probe_read_user},
    macros::uprobe,
    programs::ProbeContext,
};
use tracer_ebpf::{Class, Cookie, Operand, SyncRecord};

use crate::{
    debug_log,
    emit::{call_header, frames, submit, traced_at},
    registers::registers,
};

/// At an instruction at which the registers still tell, or tell already, where the lock is. The first frame is the
/// probed instruction itself, and the stack pointer is that of its function.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn inline_lock(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is this program's own.
    let cookie = Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let operand = Operand(cookie.depth() as u16);
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    if cookie.has(Cookie::CONDITIONAL) && !holds(operand.condition(), regs.eflags) {
        return 0;
    }
    let Some(tid) = traced_at(cookie.site()) else { return 0 };
    let registers = registers(regs);
    let base = registers.get(operand.base() as u8);
    let object = if cookie.has(Cookie::INDIRECT) {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user((base + operand.offset()) as *const u64) }.unwrap_or(0)
    } else {
        base + (registers.get(operand.index() as u8) << operand.scale())
    };
    debug_log!(&ctx, "inline_lock: kind {} object {:x} tid {}", cookie.kind(), object, tid);
    let record = SyncRecord {
        header: call_header(cookie.kind(), registers.get(0) as u16, tid, cookie.site()),
        object,
        sp: regs.rsp,
        frames: frames(regs.rip, regs.rsp, regs.rbp),
    };
    submit(Class::Sync, record);
    0
}

/// Whether a condition, as it is encoded in instructions, holds of the processor's flags.
#[inline(always)]
fn holds(condition: u8, flags: u64) -> bool {
    let flag = |bit: u64| flags >> bit & 1 != 0;
    let (carry, parity, zero, sign, overflow) = (flag(0), flag(2), flag(6), flag(7), flag(11));
    let positive = match condition >> 1 {
        0 => overflow,
        1 => carry,
        2 => zero,
        3 => carry | zero,
        4 => sign,
        5 => parity,
        6 => sign != overflow,
        _ => zero | (sign != overflow),
    };
    positive != (condition & 1 != 0)
}
