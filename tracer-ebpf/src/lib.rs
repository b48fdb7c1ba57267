//! ABI between the BPF programs and user space: record layouts, cookies, counters and settings. Integers only, no
//! dependencies; both sides compile this library.
//!
//! Every record starts with a [`Header`]. All numbers are in the machine's byte order: both sides run on the same
//! machine, and records are never stored in this form.

#![no_std]

mod abi;

pub use abi::*;
