//! What to probe, and where in the code. Attaching is done by `kernel`.

pub mod placement;
