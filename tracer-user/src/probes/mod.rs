//! What to probe, and where in the code. Attaching is done by `kernel`.

pub mod call_points;
pub mod calls;
pub mod code_graph;
pub mod constants;
pub mod defaults;
pub mod exits;
pub mod flow;
mod function_plan;
pub mod functions;
pub mod inlined;
pub mod inlined_code;
mod inlined_plan;
mod inlined_regions;
pub mod known_names;
pub mod leaving;
mod line_function;
pub mod locks_spec;
pub mod markers;
pub mod placement;
pub mod plan;
pub mod select;
pub mod slow_paths;
pub mod tail_calls;
pub mod thread_starts;
pub mod values;
pub mod watch;
