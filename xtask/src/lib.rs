//! Parts of the project's tasks that benchmarks share: commands, set-up, paths of the workspace, and checks of a
//! kernel's state.

pub mod kernels;
pub mod process;
pub mod setup;
pub mod workspace;
