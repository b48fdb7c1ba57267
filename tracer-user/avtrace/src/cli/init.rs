//! The command line of `init` and `demo`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

const INIT: &str = "\
Examples:
  avtrace init cargo                      a runner in .cargo/config.toml
  avtrace init nextest                    a profile in .config/nextest.toml
  avtrace init ctest                      presets in CMakePresets.json
  avtrace init meson                      a test setup in meson.build
  avtrace init pytest                     a fixture in conftest.py
  avtrace init github                     a workflow in .github/workflows

It is run in the folder of the project, and prints what it has written and the command that runs the tests. What is there \
stays as it is: lines are added at the end of a file if that is possible, and otherwise printed.

Exit status: 0 when all is there, 1 when lines are left to be added or avtrace failed, 2 for bad usage.";

/// Options of `init`.
#[derive(Args, Debug)]
#[command(after_help = INIT)]
pub struct InitArgs {
    /// Runner to set up.
    #[arg(value_enum, value_name = "RUNNER")]
    pub runner: RunnerArg,
}

/// Set-ups, by what runs the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunnerArg {
    /// `cargo test`.
    Cargo,
    /// `cargo nextest run`.
    Nextest,
    /// CTest, of CMake 3.29 or newer.
    Ctest,
    /// `meson test`.
    Meson,
    /// pytest, for tests that run programs.
    Pytest,
    /// GitHub Actions, for a Rust project.
    Github,
}

const DEMO: &str = "\
Examples:
  avtrace demo                            write the example to ./bank
  avtrace demo DIR                        write it to DIR

The example is that of the guide: a transfer that is not atomic, in C. Files that are there stay as they are.

Exit status: 0, 1 when avtrace failed, 2 for bad usage.";

/// Options of `demo`.
#[derive(Args, Debug)]
#[command(after_help = DEMO)]
pub struct DemoArgs {
    /// Place of the files, made if it does not exist.
    #[arg(value_name = "DIR", default_value = "bank")]
    pub folder: PathBuf,
}
