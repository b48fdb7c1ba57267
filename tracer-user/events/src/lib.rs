//! Live source of events: translates records of the BPF programs to the checker's events. One file a concern: reading
//! the ring buffer, assigning dense ids, decoding watchpoint hits, objects, memory.

pub mod code_map;
pub mod counters;
pub mod dedup;
pub mod deferred;
pub mod extent;
pub mod held_locks;
pub mod location;
pub mod memory;
pub mod process_code;
pub mod read_words;
pub mod region_stack;
pub mod shared_words;
pub mod source;
pub mod stream;
pub mod sync;
pub mod values;
pub mod watchpoint_access;
mod word_map;
pub mod words;
