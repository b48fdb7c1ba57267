//! ABI between the BPF programs and user space, one concern a file: record layouts, cookies, counters and settings. No
//! logic but packing and unpacking of integers.
//!
//! Every record starts with a [`Header`]. All numbers are in the machine's byte order: both sides run on the same
//! machine, and records are never stored in this form.

#![no_std]

#[cfg(test)]
extern crate std;

mod access;
mod condition;
mod cookie;
mod delay;
mod kind;
mod layout;
mod operand;
mod programs;
mod records;
mod site;
pub mod symbols;

pub use access::{ACCESS_GROUPS, AccessDescriptor, SAMPLES};
pub use condition::FlagCondition;
pub use cookie::{AllocCookie, CallCookie, Cookie, InlinedCookie, LinkerCookie};
pub use delay::{
    ALL_THREADS, DELAY_PLACES, DELAYS_BYTES, DelayPlace, FIRST_THREAD, OTHER_THREADS, RANDOM,
    passes,
};
#[cfg(feature = "decode")]
pub use kind::Record;
pub use kind::{CLASSES, Class, Kind};
pub use layout::{KernelLayout, Target};
pub use operand::Operand;
pub use programs::ProbeProgram;
pub use records::{
    AccessRecord, BlockRecord, CallRecord, ChildProcessRecord, CopyRecord, ExitRecord, FRAMES,
    ForkRecord, Header, InlinedRecord, JumpRecord, LastAccess, OwnedRecord, PairRecord, REGISTERS,
    RegionRecord, RegistersRecord, ReturnRecord, StopRecord, SwitchRecord, TrapRecord,
    WatchpointRecord,
};
pub use site::{PLANS, PlanNumber, SiteId};

/// Version of the ABI, changed with every layout or meaning in this library. User space refuses an object of another
/// version.
pub const ABI_VERSION: u32 = 17;
