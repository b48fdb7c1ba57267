//! Threads of an execution: their states, pending accesses and past steps.

use std::{
    collections::{HashSet, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    rc::Rc,
};

use super::image::{Place, SiteId};
use plan::sync::{functions::CallEffect, lock_names::LockUse};

/// Threads of a test.
pub(super) const MOST_THREADS: usize = 64;

/// Name of a write.
pub(super) const WRITES: &str = "writes";

/// Bytes of an access that count.
pub(super) const MOST_BYTES: u64 = 4096;

/// Identity of an operation in all executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OperationId {
    /// Thread that executes it.
    pub(super) thread: usize,
    /// Number among the operations of the thread.
    pub(super) number: usize,
    /// Number of its name.
    pub(super) name: usize,
}

/// State of a thread, as it can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It is about to do this.
    Ready {
        place: Rc<Place>,
        /// Set if it has done no new step since another thread has run.
        idle: bool,
        /// Set if it is within an operation of which it has done a part.
        inside: bool,
    },
    /// It waits in the kernel.
    Waiting,
    /// It has ended.
    Ended,
}

#[derive(Debug)]
pub(super) enum State {
    /// Its first stop has not been seen yet.
    New,
    /// It stands before a place that others can notice.
    Ready {
        pending: Pending,
        idle: bool,
    },
    /// It sleeps in the kernel.
    Waiting {
        place: Option<Pending>,
        alone: bool,
        joins: bool,
    },
    Ended,
}

/// Next access or call of a thread.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) site: SiteId,
    pub(super) place: Rc<Place>,
    pub(super) touches: Vec<Touch>,
    /// Memory that the instruction has read already, and its contents then.
    pub(super) has_read: Option<(u64, Vec<u8>)>,
}

/// Access to memory, or use of an object that synchronises.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) writes: bool,
    /// For calls, and for locks.
    pub(super) effect: Option<CallEffect>,
    /// Set for calls that fail where others wait.
    pub(super) tries: bool,
    /// Set if it reads and then writes, and others may come in between.
    pub(super) splits: bool,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: u32,
    pub(super) state: State,
    /// End of its stack; 0 before it is known.
    pub(super) stack_end: u64,
    pub(super) in_call: bool,
    /// Number of a system call that is left out, and yields.
    pub(super) yields: bool,
    pub(super) sleeps: bool,
    pub(super) joins: bool,
    pub(super) alone: bool,
    /// Operation that it is in: stack pointer at its start, 0 for markers.
    pub(super) operation: Option<(OperationId, u64)>,
    /// Operations that have begun.
    pub(super) operations: usize,
    /// Set once it has done a visible part of its operation.
    pub(super) inside: bool,
    /// Registers at its places since another thread has run or it has changed memory.
    pub(super) states: HashSet<u64>,
    /// Last place before it went to sleep.
    pub(super) last: Option<Pending>,
}

/// Access that was done, in the order of the execution.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) thread: usize,
    pub(super) operation: Option<OperationId>,
    pub(super) site: SiteId,
    pub(super) place: Rc<Place>,
    pub(super) touches: Vec<Touch>,
    /// Threads that had been created.
    pub(super) created: usize,
}

impl Touch {
    /// Makes an access to a lock the operation that it stands for.
    pub(super) const fn become_lock(&mut self, lock: LockUse) {
        self.effect = Some(match lock {
            LockUse::Acquires | LockUse::Tries => CallEffect::Acquire,
            LockUse::Releases => CallEffect::Release,
        });
        self.tries = matches!(lock, LockUse::Tries);
        (self.writes, self.splits) = (true, false);
    }

    /// Returns the addresses of the bytes that it touches, as far as they are looked at.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> + use<> {
        self.address..self.address.saturating_add(self.bytes.clamp(1, MOST_BYTES))
    }
}

impl Thread {
    pub(super) fn new(tid: u32) -> Self {
        Self {
            tid,
            state: State::New,
            stack_end: 0,
            in_call: false,
            yields: false,
            sleeps: false,
            joins: false,
            alone: false,
            operation: None,
            operations: 0,
            inside: false,
            states: HashSet::new(),
            last: None,
        }
    }
}

/// Returns whether an instruction reads memory and writes it afterwards without being atomic: on two processors
/// another thread may write in between.
pub(super) fn splits(operand: &x86::operands::Operand) -> bool {
    use abi::AccessDescriptor;
    let both = AccessDescriptor::READ | AccessDescriptor::WRITE;
    operand.flags & both == both
        && operand.flags & AccessDescriptor::ATOMIC == 0
        && !operand.is_repeated
}

pub(super) fn kind_of(touches: &[Touch]) -> &'static str {
    let only_writes = touches.iter().any(|touch| touch.writes && !touch.splits);
    if only_writes { WRITES } else { "reads" }
}

/// Returns a number for the state of a thread that does not depend on which time it is there.
pub(super) fn hash_of(registers: &libc::user_regs_struct) -> u64 {
    let mut hasher = DefaultHasher::new();
    let of = registers;
    [of.rip, of.rsp, of.rbp, of.rax, of.rbx, of.rcx, of.rdx, of.rsi, of.rdi].hash(&mut hasher);
    [of.r8, of.r9, of.r10, of.r11, of.r12, of.r13, of.r14, of.r15, of.eflags].hash(&mut hasher);
    hasher.finish()
}
