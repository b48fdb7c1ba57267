//! Logic of the BPF programs that needs no kernel, and is tested on the host.

#![no_std]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[cfg(test)]
extern crate std;

pub mod octet;
pub mod table;
pub mod verifier;
