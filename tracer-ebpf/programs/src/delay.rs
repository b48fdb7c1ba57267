//! Delays at instructions (`run --perturb`): the thread spins in the kernel, where it can be preempted and killed, for
//! a bounded time and within a share of the time that all threads have in common.
//!
//! Other threads that are delayed run on the same processor meanwhile. From Linux 6.13 on, a program on a uprobe with
//! 64 bytes of stack or more has its stack in memory of the processor (`bpf_enable_priv_stack` in
//! `kernel/bpf/verifier.c`), also if it sleeps. There other threads overwrite it, and a thread that goes on with their
//! pointers is killed by an oops. So the programs have less stack: little is kept over a delay, and what else is needed
//! is looked up again. A test of `avtrace` checks the object.

use abi::{ALL_THREADS, DELAY_PLACES, DelayPlace, FIRST_THREAD, passes};
use aya_ebpf::{
    helpers::{bpf_get_current_task_btf, bpf_ktime_get_ns, generated::bpf_copy_from_user_task},
    macros::{map, uprobe},
    maps::{Array, HashMap},
    programs::ProbeContext,
};
use ebpf::verifier::{atomic_add, atomic_fetch_add, may_go_on};

use crate::probe::{Hit, UprobeContext as _, hit};

/// Places of delays, by the upper halves of the cookies.
#[map]
static DELAYS: Array<DelayPlace> = Array::with_max_entries(DELAY_PLACES as u32, 0);

/// Numbers that all threads have in common: the share in 2⁻³², the time from which on it is, the time in delays so far,
/// the thread that came to a place first.
#[map]
static DELAY_TOTALS: Array<[u64; 4]> = Array::with_max_entries(1, 0);

/// Time at which each thread came to a place for the first time, and its time in delays so far.
#[map]
static DELAYED_THREADS: HashMap<u32, [u64; 2]> = HashMap::with_max_entries(1 << 14, 0);

/// Longest delay in nanoseconds: signals come after it.
const LONGEST: u64 = 250_000_000;

/// Rounds of a loop that the verifier follows one by one.
const ROUNDS: u32 = 1 << 12;

/// Delays a thread for some milliseconds at most.
///
/// Kernel: 6.0 (sleepable programs on uprobes), 6.6 as `uprobe_multi`.
#[uprobe(sleepable)]
pub fn delay(ctx: ProbeContext) -> u32 {
    delay_at::<false>(&ctx)
}

/// Variant of [`delay`] for up to a quarter of a second.
///
/// Kernel: 6.9 (`may_goto` in `kernel/bpf/verifier.c`).
#[uprobe(sleepable)]
pub fn delay_long(ctx: ProbeContext) -> u32 {
    delay_at::<true>(&ctx)
}

#[inline(always)]
fn delay_at<const LOOPS: bool>(ctx: &ProbeContext) -> u32 {
    let end = admit(ctx);
    if end == 0 {
        return 0;
    }
    let stack = ctx.registers().rsp;
    if LOOPS {
        while may_go_on() && is_before(end, stack) {}
    } else {
        for _ in 0..ROUNDS {
            if !is_before(end, stack) {
                break;
            }
        }
    }
    settle(ctx, end);
    0
}

