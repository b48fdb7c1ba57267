//! What to probe, and where in the code. Attaching is done by `kernel`.

pub mod call_points;
pub mod calls;
pub mod constants;
pub mod flow;
pub mod markers;
pub mod placement;
pub mod plan;
pub mod watch;
