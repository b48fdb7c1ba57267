//! Parts of the project's tasks that the benchmarks use as well: commands, set-up, paths of the workspace, checks of what
//! a kernel holds.

pub mod kernels;
pub mod process;
pub mod setup;
pub mod workspace;
