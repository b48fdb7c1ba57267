//! Memory of child processes that are not followed: their own, in the place of what their parent shares with avtrace.
//!
//! A child may give up rights that its parent keeps. Probes in the parent follow addresses in the memory of rings, so
//! whoever can write there can have the parent write anywhere.

use std::{io, os::unix::fs::FileExt as _, sync::atomic::Ordering};

use linux::{proc, supervisor::Supervisor};

use super::image::Image;

/// Bytes of the page with the block of threads that record nothing.
const PAGE: usize = 4096;

impl Image {
    /// Replaces the memory of rings in a child process, which is held before its first instruction and has a copy of
    /// its parent's memory, by private memory with the block of threads that record nothing.
    ///
    /// A child whose parent has denied itself system calls since it has mapped the memory keeps it: a filter might end
    /// the child.
    ///
    /// # Errors
    ///
    /// When ptrace fails, the child ends, or its limits leave no room.
    pub(super) fn separate(&self, supervisor: &mut Supervisor, child: u32) -> io::Result<()> {
        /// Mode in which a process can map nothing, and has no filters.
        const STRICT: u64 = 1;
        let status = proc::Status::of_process(child)?;
        if status.seccomp() == Some(STRICT) || status.seccomp_filters() != self.filters {
            tracing::debug!(child, "shares the memory of probes with its parent: it has a filter");
            return Ok(());
        }
        let (base, layout) = (self.base().0, *self.arena().layout());
        let (kept, all) = (layout.first_segment(), layout.file_size());
        let words = self.rings.as_ref().as_ref().iter().take(PAGE / size_of::<u64>());
        let page: Vec<u8> =
            words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let memory = proc::writable_memory(child)?;
        supervisor.with_calls(child, |calls| {
            let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
            let own = calls.call(libc::SYS_mmap, [0, kept, access, private, u64::MAX, 0])?;
            memory.write_all_at(&page, own)?;
            // In one step: without avtrace the child goes on from any of them.
            let replace = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            calls.call(libc::SYS_mremap, [own, kept, kept, replace, base, 0])?;
            calls.call(libc::SYS_munmap, [base + kept, all - kept, 0, 0, 0, 0]).map(drop)
        })
    }
}