/// Decides whether the thread is delayed here, and charges the delay to it and to all threads. Returns the end of the
/// delay, or 0 for none.
#[inline(never)]
fn admit(ctx: &ProbeContext) -> u64 {
    let Some(Hit { cookie, tid, .. }) = hit(ctx) else { return 0 };
    let Some(place) = DELAYS.get_ptr_mut((cookie.0 >> 32) as u32) else { return 0 };
    let Some(totals) = DELAY_TOTALS.get_ptr_mut(0) else { return 0 };
    // SAFETY: an aligned number of the map.
    if unsafe { (&raw const (*place).hits).read_volatile() >= (*place).most } {
        return 0;
    }
    // SAFETY: it does not change once the probe is attached.
    let threads = unsafe { (*place).threads };
    // SAFETY: the fourth number of the map's value.
    let first = unsafe { totals.cast::<u64>().add(3) };
    if threads != ALL_THREADS && is_first(first, tid) != (threads == FIRST_THREAD) {
        return 0;
    }
    // SAFETY: aligned numbers of the map; the seed and the chance do not change once the probe is attached.
    if unsafe {
        let passage = atomic_fetch_add(&raw mut (*place).passages, 1);
        !passes((*place).seed, passage, (*place).chance)
    } {
        return 0;
    }
    // SAFETY: the helper has no requirements.
    let began = unsafe { bpf_ktime_get_ns() };
    if DELAYED_THREADS.get_ptr(tid).is_none() {
        // Without room for it, it is not delayed.
        let _ = DELAYED_THREADS.insert(tid, [began, 0], 0);
    }
    let Some(thread) = DELAYED_THREADS.get_ptr(tid) else { return 0 };
    // SAFETY: this thread's own numbers.
    let [since, delayed] = unsafe { *thread };
    // SAFETY: these do not change once a probe is attached.
    let [share, from, ..] = unsafe { *totals };
    if delayed > share_of(began.saturating_sub(since), share) {
        return 0;
    }
    let nanoseconds = length(place);
    // SAFETY: the third number of the map's value.
    let total = unsafe { totals.cast::<u64>().add(2) };
    // SAFETY: an aligned number of the map. Whoever adds first, may.
    let before = unsafe { atomic_fetch_add(total, nanoseconds) };
    // SAFETY: as above; `most` does not change once the probe is attached.
    let has_hits = || unsafe { atomic_fetch_add(&raw mut (*place).hits, 1) < (*place).most };
    if before > share_of(began.saturating_sub(from), share) || !has_hits() {
        // SAFETY: as above.
        unsafe { atomic_add(total, nanoseconds.wrapping_neg()) };
        return 0;
    }
    began + nanoseconds
}

/// Charges the time that a delay has taken, in place of its length. It was to end at `end`.
#[inline(never)]
fn settle(ctx: &ProbeContext, end: u64) {
    let Some(Hit { cookie, tid, .. }) = hit(ctx) else { return };
    let Some(place) = DELAYS.get_ptr_mut((cookie.0 >> 32) as u32) else { return };
    let Some(totals) = DELAY_TOTALS.get_ptr_mut(0) else { return };
    let Some(thread) = DELAYED_THREADS.get_ptr_mut(tid) else { return };
    let nanoseconds = length(place);
    // SAFETY: the helper has no requirements.
    let passed = unsafe { bpf_ktime_get_ns() }.wrapping_sub(end.wrapping_sub(nanoseconds));
    // SAFETY: aligned numbers of the maps, the third of the totals among them; those of the thread are its own.
    unsafe {
        atomic_add(totals.cast::<u64>().add(2), passed.wrapping_sub(nanoseconds));
        atomic_add(&raw mut (*place).delayed, passed);
        (*thread)[1] = (*thread)[1].wrapping_add(passed);
    }
}

/// Returns the length of delays at a place, in nanoseconds.
#[inline(always)]
fn length(place: *const DelayPlace) -> u64 {
    // SAFETY: it does not change once the probe is attached.
    unsafe { (*place).nanoseconds }.min(LONGEST)
}

/// Returns whether a thread came to a place first of all, and notes it if nobody came before. Of threads that come at
/// one moment any may be the first.
#[inline(always)]
fn is_first(first: *mut u64, tid: u32) -> bool {
    // SAFETY: an aligned number of the map.
    unsafe {
        if first.read_volatile() == 0 {
            first.write_volatile(tid.into());
        }
        first.read_volatile() == u64::from(tid)
    }
}

/// Returns the share of a time, in 2⁻³² of it, with a precision of some microseconds.
#[inline(always)]
const fn share_of(nanoseconds: u64, share: u64) -> u64 {
    // Below 2⁶⁴ for a time of half a year.
    (nanoseconds >> 12).wrapping_mul(share >> 20)
}

/// Returns whether a moment has not come yet and the thread is not being killed. Other threads get the processor
/// meanwhile: reading memory as another process does is where the kernel looks for them (`__get_user_pages` in
/// `mm/gup.c`), also one that preempts no code of its own, and where it fails for a thread that is killed.
#[inline(always)]
fn is_before(end: u64, stack: u64) -> bool {
    let mut word = 0_u64;
    // SAFETY: the pointer and the size are those of a local variable, the task is the current one.
    let failed = unsafe {
        let task = bpf_get_current_task_btf();
        bpf_copy_from_user_task((&raw mut word).cast(), 8, stack as *const _, task.cast(), 0)
    };
    // SAFETY: the helper has no requirements.
    failed == 0 && unsafe { bpf_ktime_get_ns() } < end
}
