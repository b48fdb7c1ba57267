//! Back ends of capture: BPF programs in the kernel, and probes in the traced process itself. They attach the probes of
//! a plan and make records; the meaning of records is in `events`.

pub mod backend;
pub mod in_process;
pub mod kernel;
mod mappings;
mod probe_memory;
pub mod windows;
