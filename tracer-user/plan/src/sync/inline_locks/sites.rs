//! Places of inlined acquires and releases, and the questions that finding them asks of its caller.

use abi::{FlagCondition, Operand};
use serde::{Deserialize, Serialize};
use x86::placement::PlaceRules;

use crate::sync::slow_paths::FastPath;

/// An inlined acquire or release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedSite {
    /// The atomic instruction.
    pub at: u64,
    /// Effect.
    pub fast: FastPath,
    /// Slow path by which it was found.
    pub slow_path: usize,
    /// Probe points: just one of them records each time.
    pub points: Vec<InlinedPoint>,
}

/// A probe point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlinedPoint {
    /// The instruction.
    pub address: u64,
    /// Address of the lock.
    pub lock: LockAddress,
    /// The condition of the flags under which it counts.
    pub condition: Option<FlagCondition>,
}

/// Computation of the address of a lock at a probe point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAddress {
    /// From registers.
    pub operand: Operand,
    /// Set if the operand is the place of the address, not the address.
    pub indirect: bool,
    /// Number to add.
    pub plus: i64,
    /// Set if the result is an address in the file.
    pub is_static: bool,
}

/// A call of a slow path of which the fast one was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecognised {
    /// The call.
    pub at: u64,
    /// The slow path.
    pub slow_path: usize,
    /// Reason.
    pub reason: UnrecognisedLock,
}

/// Reason for which the fast path before a slow one was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum UnrecognisedLock {
    /// No atomic instruction leads to the call.
    #[error("no atomic instruction was found before it")]
    NoAtomic,
    /// The operand of the atomic instruction is not followed.
    #[error("the address of the lock is unknown")]
    UnknownAddress,
    /// Other instructions are between the atomic one and the jump.
    #[error("its result is not tested at once")]
    NotTested,
    /// The jump after the atomic instruction does not decide.
    #[error("both sides of the jump after it lead there")]
    BothSides,
    /// No path leads to the jump.
    #[error("its code is not reached")]
    Unreached,
    /// The address is not in a register at the jump.
    #[error("no register has the address of the lock")]
    NoRegister,
    /// The address is in no register where a probe can be.
    #[error(
        "no instruction before it can be probed that has the address of the lock in a register"
    )]
    NoPlace,
    /// A once flag is compared otherwise.
    #[error("the flag is not compared with one value")]
    NotCompared,
}

/// Argument of a slow path that acquires a lock. If all callers have one lock, link-time optimization may leave
/// the argument out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The slow path.
    pub slow_path: usize,
    /// Set if the argument is the lock of the fast path.
    pub is_lock: bool,
    /// The lock's address in the file, if it is one.
    pub lock: Option<u64>,
}

/// Results for a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlinedLocks {
    /// Places that can be probed.
    pub sites: Vec<InlinedSite>,
    /// Calls without.
    pub unrecognised: Vec<Unrecognised>,
    /// Slow paths whose results are looked at.
    pub looked_at: Vec<usize>,
    /// Arguments of slow paths that acquire locks.
    pub passed: Vec<Passed>,
}

/// Queries about functions and about the slots that the dynamic linker fills in.
pub struct Surroundings<'code> {
    /// The slow path that starts at an address or is reached by a jump from there, by a number of the caller's, and
    /// what its fast path does.
    pub slow_path_at: &'code dyn Fn(u64) -> Option<(usize, FastPath)>,
    /// The address of the function that a slot holds.
    pub in_slot: &'code dyn Fn(u64) -> Option<u64>,
    /// The four bytes of the file that are loaded to an address.
    pub word_at: &'code dyn Fn(u64) -> Option<u32>,
    /// Returns the kind of a function that unoptimized code calls where other code has an instruction.
    pub helper_at: &'code dyn Fn(u64) -> Option<Helper>,
    /// Returns the slow path and the kind of the release, for a lock at a constant address that is released
    /// elsewhere.
    pub static_lock: &'code dyn Fn(u64) -> Option<(usize, FastPath)>,
    /// Rules of the back end for the places of probes.
    pub place_rules: PlaceRules,
}

/// A function that unoptimised code calls where other code has an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// Compares and exchanges the target of the first argument.
    CompareExchange,
    /// Changes the target of the first argument atomically in another way.
    Atomic,
    /// Loads the target of the first argument.
    Load,
    /// Computes, and does nothing to shared memory.
    Other,
}
