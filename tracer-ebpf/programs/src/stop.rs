//! Stops of a process, during which user space attaches new probes: the signal, its record, and the probes that send
//! it. User space decides which process stops, and when it continues.

use abi::{Class, Kind, LinkerCookie, SiteId, StopRecord};
use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_probe_read_user, bpf_send_signal},
    macros::{map, uprobe},
    maps::HashMap,
    programs::ProbeContext,
};

use crate::{
    debug_log,
    emit::{Traced, header, submit_now, traced, traced_at},
    epoch,
    probe::cookie,
};

/// `SIGSTOP`.
const STOP: u32 = 19;

/// Number of stops of each process, by its id in its PID namespace. Counted before the signal is
/// sent: every process that may be stopped is here.
#[map]
static STOPPED: HashMap<u32, u32> = HashMap::with_max_entries(1 << 14, 0);

/// Number of each process's latest stop that is over: written by user space.
#[map]
static CONTINUED: HashMap<u32, u32> = HashMap::with_max_entries(1 << 14, 0);

/// Stops the current process before its next instruction; returns the number of the stop, or 0 on failure.
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

/// Stops the current process and records the reason. Where there is no room for the record the process runs on: user
/// space would not know of the stop.
pub fn stop_for(ctx: &impl EbpfContext, kind: Kind, thread: Traced) {
    submit_now(Class::Thread, || {
        let stop = stop(thread.tgid);
        debug_log!(ctx, "stop: tgid {} kind {} number {}", thread.tgid, kind as u32, stop);
        StopRecord {
            header: header(kind, thread.tid, SiteId::NONE),
            stop,
            epoch: epoch::end(thread.tid),
        }
    });
}

/// Stops the process that the cookie names.
///
/// Kernel: 5.15 (cookies), 6.6 as `uprobe_multi`.
#[uprobe]
pub fn halt(ctx: ProbeContext) -> u32 {
    let Some(thread) = traced() else { return 0 };
    if cookie(&ctx).0 == u64::from(thread.tgid) {
        let number = stop(thread.tgid);
        debug_log!(&ctx, "halt: tgid {} stop {}", thread.tgid, number);
    }
    0
}

/// Stops the process after each change of the dynamic linker's list of libraries, at the function that the linker calls
/// before and after it (`r_brk` of `<link.h>`). The cookie has the address of `r_debug`, and the plan.
///
/// Kernel: as [`halt`].
#[uprobe]
pub fn libraries(ctx: ProbeContext) -> u32 {
    /// Offset of `r_state` in bytes, and its value outside of changes (`RT_CONSISTENT`).
    const STATE: u64 = 24;
    const CONSISTENT: u32 = 0;
    let Some(thread) = traced() else { return 0 };
    let cookie = LinkerCookie(cookie(&ctx).0);
    if traced_at(SiteId::new(cookie.plan(), 0)).is_none() {
        return 0;
    }
    // SAFETY: the helper checks the address.
    let state = unsafe { bpf_probe_read_user((cookie.list() + STATE) as *const u32) };
    // A list that cannot be read may be consistent.
    if state.unwrap_or(CONSISTENT) == CONSISTENT {
        stop_for(&ctx, Kind::Libraries, thread);
    }
    0
}
