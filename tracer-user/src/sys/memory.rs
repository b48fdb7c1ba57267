//! This process's memory. When there is no more, it says so and exits, where the default is to abort.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::Write as _,
};

/// The system's allocator, which exits with status 1 and a message when memory is exhausted.
///
/// A program that is not let go yet is killed then (`PTRACE_O_EXITKILL`), one that runs goes on without probes.
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
    // SAFETY: the bytes are those of a local variable; the process ends here.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), length);
        libc::_exit(1)
    }
}
