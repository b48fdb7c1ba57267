//! Stopping a process while user space attaches what is new to it: the signal, and the probes that send it. Which
//! process, and when it goes on, is decided in user space.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_get_attach_cookie, bpf_probe_read_user, bpf_send_signal},
    macros::{map, uprobe},
    maps::HashMap,
    programs::ProbeContext,
};
use tracer_ebpf::{Kind, LINKER_PLAN_SHIFT, SITE_BITS};

use crate::{
    debug_log,
    emit::{traced, traced_at},
    thread,
};

/// `SIGSTOP`.
const STOP: u32 = 19;

/// How often each process was stopped, by its id as its own PID namespace numbers it. Counted before it stops: who
/// looks here sees every process that may be stopped.
#[map]
static STOPPED: HashMap<u32, u32> = HashMap::with_max_entries(1 << 14, 0);

/// The number of each process's latest stop that is over: user space writes it.
#[map]
static CONTINUED: HashMap<u32, u32> = HashMap::with_max_entries(1 << 14, 0);

/// Stops the current process before its next instruction; returns the number of the stop, or 0 when it cannot be.
///
/// Kernel: 5.3 (`bpf_send_signal`).
pub fn stop(tgid: u32) -> u32 {
    // SAFETY: an aligned number that is read once; a process stops itself, one thread at a time.
    let number = unsafe { STOPPED.get(tgid) }.copied().unwrap_or(0).wrapping_add(1).max(1);
    if STOPPED.insert(tgid, number, 0).is_err() {
        return 0;
    }
    // SAFETY: the helper has no conditions.
    if unsafe { bpf_send_signal(STOP) } == 0 { number } else { 0 }
}

/// At the place where the process that the cookie names is to be stopped.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn halt(ctx: ProbeContext) -> u32 {
    let Some(thread) = traced() else { return 0 };
    // SAFETY: the context is this program's own.
    if unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32 == thread.tgid {
        let number = stop(thread.tgid);
        debug_log!(&ctx, "halt: tgid {} stop {}", thread.tgid, number);
    }
    0
}

/// At the function that the dynamic linker calls around each change of its list of libraries (`r_brk` of `<link.h>`).
/// The process stops when the list is whole again. The cookie has the address of `r_debug`, and the plan.
///
/// Kernel: as [`halt`].
#[uprobe]
pub fn libraries(ctx: ProbeContext) -> u32 {
    /// `r_state`, in bytes, and its value when nothing is going on (`RT_CONSISTENT`).
    const STATE: u64 = 24;
    const CONSISTENT: u32 = 0;
    let Some(thread) = traced() else { return 0 };
    // SAFETY: the context is this program's own.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    if traced_at(((cookie >> LINKER_PLAN_SHIFT) as u32) << SITE_BITS).is_none() {
        return 0;
    }
    let list = cookie & ((1 << LINKER_PLAN_SHIFT) - 1);
    // SAFETY: the helper checks the address.
    let state = unsafe { bpf_probe_read_user((list + STATE) as *const u32) };
    // A list that cannot be read may be whole.
    if state.unwrap_or(CONSISTENT) == CONSISTENT {
        let number = stop(thread.tgid);
        debug_log!(&ctx, "libraries: tid {} stop {}", thread.tid, number);
        thread::submit_stop(&ctx, Kind::Libraries, thread.tid, number);
    }
    0
}
