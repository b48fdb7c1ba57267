//! Delivery of `SIGTRAP`: the place of the thread, the kernel's reason for the signal, and the code there. User space
//! decides who is responsible.

use abi::{Class, Kind, SiteId, TrapRecord};
use aya_ebpf::{
    helpers::{
        bpf_probe_read_kernel, bpf_probe_read_user,
        generated::{bpf_get_current_task_btf, bpf_task_pt_regs},
    },
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};

use crate::{
    debug_log,
    emit::{header, submit, traced_thread},
    epoch,
};

/// `SIGTRAP`.
const SIGTRAP: i32 = 5;

/// Offset of `si_code` in `struct kernel_siginfo`, which begins as `siginfo_t` does
/// (`include/uapi/asm-generic/siginfo.h`).
const SI_CODE: usize = 8;

/// Offset of `si_pid` of a signal that a process has sent.
const SI_PID: usize = 16;

/// Offset of `ip` in the x86-64 `struct pt_regs` (`arch/x86/include/uapi/asm/ptrace-abi.h`).
const REGS_IP: usize = 128;

/// `signal_deliver(sig, info, ka)`: runs in the thread that has dequeued the signal, before a handler is set up or the
/// process is killed (`kernel/signal.c`, `get_signal`).
///
/// Kernel: 5.15 (`bpf_task_pt_regs`).
#[raw_tracepoint]
pub fn trap(ctx: RawTracePointContext) -> i32 {
    let signal: i32 = ctx.arg(0);
    if signal != SIGTRAP {
        return 0;
    }
    let Some(tid) = traced_thread() else { return 0 };
    let info: u64 = ctx.arg(1);
    let action: u64 = ctx.arg(2);
    let si_code = kernel::<i32>(info, SI_CODE);
    // SAFETY: the helpers have no conditions; the second gets the first one's result.
    let regs = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
    let ip = kernel::<u64>(regs, REGS_IP);
    debug_log!(&ctx, "trap: tid {} code {} ip {:x}", tid, si_code, ip);
    let trap = ip.wrapping_sub(1);
    // Eight bytes at a time, since the page before or after may not be mapped.
    let before = user::<u64>(trap.wrapping_sub(8));
    let first = user::<u64>(trap);
    let second = user::<u64>(trap.wrapping_add(8));
    let bit = |word: Option<u64>, number: u32| u32::from(word.is_some()) << number;
    submit(
        Class::Thread,
        TrapRecord {
            header: header(Kind::Trap, tid, SiteId::NONE),
            si_code,
            epoch: epoch::end(tid),
            ip,
            // `sa_handler` is the first field (`include/linux/signal_types.h`).
            handler: kernel(action, 0),
            code: [
                before.unwrap_or(0),
                first.unwrap_or_else(|| user::<u8>(trap).map_or(0, u64::from)),
                second.unwrap_or(0),
            ],
            has_code: bit(before, 0) | bit(first, 1) | bit(second, 2),
            sender: kernel(info, SI_PID),
        },
    );
    0
}

/// Reads kernel memory; the default where it is not mapped.
#[inline(always)]
fn kernel<T: Copy + Default>(base: u64, offset: usize) -> T {
    // SAFETY: the helper checks the address, and returns an error if it is not mapped; then the default stays.
    unsafe { bpf_probe_read_kernel((base as *const u8).wrapping_add(offset).cast::<T>()) }
        .unwrap_or_default()
}

/// Reads memory of the program, if it is mapped.
#[inline(always)]
fn user<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}
