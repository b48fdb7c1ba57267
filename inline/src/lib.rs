//! Inline probes: machine code that records an event in the traced program itself, without a trap, and the rings in
//! shared memory that it writes to. Pure: emits bytes and reads words; memory maps and stopped threads are the
//! caller's.

pub mod encoding;
pub mod layout;
