//! Capture in the traced process itself, without BPF: the tracer holds the process by ptrace, probes are machine code
//! that writes to rings in shared memory. The code of probes and the protocol of rings are in the crate `inline`.
//!
//! Two threads take part. The tracer's thread ([`Tracer`]), which ptrace binds to the process, has the events of
//! threads and processes. The checker's thread ([`InProcess`]) plans, writes probes while the process stands still,
//! and takes the records in their order, also those that the tracer makes.

mod asking;
mod attach;
mod code_places;
mod delays;
mod error;
mod handle;
mod image;
mod leak_sanitizer;
mod leave;
mod libraries;
mod module_patches;
mod own_gs;
mod records;
mod remote_file;
mod ring_sites;
pub mod ring_surroundings;
mod separation;
mod shared;
mod signal_places;
mod stacks;
mod standing;
mod starver;
mod switches;
mod tracer;
mod traps;
mod watchpoints;
mod ways_out;
mod windows;
mod withdrawal;
mod written;

pub use self::{
    error::{InProcessError, ProgramRefusal, StartError},
    handle::{Hold, InProcess},
    records::read,
    shared::Switched,
    tracer::{Attached, Followed, Left, Tracer},
};
pub use self::{starver::Starver, windows::Windows, withdrawal::Withdrawal};
