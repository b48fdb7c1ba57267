//! The functions of the C library that take and let go of locks and join threads. New ones are a line here.

use crate::kernel::ProbeProgram;
use tracer_ebpf::Kind;

/// A function to probe, by its exported name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// Its name in the symbol table.
    pub name: &'static str,
    /// What a call means.
    pub role: Role,
}

/// What a call of a function means. The object is the first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// When it returns 0 the lock has been taken.
    Acquire,
    /// The lock is let go of.
    Release,
    /// The lock's memory starts or ends its life: what was known of it is forgotten.
    LockReset,
    /// When it returns 0 the thread has been joined.
    Join,
}

const fn call(name: &'static str, role: Role) -> CallSpec {
    CallSpec { name, role }
}

/// All functions that are probed, in whatever module defines them.
pub const CALLS: &[CallSpec] = &[
    call("pthread_mutex_lock", Role::Acquire),
    call("pthread_mutex_trylock", Role::Acquire),
    call("pthread_mutex_timedlock", Role::Acquire),
    call("pthread_mutex_clocklock", Role::Acquire),
    call("pthread_mutex_unlock", Role::Release),
    call("pthread_mutex_init", Role::LockReset),
    call("pthread_mutex_destroy", Role::LockReset),
    call("pthread_join", Role::Join),
    call("pthread_tryjoin_np", Role::Join),
    call("pthread_timedjoin_np", Role::Join),
    call("pthread_clockjoin_np", Role::Join),
    call("thrd_join", Role::Join),
];

impl Role {
    /// Whether a call takes a lock when it succeeds.
    #[must_use]
    pub const fn takes_lock(self) -> bool {
        matches!(self, Self::Acquire)
    }

    /// Whether a call lets go of a lock.
    #[must_use]
    pub const fn lets_go(self) -> bool {
        matches!(self, Self::Release)
    }

    /// The program for the function's entry, and what it records.
    #[must_use]
    pub const fn at_entry(self) -> (ProbeProgram, Kind) {
        match self {
            Self::Acquire => (ProbeProgram::CallEnter, Kind::Acquire),
            Self::Join => (ProbeProgram::CallEnter, Kind::Join),
            Self::Release => (ProbeProgram::Release, Kind::Release),
            Self::LockReset => (ProbeProgram::Release, Kind::LockReset),
        }
    }
}
