//! Delays at instructions (`run --perturb`): the thread spins in the kernel, where it can be preempted and killed, for
//! a bounded time and within a share of the time that all threads have in common.

use abi::{ALL_THREADS, DELAY_PLACES, DelayPlace, FIRST_THREAD, passes};
use aya_ebpf::{
    helpers::{bpf_get_current_task_btf, bpf_ktime_get_ns, generated::bpf_copy_from_user_task},
    macros::{map, uprobe},
    maps::{Array, HashMap},
    programs::ProbeContext,
};
use ebpf::verifier::{atomic_add, atomic_fetch_add, may_go_on};

use crate::probe::{Hit, hit};

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
    let Some(Hit { cookie, tid, regs, .. }) = hit(ctx) else { return 0 };
    let Some(place) = DELAYS.get_ptr_mut((cookie.0 >> 32) as u32) else { return 0 };
    let Some(totals) = DELAY_TOTALS.get_ptr_mut(0) else { return 0 };
    // SAFETY: these do not change once the probe is attached.
    let DelayPlace { nanoseconds, most, chance, seed, threads, .. } = unsafe { *place };
    let nanoseconds = nanoseconds.min(LONGEST);
    // SAFETY: an aligned number of the map.
    if unsafe { (&raw const (*place).hits).read_volatile() } >= most {
        return 0;
    }
    if threads != ALL_THREADS {
        // SAFETY: the fourth number of the map's value.
        let first = unsafe { totals.cast::<u64>().add(3) };
        // SAFETY: an aligned number of the map. Of threads that come at one moment any may be the first.
        let is_first = unsafe {
            if first.read_volatile() == 0 {
                first.write_volatile(tid.into());
            }
            first.read_volatile() == u64::from(tid)
        };
        if is_first != (threads == FIRST_THREAD) {
            return 0;
        }
    }
    // SAFETY: an aligned number of the map.
    let passage = unsafe { atomic_fetch_add(&raw mut (*place).passages, 1) };
    if !passes(seed, passage, chance) {
        return 0;
    }
    // SAFETY: the helper has no requirements.
    let began = unsafe { bpf_ktime_get_ns() };
    if DELAYED_THREADS.get_ptr(tid).is_none() {
        // Without room for it, it is not delayed.
        let _ = DELAYED_THREADS.insert(tid, [began, 0], 0);
    }
    let Some(thread) = DELAYED_THREADS.get_ptr_mut(tid) else { return 0 };
    // SAFETY: this thread's own numbers.
    let [since, delayed] = unsafe { *thread };
    // SAFETY: these do not change once a probe is attached.
    let [share, from, ..] = unsafe { *totals };
    if delayed > share_of(began.saturating_sub(since), share) {
        return 0;
    }
    // SAFETY: the third number of the map's value.
    let total = unsafe { totals.cast::<u64>().add(2) };
    // SAFETY: an aligned number of the map. Whoever adds first, may.
    let before = unsafe { atomic_fetch_add(total, nanoseconds) };
    if before > share_of(began.saturating_sub(from), share) {
        // SAFETY: as above.
        unsafe { atomic_add(total, nanoseconds.wrapping_neg()) };
        return 0;
    }
    // SAFETY: as above.
    if unsafe { atomic_fetch_add(&raw mut (*place).hits, 1) } >= most {
        // SAFETY: as above.
        unsafe { atomic_add(total, nanoseconds.wrapping_neg()) };
        return 0;
    }
    let end = began + nanoseconds;
    if LOOPS {
        while may_go_on() && is_before(end, regs.rsp) {}
    } else {
        for _ in 0..ROUNDS {
            if !is_before(end, regs.rsp) {
                break;
            }
        }
    }
    // SAFETY: the helper has no requirements.
    let passed = unsafe { bpf_ktime_get_ns() }.wrapping_sub(began);
    // SAFETY: as above.
    unsafe {
        atomic_add(total, passed.wrapping_sub(nanoseconds));
        atomic_add(&raw mut (*place).delayed, passed);
        (*thread)[1] = delayed.wrapping_add(passed);
    }
    0
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
