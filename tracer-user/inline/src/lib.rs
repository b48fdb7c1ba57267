//! Inline probes: machine code that records an event in the traced program itself, without a trap, and the rings in
//! shared memory that it writes to. Pure: emits bytes and reads words; memory maps and stopped threads are the
//! caller's.

pub mod arena;
pub mod cell;
pub mod clock;
pub mod encoding;
mod epochs;
pub mod gate;
pub mod layout;
pub mod memory;
pub mod merge;
#[cfg(test)]
mod model;
pub mod ring;
pub mod sites;
#[cfg(test)]
mod testing;
pub mod tracer;
pub mod trampoline;
pub mod trap_handler;
