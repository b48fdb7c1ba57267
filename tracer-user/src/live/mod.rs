//! The live source of events: records of the BPF programs become the checker's events. One file a concern:
//! reading the ring buffer, giving things dense ids, understanding watchpoint hits.

pub mod dedup;
pub mod deferred;
pub mod location;
pub mod memory;
pub mod reader;
pub mod region_stack;
pub mod shared_words;
pub mod source;
pub mod sync;
pub mod watchpoint_access;
pub mod words;
