//! Probes on calls of functions that synchronise: at their entries, and at their returns where the call counts only
//! then. The cookie has the meaning of the call; user space decides which functions there are.

use abi::{CallCookie, CallRecord, Class, Cookie, FRAMES, Kind, PairRecord, ReturnRecord};
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
    emit::{count_lost, frames, header_of, return_address, submit},
    epoch,
    place::Place,
    probe::{Hit, hit},
};

/// `EOWNERDEAD`: a robust mutex was acquired whose last owner died holding it.
const EOWNERDEAD: i32 = 130;

/// Call that has not returned yet.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pending {
    argument: u64,
    /// Cookie of the probe at its entry.
    cookie: u64,
    /// Frame pointer of the caller.
    bp: u64,
}

impl Pending {
    fn cookie(&self) -> CallCookie {
        CallCookie(Cookie(self.cookie))
    }
}

/// Calls that have not returned yet, by the stack pointer at their entry, which distinguishes them also where a
/// signal handler interrupts one call and makes another. The entry of a call that was unwound stays until another
/// call takes the place.
#[map]
static PENDING: HashMap<Place, Pending> = HashMap::with_max_entries(1 << 16, 0);

/// Stores a call whose return counts, at the entry or wherever the arguments are still those of the call.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn call_enter(ctx: ProbeContext) -> u32 {
    let Some(Hit { cookie, regs, .. }) = hit(&ctx) else { return 0 };
    let cookie = CallCookie(cookie);
    let mut argument = argument(cookie, regs);
    if cookie.has(CallCookie::INDIRECT) {
        // SAFETY: the helper checks the address.
        argument = unsafe { bpf_probe_read_user(argument as *const u64) }.unwrap_or(0);
    }
    let pending = Pending { argument, cookie: cookie.0.0, bp: regs.rbp };
    if PENDING.insert(Place::here(regs.rsp + cookie.depth()), pending, 0).is_err() {
        count_lost(Class::Sync);
    }
    0
}

/// Records a call at the return of a function that is never unwound.
///
/// The kernel takes the entry off the return stack before it calls this, so `ip` is the caller's again
/// (`kernel/events/uprobes.c`, `uprobe_handle_trampoline`).
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uretprobe]
pub fn call_return(ctx: RetProbeContext) -> u32 {
    let Some(Hit { tid, regs, .. }) = hit(&ctx) else { return 0 };
    let Some(pending) = take(regs.rsp - 8) else { return 0 };
    let result = regs.rax as i32;
    let cookie = pending.cookie();
    if counts(cookie, result) {
        let caller = frames_of_caller(regs.rip, regs.rsp, regs.rbp);
        submit_return(tid, cookie, result, pending.argument, &caller);
    }
    0
}

/// Records a call at a `ret` of a function that exceptions or cancellation may unwind, where no return probe is
/// allowed; or at a place inside the function that has more information than the return.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn call_end(ctx: ProbeContext) -> u32 {
    let Some(Hit { cookie: here, tid, regs, .. }) = hit(&ctx) else { return 0 };
    let here = CallCookie(here);
    let sp = regs.rsp + here.depth();
    if here.has(CallCookie::INSIDE) {
        // SAFETY: no other program touches the entry of a stack pointer that this thread is using.
        let Some(&pending) = (unsafe { PENDING.get(Place::here(sp)) }) else { return 0 };
        // `rbp` may be in use for something else by now.
        let caller = frames_of_caller(return_address(sp), sp + 8, pending.bp);
        submit_call(tid, here, pending.argument, &caller);
        return 0;
    }
    let (cookie, argument) = if here.has(CallCookie::LEAF) {
        (here, argument(here, regs))
    } else {
        // Functions share returns: the stored cookie says which function this one is of.
        let Some(pending) = take(sp) else { return 0 };
        (pending.cookie(), pending.argument)
    };
    let result = regs.rax as i32;
    if counts(cookie, result) {
        let caller = frames_of_caller(return_address(sp), sp + 8, regs.rbp);
        submit_return(tid, cookie, result, argument, &caller);
    }
    0
}

