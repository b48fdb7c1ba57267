//! Probes on functions that allocate and free memory. A free is recorded at the entry, before another thread can get
//! the block; an allocation at the return, where its address is known. User space interprets the records.

use abi::{AllocCookie, BlockRecord, Class, Cookie, Header, Kind};
use aya_ebpf::{
    bindings::pt_regs,
    helpers::bpf_probe_read_user,
    macros::{map, uprobe, uretprobe},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};
use ebpf::verifier::register;

use crate::{
    debug_log,
    emit::{count_lost, frames, header, return_address, submit},
    epoch,
    place::Place,
    probe::{Hit, hit},
};

/// Call that has not returned yet.
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocating {
    /// Number of bytes to allocate.
    size: u64,
    /// First argument: the old block, or a pointer to the future address of the new one.
    first: u64,
    /// Second argument: of a remapping, the size of the old block.
    second: u64,
    /// Cookie of the probe at its entry.
    cookie: u64,
}

/// Calls that have not returned yet. A function that jumps to another one has its place: the two are recorded once.
#[map]
static ALLOCATING: HashMap<Place, Allocating> = HashMap::with_max_entries(1 << 14, 0);

/// Block of memory; a size of 0 is unknown.
struct Block {
    address: u64,
    size: u64,
}

/// Caller of a function: its instruction, stack and frame pointers after the call.
struct Caller {
    ip: u64,
    sp: u64,
    bp: u64,
}

/// First arguments of a call.
struct Arguments {
    first: u64,
    second: u64,
    third: u64,
}

#[inline(always)]
fn arguments(regs: &pt_regs) -> Arguments {
    Arguments {
        first: register(&regs.rdi),
        second: register(&regs.rsi),
        third: register(&regs.rdx),
    }
}

/// Stores a call at the entry of a function that allocates memory, and records the free of a reallocated block.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn alloc_enter(ctx: ProbeContext) -> u32 {
    let Some(Hit { cookie, site, tid, regs }) = hit(&ctx) else { return 0 };
    let cookie = AllocCookie(cookie);
    let Arguments { first, second, third } = arguments(regs);
    let has = |flag: u8| cookie.has(flag);
    let (number, next) = match (has(AllocCookie::SECOND), has(AllocCookie::THIRD)) {
        (false, false) => (first, second),
        (true, false) => (second, third),
        (_, true) => (third, 0),
    };
    // A product that overflows makes the call fail.
    let size = if has(AllocCookie::PRODUCT) { number.wrapping_mul(next) } else { number };
    let sp = regs.rsp + cookie.depth();
    if has(AllocCookie::OLD) && first != 0 {
        let old = if has(AllocCookie::OLD_SIZE) { second } else { 0 };
        let caller = Caller { ip: return_address(sp), sp: sp + 8, bp: regs.rbp };
        submit_block(header(Kind::Free, tid, site), Block { address: first, size: old }, caller);
    }
    let allocating = Allocating { size, first, second, cookie: cookie.0.0 };
    if ALLOCATING.insert(Place::here(sp), allocating, 0).is_err() {
        count_lost(Class::Memory);
    }
    0
}

/// Records an allocation at the return of a function that is never unwound.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uretprobe]
pub fn alloc_return(ctx: RetProbeContext) -> u32 {
    let Some(Hit { tid, regs, .. }) = hit(&ctx) else { return 0 };
    let caller = Caller { ip: regs.rip, sp: regs.rsp, bp: regs.rbp };
    ended(tid, regs.rsp - 8, regs.rax, caller);
    0
}

/// Records an allocation at a `ret` of a function that exceptions may leave.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn alloc_end(ctx: ProbeContext) -> u32 {
    let Some(Hit { tid, regs, .. }) = hit(&ctx) else { return 0 };
    let sp = regs.rsp;
    let caller = Caller { ip: return_address(sp), sp: sp + 8, bp: regs.rbp };
    ended(tid, sp, regs.rax, caller);
    0
}

/// Records a free at the entry of the function.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn free(ctx: ProbeContext) -> u32 {
    let Some(Hit { cookie, site, tid, regs }) = hit(&ctx) else { return 0 };
    let cookie = AllocCookie(cookie);
    let Arguments { first, second, .. } = arguments(regs);
    if first == 0 {
        return 0;
    }
    debug_log!(&ctx, "free: {:x} tid {}", first, tid);
    let size = if cookie.has(AllocCookie::OLD_SIZE) { second } else { 0 };
    let sp = regs.rsp + cookie.depth();
    let caller = Caller { ip: return_address(sp), sp: sp + 8, bp: regs.rbp };
    submit_block(header(Kind::Free, tid, site), Block { address: first, size }, caller);
    0
}

/// Records the allocation of the call that was entered at this stack pointer, which returns `result`.
#[inline(always)]
fn ended(tid: u32, entry_sp: u64, result: u64, caller: Caller) {
    let place = Place::here(entry_sp);
    // SAFETY: no other program touches the entry of a stack pointer that this thread is using.
    let Some(allocating) = (unsafe { ALLOCATING.get(place) }).copied() else { return };
    let _ = ALLOCATING.remove(place);
    let Allocating { size, first, second, cookie } = allocating;
    let cookie = AllocCookie(Cookie(cookie));
    let mut address = result;
    let failed = if cookie.has(AllocCookie::INTO) {
        // SAFETY: the helper checks the address.
        address = unsafe { bpf_probe_read_user(first as *const u64) }.unwrap_or(0);
        result as i32 != 0 || address == 0
    } else if cookie.has(AllocCookie::MAPS) {
        // The C library's `MAP_FAILED`.
        result == u64::MAX
    } else {
        result == 0
    };
    if !failed {
        let header = header(Kind::Alloc, tid, cookie.0.site());
        submit_block(header, Block { address, size }, caller);
    } else if cookie.has(AllocCookie::OLD) && first != 0 && size != 0 {
        // A reallocation to no bytes has not failed.
        let old = if cookie.has(AllocCookie::OLD_SIZE) { second } else { 0 };
        let header = header(Kind::ReallocFailure, tid, cookie.0.site());
        submit_block(header, Block { address: first, size: old }, caller);
    }
}

/// Records a block.
#[inline(always)]
fn submit_block(header: Header, block: Block, caller: Caller) {
    let record = BlockRecord {
        header,
        unused: 0,
        epoch: epoch::end(header.tid),
        address: block.address,
        size: block.size,
        sp: caller.sp,
        frames: frames(caller.ip, caller.sp, caller.bp),
    };
    submit(Class::Memory, record);
}
