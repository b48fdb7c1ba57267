//! Allocator of this process that reports exhausted memory and exits, where the default is to abort.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    io::{self, Write as _},
    ops::Range,
    sync::OnceLock,
};

/// The system's allocator, which exits with status 1 and a message when memory is exhausted.
///
/// A program that is not released yet is killed then (`PTRACE_O_EXITKILL`); a running one continues without probes.
#[derive(Debug)]
pub struct Allocator;

// SAFETY: all is left to the system's allocator, and a null pointer is never returned.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        checked(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Has all threads allocate from one heap where address space is limited (`ulimit -v`): the C library reserves 64 MiB
/// for each further one, and would leave none for the stacks of the threads that come later.
///
/// To be called before there are threads.
pub fn adapt_to_limit() {
    // SAFETY: a structure of integers, which the call fills in.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0
            && limit.rlim_cur != libc::RLIM_INFINITY
        {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Returns the limit of a process's address space in bytes (`ulimit -v`); `None` without one.
#[must_use]
pub fn address_space_limit(process: u32) -> Option<u64> {
    limit(process, libc::RLIMIT_AS)
}

/// Returns the limit of the memory in bytes that this process may lock (`ulimit -l`); `None` without one.
#[must_use]
pub fn locked_memory_limit() -> Option<u64> {
    limit(0, libc::RLIMIT_MEMLOCK)
}

/// Returns the addresses at which a process can have memory: those below are for root alone (`vm.mmap_min_addr`), and
/// those above are the kernel's, or have no page tables (`Documentation/arch/x86/x86_64/mm.rst`, `5level-paging.rst`).
#[must_use]
pub fn possible_addresses() -> Range<u64> {
    static ADDRESSES: OnceLock<Range<u64>> = OnceLock::new();
    let addresses = ADDRESSES.get_or_init(|| {
        let lowest = fs::read_to_string("/proc/sys/vm/mmap_min_addr").ok();
        let lowest = lowest.and_then(|text| text.trim().parse().ok()).unwrap_or(4096_u64);
        // The flag is there where the kernel uses tables of five levels.
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has_five = processors.split_ascii_whitespace().any(|word| word == "la57");
        lowest.max(1)..1 << if has_five { 56 } else { 47 }
    });
    addresses.clone()
}

/// Returns the limit of the size in bytes of files that this process makes (`ulimit -f`); `None` without one.
pub(super) fn file_size_limit() -> Option<u64> {
    limit(0, libc::RLIMIT_FSIZE)
}

/// Returns a soft limit of a process, 0 for this one.
fn limit(process: u32, resource: libc::__rlimit_resource_t) -> Option<u64> {
    // SAFETY: a structure of integers, which the call fills in.
    let (result, limit) = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        let none = std::ptr::null();
        (libc::prlimit(process.cast_signed(), resource, none, &raw mut limit), limit)
    };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Checks that as much address space is left as a run takes from here on for threads, their and their
/// stacks: running out of it within the start of a thread aborts or panics inside the C library and `std`, where no
/// message of ours is printed.
///
/// # Errors
///
/// The error of `mmap`, usually `ENOMEM`.
pub fn check_headroom() -> io::Result<()> {
    const HEADROOM: usize = 32 << 20;
    // Not writable, so that it counts for the limit of address space only.
    // SAFETY: the mapping is new, is never accessed, and is removed as a whole.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mapped = libc::mmap(std::ptr::null_mut(), HEADROOM, libc::PROT_NONE, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(mapped, HEADROOM);
    }
    Ok(())
}

#[inline]
fn checked(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        exhausted(size);
    }
    memory
}

/// Says so without allocating, and exits.
#[cold]
fn exhausted(size: usize) -> ! {
    let mut line = [0_u8; 256];
    let mut rest = &mut line[..];
    // There is room.
    let _ = writeln!(
        rest,
        "avtrace: error: out of memory ({size} more bytes are not to be had): raise the limit (`ulimit -v`), or free \
         memory"
    );
    let length = 256 - rest.len();
    // SAFETY: the bytes are in a local variable; the process ends here.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), length);
        libc::_exit(1)
    }
}
