//! Probes on functions that give memory out and take it back. What is taken back is recorded before anybody can get it
//! again, at the entry; what is given out is when it is known, at the return. What that means is decided in user space.

use aya_ebpf::{
    EbpfContext as _,
    bindings::pt_regs,
    helpers::{bpf_get_attach_cookie, bpf_probe_read_user},
    macros::{map, uprobe, uretprobe},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};
use tracer_ebpf::{Class, Cookie, Kind, MemoryCall, PairRecord, SyncRecord};

use crate::{
    debug_log,
    emit::{call_header, count_lost, frames, return_address, submit, traced_at},
    place::Place,
};

/// A call that has not returned yet.
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocating {
    /// How many bytes it is to give out.
    size: u64,
    /// Its first argument: the old block, or where the address of the new one will be.
    first: u64,
    /// Its second argument, which of a mapping is the size of the old one.
    second: u64,
    /// The cookie of its entry.
    cookie: u64,
}

/// Calls that have not returned yet. What one function does by jumping to another has the place of both, and is
/// recorded once.
#[map]
static ALLOCATING: HashMap<Place, Allocating> = HashMap::with_max_entries(1 << 14, 0);

/// The arguments of a call.
struct Arguments {
    first: u64,
    second: u64,
    third: u64,
}

#[inline(always)]
fn arguments(regs: &pt_regs) -> Arguments {
    // All are read: the compiler must not choose an address in the context, which the verifier refuses.
    // SAFETY: the kernel hands a valid `pt_regs`.
    unsafe {
        Arguments {
            first: (&raw const regs.rdi).read_volatile(),
            second: (&raw const regs.rsi).read_volatile(),
            third: (&raw const regs.rdx).read_volatile(),
        }
    }
}

/// At the entry of a function that gives memory out.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn alloc_enter(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is this program's own.
    let cookie = Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let Some(tid) = traced_at(cookie.site()) else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let Arguments { first, second, third } = arguments(regs);
    let has = |flag: u8| cookie.has(flag);
    let (number, next) = match (has(MemoryCall::SECOND), has(MemoryCall::THIRD)) {
        (false, false) => (first, second),
        (true, false) => (second, third),
        (_, true) => (third, 0),
    };
    // One that overflows is refused.
    let size = if has(MemoryCall::PRODUCT) { number.wrapping_mul(next) } else { number };
    let sp = regs.rsp + cookie.depth();
    if has(MemoryCall::OLD) && first != 0 {
        let old = if has(MemoryCall::OLD_SIZE) { second } else { 0 };
        let header = call_header(Kind::Free as u16, 0, tid, cookie.site());
        submit_block(header, (first, old), (return_address(sp), sp + 8, regs.rbp));
    }
    let allocating = Allocating { size, first, second, cookie: cookie.0 };
    if ALLOCATING.insert(Place::here(sp), allocating, 0).is_err() {
        count_lost(Class::Memory);
    }
    0
}

/// When a function has returned that gives memory out, and that nothing unwinds.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uretprobe]
pub fn alloc_return(ctx: RetProbeContext) -> u32 {
    // SAFETY: the context is this program's own.
    let site = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    let Some(tid) = traced_at(site) else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    ended(tid, regs.rsp - 8, regs.rax, (regs.rip, regs.rsp, regs.rbp));
    0
}

/// At a `ret` of a function that gives memory out, and that exceptions may leave.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn alloc_end(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is this program's own.
    let site = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    let Some(tid) = traced_at(site) else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let sp = regs.rsp;
    ended(tid, sp, regs.rax, (return_address(sp), sp + 8, regs.rbp));
    0
}

/// At the entry of a function that takes memory back.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn free(ctx: ProbeContext) -> u32 {
    // SAFETY: the context is this program's own.
    let cookie = Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let Some(tid) = traced_at(cookie.site()) else { return 0 };
    // SAFETY: the kernel hands a valid `pt_regs`.
    let regs = unsafe { &*ctx.regs };
    let Arguments { first, second, .. } = arguments(regs);
    if first == 0 {
        return 0;
    }
    debug_log!(&ctx, "free: {:x} tid {}", first, tid);
    let size = if cookie.has(MemoryCall::OLD_SIZE) { second } else { 0 };
    let sp = regs.rsp + cookie.depth();
    let header = call_header(Kind::Free as u16, 0, tid, cookie.site());
    submit_block(header, (first, size), (return_address(sp), sp + 8, regs.rbp));
    0
}

/// The call that was entered at a stack pointer has returned this.
#[inline(always)]
fn ended(tid: u32, entry_sp: u64, result: u64, caller: (u64, u64, u64)) {
    let place = Place::here(entry_sp);
    // SAFETY: no other program touches the entry of a stack pointer that this thread is using.
    let Some(allocating) = (unsafe { ALLOCATING.get(place) }).copied() else { return };
    let _ = ALLOCATING.remove(place);
    let Allocating { size, first, second, cookie } = allocating;
    let cookie = Cookie(cookie);
    let mut address = result;
    let failed = if cookie.has(MemoryCall::INTO) {
        // SAFETY: the helper checks the address.
        address = unsafe { bpf_probe_read_user(first as *const u64) }.unwrap_or(0);
        result as i32 != 0 || address == 0
    } else if cookie.has(MemoryCall::MAPS) {
        // The C library's `MAP_FAILED`.
        result == u64::MAX
    } else {
        result == 0
    };
    let alloc = |detail| call_header(Kind::Alloc as u16, detail, tid, cookie.site());
    if !failed {
        submit_block(alloc(0), (address, size), caller);
    } else if cookie.has(MemoryCall::OLD) && first != 0 && size != 0 {
        // A reallocation to nothing is not one that failed.
        let old = if cookie.has(MemoryCall::OLD_SIZE) { second } else { 0 };
        submit_block(alloc(1), (first, old), caller);
    }
}

/// Records a block; the caller by its instruction, stack and frame pointers after the call.
#[inline(always)]
fn submit_block(
    header: tracer_ebpf::Header,
    (object, second): (u64, u64),
    (ip, sp, bp): (u64, u64, u64),
) {
    let call = SyncRecord { header, object, sp, frames: frames(ip, sp, bp) };
    submit(Class::Memory, PairRecord { call, second });
}
