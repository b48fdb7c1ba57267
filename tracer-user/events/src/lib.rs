//! Translates records of probes and watchpoints to events for the checker, with dense ids for threads, locations,
//! regions, variables and synchronisation objects. [`source::Source`] does this for one process. Records are read in
//! the `capture` crate; symbols are unknown here.

pub mod busiest;
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
