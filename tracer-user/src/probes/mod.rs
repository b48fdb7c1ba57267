//! What to probe, and where in the code. Attaching is done by `kernel`.

pub mod memory;
pub mod own_code;
pub mod plan;
pub mod regions;
pub mod sync;
