//! Probes beside the atomic instructions of inline locks. The cookie has the address of the lock and the condition
//! under which the operation counts.

use abi::{Class, InlinedCookie, InlinedRecord, Kind};
use aya_ebpf::{helpers::bpf_probe_read_user, macros::uprobe, programs::ProbeContext};

use crate::{
    debug_log,
    emit::{frames, header, submit, traced_at},
    epoch,
    probe::{UprobeContext as _, cookie},
    registers::registers,
};

/// Records an acquire or release at an instruction where the registers have the address of the lock. The first frame is
/// the probed instruction itself, the second one its function's caller, and the stack pointer is that of its function.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn inline_lock(ctx: ProbeContext) -> u32 {
    let cookie = InlinedCookie(cookie(&ctx));
    let operand = cookie.operand();
    let regs = ctx.registers();
    if cookie.has(InlinedCookie::CONDITIONAL) && !operand.condition().holds(regs.eflags) {
        return 0;
    }
    let Some(tid) = traced_at(cookie.0.site()) else { return 0 };
    let registers = registers(regs);
    let base = registers.get(operand.base() as u8);
    let address = if cookie.has(InlinedCookie::INDIRECT) {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user((base + operand.offset()) as *const u64) }.unwrap_or(0)
    } else {
        base + (registers.get(operand.index() as u8) << operand.scale())
    };
    debug_log!(&ctx, "inline_lock: site {} address {:x} tid {}", cookie.0.site().0, address, tid);
    // A frame pointer would be before the return address.
    let frame_pointer = match cookie.caller() {
        0 => regs.rbp,
        distance => regs.rsp + distance - 8,
    };
    let record = InlinedRecord {
        header: header(Kind::Inlined, tid, cookie.0.site()),
        eax: registers.get(0) as u32,
        epoch: epoch::end(tid),
        address,
        sp: regs.rsp,
        frames: frames(regs.rip, regs.rsp, frame_pointer),
    };
    submit(Class::Sync, record);
    0
}
