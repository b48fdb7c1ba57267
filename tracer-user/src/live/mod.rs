//! The live source of events: records of the BPF programs become the checker's events. One file a concern:
//! reading the ring buffer, giving things dense ids, understanding watchpoint hits.

pub mod access;
pub mod frames;
pub mod location;
pub mod memory;
pub mod moments;
pub mod reader;
pub mod sharing;
pub mod source;
pub mod sync;
pub mod told;
pub mod words;
