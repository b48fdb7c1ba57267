//! Reasons for which probes are taken out of a process that goes on.

/// Act of a program after which it can have inline probes no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// A thread has set the GS base, by which probes find their memory.
    OwnGsBase,
    /// A thread has created one that has no tracer, and shares its ring.
    UntracedThread,
    /// It has unmapped memory of probes.
    UnmappedMemory,
    /// A thread answers system calls itself (`PR_SET_SYSCALL_USER_DISPATCH`), also those of probes.
    OwnSystemCalls,
}
