//! What to probe, and where in the code. Attaching is done by `kernel`.

pub mod call_points;
pub mod calls;
pub mod code_graph;
pub mod constants;
mod cpp_waits;
pub mod defaults;
pub mod exits;
pub mod flow;
mod function_plan;
pub mod functions;
pub mod inlined;
pub mod inlined_code;
mod inlined_plan;
mod inlined_regions;
pub mod leaving;
pub mod locks_spec;
pub mod markers;
pub mod placement;
pub mod plan;
pub mod select;
pub mod slow_paths;
mod steps_plan;
pub mod values;
pub mod watch;
