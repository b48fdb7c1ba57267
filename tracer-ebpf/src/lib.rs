//! Kernel side of avtrace that needs no kernel: the ABI between the BPF programs and user space, and the logic of the
//! programs that can be tested on the host.
//!
//! The ABI has record layouts, cookies, counters and settings, integers only. Every record starts with a
//! [`Header`]. All numbers are in the machine's byte order: both sides run on the same machine, and records are
//! never stored in this form.

#![no_std]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[cfg(test)]
extern crate std;

mod abi;
pub mod octet;
pub mod table;
pub mod verifier;

pub use abi::*;
