//! Opening hardware breakpoints as perf events.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use aya_obj::generated::{
    HW_BREAKPOINT_RW, PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_type_id::PERF_TYPE_BREAKPOINT,
};

/// Opens a hardware breakpoint on reads and writes of `length` bytes (1, 2, 4 or 8) from `address` on, which must
/// be a multiple of `length`, in a thread and in every thread that it will create.
///
/// The kernel's own accesses on behalf of the thread do not count. Nothing is sampled: a BPF program is to be
/// attached.
///
/// Minimum kernel version: 5.13 (`inherit_thread`: child processes are left out).
///
/// # Errors
///
/// The kernel's: `ENOSPC` when the thread has four already, `EINVAL` for a bad address or length, `EACCES`
/// without privilege, `ENODEV`/`EOPNOTSUPP` on machines without breakpoints.
pub fn open_breakpoint(thread: u32, address: u64, length: u64) -> io::Result<OwnedFd> {
    // SAFETY: a structure of integers: zeros are valid.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.type_ = PERF_TYPE_BREAKPOINT as u32;
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.bp_type = HW_BREAKPOINT_RW;
    attributes.__bindgen_anon_3.bp_addr = address;
    attributes.__bindgen_anon_4.bp_len = length;
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    attributes.set_inherit(1);
    attributes.set_inherit_thread(1);
    // SAFETY: the attributes are initialised and outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attributes),
            thread as libc::pid_t,
            -1 as libc::c_int,
            -1 as libc::c_int,
            PERF_FLAG_FD_CLOEXEC as libc::c_ulong,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel returned a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether hardware breakpoints fire on this machine: some virtual machines take them and stay silent. Tried on
/// this very thread.
#[must_use]
pub fn breakpoints_work() -> bool {
    let watched = AtomicU64::new(0);
    // 0 is the calling thread.
    let Ok(event) = open_breakpoint(0, watched.as_ptr() as u64, 8) else { return false };
    for _ in 0..3 {
        watched.store(1, Ordering::Relaxed);
    }
    // Without a read format, a read gives the count alone.
    let mut count = [0; 8];
    File::from(event).read_exact(&mut count).is_ok() && u64::from_ne_bytes(count) > 0
}
