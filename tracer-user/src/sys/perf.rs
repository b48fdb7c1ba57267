//! Opening hardware breakpoints as perf events.

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
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
