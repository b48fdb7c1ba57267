//! Protocol of ownership: accesses of a thread to memory that it has to itself are deferred until another thread comes.
//! The table of slots, the ring buffer and the walk over words are in the BPF programs (`ownership`).
//!
//! A word has the states of Octet (Bond et al., "Octet: Capturing and Controlling Cross-Thread Dependences
//! Efficiently", OOPSLA 2013): exclusive to a thread T that has written it (WrEx) or only read it (RdEx), and shared
//! (here RdSh, which includes shared writes).
//!
//! | state | access | state after | records, in their order |
//! |---|---|---|---|
//! | unowned | write of T | WrEx(T) | access |
//! | unowned | read of T | RdEx(T) | access |
//! | unowned | of several words, watchpoint hit | unowned | access |
//! | RdEx(T) | read of T, same bytes | RdEx(T) | none: deferred |
//! | RdEx(T) | read of T, other bytes | RdEx(T) | access |
//! | RdEx(T) | write of T | WrEx(T) | access |
//! | WrEx(T) | write of T, same bytes | WrEx(T) | none: deferred |
//! | WrEx(T) | read of T, of bytes written | WrEx(T) | none: deferred |
//! | WrEx(T) | access of T, other bytes | WrEx(T) | access |
//! | WrEx(T), RdEx(T) | of T to several words | as before | access |
//! | WrEx(T), RdEx(T) | write of U, first handover | WrEx(U) | deferred ones of T, access |
//! | WrEx(T), RdEx(T) | read of U, first handover | RdEx(U) | deferred ones of T, access |
//! | WrEx(T), RdEx(T) | of U, second handover ([`Environment::HANDOVERS`]) | RdSh | deferred ones of T, access |
//! | WrEx(T), RdEx(T) | of U to several words, watchpoint hit | RdSh | deferred ones of T, access |
//! | WrEx(T), RdEx(T) | of any thread, after a bypass | RdSh | deferred ones of T, access |
//! | WrEx(T), RdEx(T) | to another word of the slot, seldom | as before | access |
//! | any | to another word of the slot, in a row ([`Environment::MAX_CLAIMS`]) | unowned | deferred ones of T, access |
//! | RdSh | of any thread | RdSh | access |
//! | WrEx(T), RdEx(T), after a handover | commuting update of T | as before | access |
//! | WrEx(T), RdEx(T) | commuting update of U, first handover | RdEx(U) without bytes | deferred ones of T, access |
//!
//! RdSh is final for a word while it has its slot: each first access of an epoch gets a record. In WrEx and RdEx, a
//! new access of the owner to the same bytes is deferred: it has no event of another thread before it that the last
//! record has not, and none after it until another thread comes. So the last epoch is enough, separately for writes
//! and reads, since these differ in what they depend on. Each way out of WrEx or RdEx flushes: it emits the deferred
//! accesses before the record of the access that ends the ownership.
//!
//! Before the first handover a commuting update is a write like any other: what is deferred then is reported as one,
//! and conflicts with the first accesses of each other thread alone.
//!
//! A word that is not in its slot is unowned. After [`Environment::MAX_CLAIMS`] accesses to another word in a row the
//! slot changes to that word, which flushes as well.
//!
//! Changes of a slot are made under its lock, and so is the reservation of their records in the ring buffer: the
//! order of the records is that of the changes. A thread that fails to take the lock in time *bypasses* it: it
//! marks the slot before its reservation, and the next holder marks the word shared. An access of another thread
//! that was deferred before the mark is counted as lost, since its record may come after that of the bypassing
//! access. An access to several words disowns those of other threads before its reservation and once more after
//! it. In between it counts as bypassing, so that no other thread claims one.
//!
//! The tests execute all interleavings of a few accesses under a model checker, with mistakes in each step as well.
//! Their properties (`tests/history.rs`): each access has one record at most, which says what happened; no record of
//! another thread stands between a deferred access and the record before it that it repeats, unless a loss counts; a
//! thread begins an epoch after another one's access; two threads never use what the lock protects.

mod cells;
mod protocol;
mod slot;

use abi::LastAccess;
pub use cells::{Held, MapMemory, MapNumber, Memory, Plain, Shared};
pub use protocol::{Reservation, bypass, defer_or_reserve, disown, disown_unshown};
pub use slot::Ownership;

use crate::table::{Access, ThreadState};

/// Surroundings of the protocol: the ring buffer, the counter of lost events and the table of epochs.
pub trait Environment: Copy {
    /// Memory that slots are made of.
    type Memory: Memory;
    /// Room for the record of an access, reserved in the ring buffer.
    type Entry;

    /// Number of accesses to another word before the slot changes to it, at most 254.
    const MAX_CLAIMS: u32 = 8;
    /// Number of handovers after which a word is shared.
    const HANDOVERS: u32 = 2;

    /// Returns whether accesses of owners are deferred.
    fn is_enabled(self) -> bool;

    /// Reserves room for the record of an access, or counts it as lost. The order of reservations is the order of the
    /// records.
    fn reserve(self) -> Option<Self::Entry>;

    /// Emits deferred accesses in a record of the acting thread `tid`, or counts them as lost. They are read when there
    /// is room for the record: before, they would take room on the program's stack, of which there is little.
    fn emit(self, tid: u32, deferred: impl FnOnce() -> Deferred);

    /// Counts an access that could not be recorded in time.
    fn count_lost(self);

    /// Adds an access to the table of epochs.
    fn insert(self, thread: &ThreadState, access: &Access, word: u64);

    /// Marks a word in the table of epochs as shared.
    fn mark_shared(self, word: u64);
}

/// Deferred accesses of a word's owner.
#[derive(Clone, Copy, Debug)]
pub struct Deferred {
    /// The owner's id.
    pub owner: u64,
    /// Address of the word's first byte, a multiple of 8.
    pub address: u64,
    /// The last write.
    pub write: LastAccess,
    /// The last read.
    pub read: LastAccess,
}

#[cfg(test)]
mod tests;
