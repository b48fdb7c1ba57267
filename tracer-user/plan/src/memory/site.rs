//! Sites of memory: instructions that access it, and functions that give it out or take it back.

use serde::{Deserialize, Serialize};
use symbolize::ProcessAddr;
use x86::commuting::CommutingUpdate;

use super::{allocators::Allocator, instructions::Coverage};

/// Site of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemorySite {
    /// Beside an instruction that accesses memory.
    Access(AccessPlace),
    /// A function that gives memory out or takes it back.
    Allocator(AllocatorSite),
}

/// A function that gives memory out or takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatorSite {
    /// Effect on memory.
    pub role: Allocator,
    /// Set if all that its module gives out is seen: each function that does so has probes, and the size is known.
    pub is_complete: bool,
}

/// An instruction that accesses memory, and is seen from a probe nearby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessPlace {
    /// The instruction; of a library function's access, the call.
    pub instruction: ProcessAddr,
    /// The instruction after it, if it is a call.
    pub returns_to: Option<ProcessAddr>,
    /// The number of its group.
    pub group: usize,
    /// Set for an instruction that commutes with others of its kind.
    pub commuting: Option<CommutingUpdate>,
    /// Set for an exchange by which a library's function stores.
    pub stores: bool,
    /// Set for a read that is repeated until another thread has written: its word synchronises.
    pub polls: bool,
    /// Set for code of a library by which threads synchronise: its accesses may order, and are not to data.
    pub is_library: bool,
    /// Set if the probe sees the value before or after the access.
    pub sees_value: bool,
}

/// The instructions of a function that are probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessGroup {
    /// The function's name.
    pub function: String,
    /// Numbers of accesses with and without probes.
    pub coverage: Coverage,
}
