//! Regions: markers, functions that are regions by the user's patterns or by default, and functions that end frames
//! without a return.

mod analysis;
pub mod default_plan;
pub mod defaults;
mod detachable;
mod effects;
pub mod imported_roles;
mod inlined_regions;
pub mod known_names;
mod library_effects;
pub(super) mod line_function;
mod lock_tables;
mod marker_plan;
pub mod markers;
pub mod non_local_exits;
pub mod patterns;
pub(super) mod plan;
pub mod reason;
pub mod site;
mod source_functions;
pub(super) mod test_frameworks;
pub mod thread_starts;
mod unlocked;
