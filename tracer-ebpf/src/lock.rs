//! Probes on functions that take and let go of locks, and on joins: calls that count only when they succeed.

use aya_ebpf::{
    EbpfContext as _,
    helpers::bpf_get_attach_cookie,
    macros::{map, uprobe, uretprobe},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};
use tracer_ebpf::{Class, Kind, SyncRecord};

use crate::{
    debug_log,
    emit::{count_lost, frames, header, return_address, submit, traced_thread},
};

/// `EOWNERDEAD`: a robust mutex was taken, its last owner died with it.
const EOWNERDEAD: i32 = 130;

/// A call that has not returned yet.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pending {
    object: u64,
    site: u64,
}

/// Calls that have not returned yet, by the stack pointer at their entry: unique among all threads of a process,
/// also where a signal handler interrupts one call and makes another.
#[map]
static PENDING: HashMap<u64, Pending> = HashMap::with_max_entries(1 << 16, 0);

/// At a point in the entry of an acquiring or joining function where the argument register and the stack pointer
/// are still those of the call.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn call_enter(ctx: ProbeContext) -> u32 {
    if traced_thread().is_none() {
        return 0;
    }
    // SAFETY: the context is this program's own.
    let site = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    if PENDING.insert(regs.rsp, Pending { object: regs.rdi, site }, 0).is_err() {
        count_lost(Class::Lock);
    }
    0
}

/// When an acquiring function has returned.
///
/// The kernel takes the entry off the return stack before it calls this, so `ip` is the caller's again
/// (`kernel/events/uprobes.c`, `uprobe_handle_trampoline`).
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uretprobe]
pub fn acquire_return(ctx: RetProbeContext) -> u32 {
    let Some(tid) = traced_thread() else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let caller = frames_of_caller(regs.rip, regs.rsp, regs.rbp);
    returned(tid, regs.rsp - 8, regs.rax as i32, Kind::Acquire, Class::Lock, &caller);
    0
}

/// At a `ret` of a joining function. Those can be unwound by cancellation, so no return probe goes there.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn join_return(ctx: ProbeContext) -> u32 {
    let Some(tid) = traced_thread() else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let caller = frames_of_caller(return_address(regs.rsp), regs.rsp + 8, regs.rbp);
    returned(tid, regs.rsp, regs.rax as i32, Kind::Join, Class::Thread, &caller);
    0
}

/// At the entry of a function that lets go of a lock, or that starts or ends a lock's life.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn release(ctx: ProbeContext) -> u32 {
    let Some(tid) = traced_thread() else { return 0 };
    // SAFETY: the context is this program's own.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let Some(kind) = Kind::from_u16((cookie >> 32) as u16) else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let caller = frames_of_caller(return_address(regs.rsp), regs.rsp + 8, regs.rbp);
    debug_log!(&ctx, "release: object {:x} tid {}", regs.rdi, tid);
    submit_call(tid, cookie as u32, kind, Class::Lock, regs.rdi, &caller);
    0
}

/// The caller's stack: its stack pointer after the return, and the return addresses from it on.
struct Caller {
    sp: u64,
    frames: [u64; tracer_ebpf::FRAMES],
}

#[inline(always)]
fn frames_of_caller(ip: u64, sp: u64, bp: u64) -> Caller {
    Caller { sp, frames: frames(ip, sp, bp) }
}

#[inline(always)]
fn returned(tid: u32, entry_sp: u64, result: i32, kind: Kind, class: Class, caller: &Caller) {
    // SAFETY: no other program touches the entry of a stack pointer that this thread is using.
    let Some(&pending) = (unsafe { PENDING.get(entry_sp) }) else { return };
    let _ = PENDING.remove(entry_sp);
    if result == 0 || (result == EOWNERDEAD && matches!(kind, Kind::Acquire)) {
        submit_call(tid, pending.site as u32, kind, class, pending.object, caller);
    }
}

#[inline(always)]
fn submit_call(tid: u32, site: u32, kind: Kind, class: Class, object: u64, caller: &Caller) {
    submit(
        class,
        SyncRecord {
            header: header(kind, tid, site),
            object,
            sp: caller.sp,
            frames: caller.frames,
        },
    );
}
