//! Synchronization: the table of functions, the points of their calls that get probes, and locks that are taken
//! inline.

mod call_plan;
pub mod call_points;
mod cpp_waits;
pub mod function_roles;
pub mod functions;
pub mod inline_locks;
mod inline_plan;
mod library_callers;
pub(crate) mod library_code;
pub(crate) mod lock_code;
pub mod lock_names;
pub(super) mod lock_plan;
pub mod lock_rule;
pub mod runtime_libraries;
pub mod rust_waits;
pub mod site;
pub mod slow_paths;
mod waits_plan;
