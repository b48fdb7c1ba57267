//! The parts of the `avtrace` command, as a library for its own tests: the command line, capture, names and
//! reports. Checking is in `checker`, the kernel side in `tracer-ebpf`.

pub mod cli;
pub mod kernel;
pub mod live;
pub mod probes;
pub mod report;
pub mod session;
pub mod symbolize;
pub mod sys;
