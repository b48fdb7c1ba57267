//! Memory: allocators, probes beside instructions that access memory, and variables that the user watches.

pub mod allocator_code;
mod allocator_plan;
pub mod allocators;
pub mod instructions;
mod library_calls;
pub mod options;
pub(super) mod plan;
pub mod site;
pub mod uncovered;
pub mod watch_spec;
