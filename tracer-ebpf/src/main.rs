//! The BPF programs, one file a concern, and the maps that they share. What a record means is decided in user
//! space; nothing here knows about transactions.

#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(asm_experimental_arch))]

mod access;
mod alloc;
mod call;
mod copies;
mod emit;
mod epoch;
mod inline_lock;
mod jump;
mod ownership;
mod place;
mod region;
mod registers;
mod stop;
mod thread;
mod trap;
mod watchpoint;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Helpers that only GPL-compatible programs may call are used: the kernel wants this section.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Built for the host by clippy only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