/// Records a call at the entry of a function that counts when it is called.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn call(ctx: ProbeContext) -> u32 {
    let Some(Hit { cookie, tid, regs, .. }) = hit(&ctx) else { return 0 };
    let cookie = CallCookie(cookie);
    let sp = regs.rsp + cookie.depth();
    let caller = frames_of_caller(return_address(sp), sp + 8, regs.rbp);
    let argument = argument(cookie, regs);
    debug_log!(&ctx, "call: kind {} argument {:x} tid {}", cookie.0.kind(), argument, tid);
    submit_call(tid, cookie, argument, &caller);
    0
}

/// Argument that the cookie selects.
#[inline(always)]
fn argument(cookie: CallCookie, regs: &pt_regs) -> u64 {
    let (first, second) = (register(&regs.rdi), register(&regs.rsi));
    let (third, fourth) = (register(&regs.rdx), register(&regs.rcx));
    match cookie.argument() {
        1 => first,
        2 => second,
        3 => third,
        _ => fourth,
    }
}

/// Variant of [`call`] for functions of which another argument counts as well.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn call_pair(ctx: ProbeContext) -> u32 {
    let Some(Hit { cookie, tid, regs, .. }) = hit(&ctx) else { return 0 };
    let cookie = CallCookie(cookie);
    let sp = regs.rsp + cookie.depth();
    let caller = frames_of_caller(return_address(sp), sp + 8, regs.rbp);
    let (second, third) = (register(&regs.rsi), register(&regs.rdx));
    let other = if cookie.has(CallCookie::OTHER_IS_THIRD) { third } else { second };
    debug_log!(&ctx, "pair: kind {} argument {:x} tid {}", cookie.0.kind(), regs.rdi, tid);
    let record = PairRecord {
        header: header_of(cookie.0.kind(), tid, cookie.0.site()),
        unused: 0,
        epoch: epoch::end(tid),
        argument: regs.rdi,
        sp: caller.sp,
        frames: caller.frames,
        other,
    };
    submit(class(cookie), record);
    0
}

/// Stack of the caller: its stack pointer after the return, and the return addresses from there on.
struct Caller {
    sp: u64,
    frames: [u64; FRAMES],
}

#[inline(always)]
fn frames_of_caller(ip: u64, sp: u64, bp: u64) -> Caller {
    Caller { sp, frames: frames(ip, sp, bp) }
}

/// Removes the call that was entered at this stack pointer, and returns it.
#[inline(always)]
fn take(entry_sp: u64) -> Option<Pending> {
    let place = Place::here(entry_sp);
    // SAFETY: no other program touches the entry of a stack pointer that this thread is using.
    let pending = unsafe { PENDING.get(place) }.copied()?;
    let _ = PENDING.remove(place);
    Some(pending)
}

/// Returns whether a call with this result has succeeded.
#[inline(always)]
fn counts(cookie: CallCookie, result: i32) -> bool {
    if cookie.has(CallCookie::IF_TRUE) {
        return result & 0xff != 0;
    }
    result == 0
        || cookie.has(CallCookie::ANY_RESULT)
        || (result == EOWNERDEAD && cookie.0.kind() == Kind::Acquire as u32)
}

#[inline(always)]
fn class(cookie: CallCookie) -> Class {
    const CREATE: u32 = Kind::Create as u32;
    const JOIN: u32 = Kind::Join as u32;
    if matches!(cookie.0.kind(), CREATE | JOIN) { Class::Thread } else { Class::Sync }
}

#[inline(always)]
fn submit_call(tid: u32, cookie: CallCookie, argument: u64, caller: &Caller) {
    let record = CallRecord {
        header: header_of(cookie.0.kind(), tid, cookie.0.site()),
        unused: 0,
        epoch: epoch::end(tid),
        argument,
        sp: caller.sp,
        frames: caller.frames,
    };
    submit(class(cookie), record);
}

#[inline(always)]
fn submit_return(tid: u32, cookie: CallCookie, result: i32, argument: u64, caller: &Caller) {
    let record = ReturnRecord {
        header: header_of(cookie.0.kind(), tid, cookie.0.site()),
        result,
        epoch: epoch::end(tid),
        argument,
        sp: caller.sp,
        frames: caller.frames,
    };
    submit(class(cookie), record);
}
