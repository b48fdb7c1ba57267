//! The harness of the end-to-end tests: builds the programs under `programs/`, runs avtrace on them, and reads
//! its reports. The expectations are in the suites under `tests/`.
//!
//! Every run has a time limit. A run that passes it is killed with all of its process group, and fails.

pub mod capture;
pub mod machine;
pub mod process;
pub mod programs;
pub mod report;
pub mod schema;
pub mod service;
pub mod steps;
pub mod streams;
pub mod tracer;

pub use capture::folder;
pub use process::{Ended, Running};
pub use programs::{Program, c, c_by, cpp, rust};
pub use report::{Edge, Location, Report, Violation};
pub use service::Service;
pub use tracer::Avtrace;

use std::path::{Path, PathBuf};

/// The root of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is in the workspace")
        .to_owned()
}

/// Cargo's target directory, found from where the running test lies: `TARGET/PROFILE/deps/TEST`.
#[must_use]
pub fn target_dir() -> PathBuf {
    profile_dir().parent().expect("a target directory").to_owned()
}

/// The directory of the profile that the running test was built with.
pub(crate) fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the running test");
    test.ancestors().nth(2).expect("TARGET/PROFILE/deps/TEST").to_owned()
}

/// Number of runs of a program that must have the same outcome: `usual`, or the number in `AVTRACE_RUNS` if that is
/// more.
///
/// # Panics
/// When the variable is no number.
#[must_use]
pub fn runs(usual: usize) -> usize {
    let wanted = std::env::var("AVTRACE_RUNS").ok();
    wanted.map_or(usual, |wanted| usual.max(wanted.parse().expect("AVTRACE_RUNS is a number")))
}
