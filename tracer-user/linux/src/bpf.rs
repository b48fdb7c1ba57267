//! Loading programs for `uprobe_multi` links and making those links, which aya 0.14 cannot: to be dropped when
//! a version of aya that has them can be used.

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use aya_obj::generated::{
    BPF_F_SLEEPABLE, bpf_attach_type::BPF_TRACE_UPROBE_MULTI, bpf_attr, bpf_cmd, bpf_insn,
    bpf_prog_type::BPF_PROG_TYPE_KPROBE,
};

use super::apart::apart;

/// Attach to the return of the function, not to the instruction.
pub const UPROBE_MULTI_RETURN: u32 = aya_obj::generated::BPF_F_UPROBE_MULTI_RETURN;

/// A setting of the BPF programs, as aya takes it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Setting<T>(pub T);

// SAFETY: integers only, without padding: their sizes are asserted in `abi`.
unsafe impl aya::Pod for Setting<abi::Target> {}
// SAFETY: as above.
unsafe impl aya::Pod for Setting<abi::KernelLayout> {}
// SAFETY: as above.
unsafe impl aya::Pod for Setting<abi::AccessDescriptor> {}
// SAFETY: as above.
unsafe impl aya::Pod for Setting<abi::DelayPlace> {}

/// The key of a call that has not returned, as the programs have it (`tracer-ebpf/programs/src/call.rs`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallKey {
    /// The stack pointer at its entry.
    pub sp: u64,
    /// The process, as the initial PID namespace numbers it.
    pub process: u64,
}

// SAFETY: integers only, without padding.
unsafe impl aya::Pod for CallKey {}

