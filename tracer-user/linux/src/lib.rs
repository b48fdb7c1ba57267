//! Everything of this crate that is `unsafe` or a raw system call. Each file wraps one facility of the kernel
//! in safe functions; no decisions are taken here.

pub mod apart;
pub mod bpf;
pub mod breakpoints;
pub mod cgroup;
pub mod controlled;
pub mod cut;
pub mod descriptors;
pub mod guardian;
pub mod ids;
pub mod mapping;
pub mod membarrier;
pub mod memory;
pub mod output;
pub mod own_end;
pub mod perf;
pub mod place;
pub mod priority;
pub mod privileged_file;
pub mod proc;
pub mod ptrace_breakpoint;
pub mod ptrace_refusal;
pub mod reader_futex;
mod request;
pub mod rights;
pub mod seized_thread;
pub mod shared_memory;
mod sigpipe;
mod spawn;
mod status;
pub mod supervisor;
pub mod test_number;
pub mod text;
pub mod time_stamp;
pub mod tracee;
pub mod user;
pub mod wake;
