//! The BPF programs, one file a concern, and the maps that they share. User space interprets the records; nothing here
//! knows about transactions.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]

mod access;
mod alloc;
mod call;
mod copies;
mod delay;
mod emit;
mod epoch;
mod inline_lock;
mod jump;
mod ownership;
mod place;
mod probe;
mod region;
mod registers;
mod stack;
mod stop;
mod task;
mod thread;
mod trap;
mod watchpoint;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// License, which the kernel requires of programs that call helpers for GPL-compatible ones.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Entry point of the host build, which only clippy makes.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
