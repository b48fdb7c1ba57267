//! Capture of memory accesses while a program runs, within the overhead that is allowed: the ranges that the user or
//! the program names, groups of instruction probes, and sampling watchpoints.

pub(crate) mod budget;
pub(crate) mod controller;
pub(crate) mod hot_regions;
pub(crate) mod sampler;
pub(crate) mod switching;
pub mod watchpoints;
