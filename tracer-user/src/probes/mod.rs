//! Plan of the probes: their places in the code, and the meaning of their records. Attaching is done by
//! `kernel`.

pub mod memory;
pub mod own_code;
pub mod plan;
pub mod regions;
pub mod sync;
