//! Key of a call that has not returned, by which the probe at its return finds it.

use crate::emit::process;

/// Place of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Place {
    /// The stack pointer at its entry: unique among all threads of a process.
    sp: u64,
    /// The process: a child has the stacks of its parent.
    process: u64,
}

impl Place {
    /// Place of a call in the current process with this stack pointer at its entry.
    #[inline(always)]
    pub fn here(sp: u64) -> Self {
        Self { sp, process: u64::from(process()) }
    }
}
