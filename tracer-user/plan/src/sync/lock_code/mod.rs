//! Locks that a program makes itself, by their code: a function acquires one if every way through it waits for a word
//! in a loop, and releases one if it does little but change such a word. Where a compiler has inlined both, the places
//! are in the function around. Reads machine code; `lock_plan` places the probes, and `regions` looks for callers.

mod inline;
mod search;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rustc_hash::FxHashMap;
use symbolize::LinkAddr;

use super::{functions::Role, inline_locks::InlinedPoint};

/// Place of the lock of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockPlace {
    /// This distance in bytes from what the first argument points to.
    Argument(u64),
    /// At an address of the file.
    Static(u64),
    /// The target of a pointer that the first argument points to, as a guard has it.
    Pointee,
}

/// Function that acquires or releases a lock for its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockFunction {
    pub(crate) role: Role,
    pub(crate) place: LockPlace,
    /// Number of bytes of the lock.
    pub(crate) bytes: u64,
}

/// Locks of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockCode {
    /// By their first instructions.
    functions: BTreeMap<LinkAddr, LockFunction>,
    /// By number of the function: where it acquires a lock and where it releases it, both in line.
    inline: FxHashMap<usize, InlineLocks>,
    /// Places for probes in functions that release the lock of a guard.
    of_guards: Vec<LockPoint>,
    /// Instructions that read a word until another thread has changed it.
    polls: HashSet<u64>,
}

/// Places in a function where it acquires and releases locks in line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InlineLocks {
    /// An access of each loop that waits.
    pub(crate) acquires: BTreeSet<LinkAddr>,
    pub(crate) releases: BTreeSet<LinkAddr>,
    /// Functions that it calls to acquire locks which it releases in line, by their first instructions.
    pub(crate) called: BTreeSet<LinkAddr>,
    /// Instructions that access the lock, these included.
    pub(crate) accesses: BTreeSet<LinkAddr>,
    /// Places for probes, of the locks for which there are all.
    pub(crate) points: Vec<LockPoint>,
}

/// Place of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockPoint {
    /// The instruction that acquires or releases the lock.
    pub(crate) at: LinkAddr,
    pub(crate) acquires: bool,
    pub(crate) point: InlinedPoint,
    /// Number of bytes of the lock.
    pub(crate) bytes: u64,
}

impl LockCode {
    /// Returns the effect of the function that starts there.
    pub(crate) fn role(&self, start: LinkAddr) -> Option<Role> {
        self.functions.get(&start).map(|function| function.role)
    }

    /// Functions that acquire or release a lock, by their first instructions.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (LinkAddr, &LockFunction)> {
        self.functions.iter().map(|(&start, function)| (start, function))
    }

    /// Places for probes of locks that are acquired and released in line.
    pub(crate) fn points(&self) -> impl Iterator<Item = &LockPoint> {
        self.inline.values().flat_map(|inline| &inline.points).chain(&self.of_guards)
    }

    /// Places of a function where it acquires and releases locks in line.
    pub(crate) fn inline(&self, function: usize) -> Option<&InlineLocks> {
        self.inline.get(&function)
    }

    /// Returns true for an instruction that accesses a lock which is acquired and released in line.
    pub(crate) fn is_part(&self, instruction: LinkAddr) -> bool {
        self.inline.values().any(|inline| inline.accesses.contains(&instruction))
    }

    /// Returns true for an instruction that reads a word until another thread has changed it.
    pub(crate) fn polls(&self, instruction: u64) -> bool {
        self.polls.contains(&instruction)
    }
}