fn bpf(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: the attributes are fully initialised, and what they point to outlives the call (the callers' duty,
    // all of them in this file).
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            std::ptr::from_mut(attributes),
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn zeroed() -> bpf_attr {
    // SAFETY: a union of structures of integers: zeros are valid.
    unsafe { std::mem::zeroed() }
}

fn owned(fd: i64) -> OwnedFd {
    // SAFETY: the kernel returned a new descriptor, which has no other owner. It fits: descriptors are `int`.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// The value of a key in a map from `u32` to `u32`.
#[must_use]
pub fn lookup(map: BorrowedFd<'_>, key: u32) -> Option<u32> {
    let mut value = 0u32;
    let mut attributes = zeroed();
    // SAFETY: the structure for commands on elements, all integers.
    let element = unsafe { &mut attributes.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = (&raw const key) as u64;
    element.__bindgen_anon_1.value = (&raw mut value) as u64;
    bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attributes).ok()?;
    Some(value)
}

/// All entries of a map from `u32` to `u32`.
#[must_use]
pub fn entries(map: BorrowedFd<'_>) -> Vec<(u32, u32)> {
    let mut entries = Vec::new();
    let mut key: Option<u32> = None;
    loop {
        let mut next = 0u32;
        let mut attributes = zeroed();
        // SAFETY: the structure for commands on elements, all integers.
        let element = unsafe { &mut attributes.__bindgen_anon_2 };
        element.map_fd = map.as_raw_fd() as u32;
        element.key = key.as_ref().map_or(0, |key| std::ptr::from_ref(key) as u64);
        element.__bindgen_anon_1.next_key = (&raw mut next) as u64;
        if bpf(bpf_cmd::BPF_MAP_GET_NEXT_KEY, &mut attributes).is_err() {
            return entries;
        }
        entries.extend(lookup(map, next).map(|value| (next, value)));
        key = Some(next);
    }
}

/// Loads a probe program that is to be attached through `uprobe_multi` links.
///
/// Minimum kernel version: 6.6.
///
/// # Errors
///
/// The kernel's error, and the verifier's log where there is one. `EINVAL` with an empty log on kernels without
/// `uprobe_multi`.
pub fn load_uprobe_multi(
    name: &str,
    instructions: &[bpf_insn],
    license: &std::ffi::CStr,
    is_sleepable: bool,
) -> Result<OwnedFd, (io::Error, String)> {
    let mut log = vec![0u8; 0];
    let mut interrupted = 0;
    loop {
        let mut attributes = zeroed();
        // SAFETY: the structure for `BPF_PROG_LOAD`, all integers.
        let load = unsafe { &mut attributes.__bindgen_anon_3 };
        load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
        load.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
        load.prog_flags = if is_sleepable { BPF_F_SLEEPABLE } else { 0 };
        load.insns = instructions.as_ptr() as u64;
        load.insn_cnt = instructions.len() as u32;
        load.license = license.as_ptr() as u64;
        // The kernel wants a terminating zero within the field.
        for (to, from) in load.prog_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from as libc::c_char;
        }
        if !log.is_empty() {
            load.log_level = 1;
            load.log_size = log.len() as u32;
            load.log_buf = log.as_mut_ptr() as u64;
        }
        match bpf(bpf_cmd::BPF_PROG_LOAD, &mut attributes) {
            Ok(fd) => return Ok(owned(fd)),
            // A signal is pending (`kernel/bpf/verifier.c`, `do_check`).
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && interrupted < 10 => {
                interrupted += 1;
            }
            // Asking for the log costs time: only when it is needed.
            Err(error) if log.is_empty() && error.raw_os_error() != Some(libc::EPERM) => {
                log.resize(1 << 20, 0);
            }
            Err(error) => {
                let length = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
                return Err((error, String::from_utf8_lossy(&log[..length]).into_owned()));
            }
        }
    }
}

/// Returns whether the kernel makes `uprobe_multi` links, for a program that was loaded for them: such a kernel refuses
/// a folder with `EBADF` (`kernel/trace/bpf_trace.c`, `bpf_uprobe_multi_link_attach`).
#[must_use]
pub fn has_uprobe_multi(program: BorrowedFd<'_>) -> bool {
    let made = attach_uprobe_multi(program, std::path::Path::new("/"), &[0], &[0], 0, None);
    made.is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
}

/// Attaches a program to many places of one file, through one link; dropping the descriptor detaches them all.
///
/// `offsets` are offsets into the file, `cookies` as many. `process` limits the probes to one process, when the
/// kernel does that right (6.10); without it they fire in every process that maps the file.
///
/// Minimum kernel version: 6.6.
///
/// # Errors
///
/// The kernel's: `EINVAL` or `ENOTSUP` for an instruction that cannot be probed; then no place is probed.
pub fn attach_uprobe_multi(
    program: BorrowedFd<'_>,
    path: &std::path::Path,
    offsets: &[u64],
    cookies: &[u64],
    flags: u32,
    process: Option<u32>,
) -> io::Result<OwnedFd> {
    use std::os::unix::ffi::OsStrExt as _;
    assert_eq!(offsets.len(), cookies.len());
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = zeroed();
    // SAFETY: the structure for `BPF_LINK_CREATE`, all integers.
    let link = unsafe { &mut attributes.link_create };
    link.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    link.attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: the member of the union for this type of link, all integers.
    let multi = unsafe { &mut link.__bindgen_anon_3.uprobe_multi };
    multi.path = path.as_ptr() as u64;
    multi.offsets = offsets.as_ptr() as u64;
    multi.cookies = cookies.as_ptr() as u64;
    multi.cnt = offsets.len() as u32;
    multi.flags = flags;
    multi.pid = process.unwrap_or(0);
    // Killed in between, this process would have to take all of it back, and could not.
    let mut made = Err(io::ErrorKind::Interrupted.into());
    apart(&mut || made = bpf(bpf_cmd::BPF_LINK_CREATE, &mut attributes));
    made.map(owned)
}

/// Attaches a program to a perf event, with a cookie that it can ask for, or 0. Dropping the descriptor detaches
/// it, and closes the event.
///
/// Minimum kernel version: 5.15 (links of perf events).
///
/// # Errors
///
/// The kernel's.
pub fn attach_perf_event(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let mut attributes = zeroed();
    // SAFETY: the structure for `BPF_LINK_CREATE`, all integers.
    let link = unsafe { &mut attributes.link_create };
    link.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    link.__bindgen_anon_2.target_fd = event.as_raw_fd() as u32;
    link.attach_type = aya_obj::generated::bpf_attach_type::BPF_PERF_EVENT as u32;
    link.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    bpf(bpf_cmd::BPF_LINK_CREATE, &mut attributes).map(owned)
}
