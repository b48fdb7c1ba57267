//! The parts of the `avtrace` command, as a library for its own tests: the command line, capture, recorded traces,
//! names and reports. Checking and trace formats are in `checker`, the kernel side in `ebpf`.

pub mod cli;
pub mod commands;
mod debug_files;
pub mod doctor;
pub mod explore;
mod first_pass;
mod hunt;
mod names;
pub mod offline;
mod plan_cache;
mod printer;
pub mod progress;
pub mod session;
mod status_line;
pub mod verbosity;
