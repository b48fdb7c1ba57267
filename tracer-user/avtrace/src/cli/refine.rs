//! The command line of `refine`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

use super::{CaptureArgs, RegionsArg, RelationArg, SetAside, heading};

const EXAMPLES: &str = "\
Examples:
  avtrace refine --runs 10 ./prog --its-test
  avtrace ./prog                          shows what avtrace.toml has not

The program is run N times: one run shows one of many interleavings, so that a run without anything new says little by \
itself. Each run must go well: the tests or checks of its own pass, and it exits with status 0. Whatever is found in such \
a run is then taken to be by design, and becomes an entry of FILE, with the steps that were seen as a comment. What FILE \
holds already stays as it is, and is not found again. With --quiet M it ends after M runs in a row without anything new. \
The options of `avtrace run` that decide what is traced, checked and set aside are those of `refine`, too.

Exit status: 0 when the last run showed nothing new, 66 when it still did, 1 when a run failed or avtrace did, 2 for bad \
usage, 3 when the program cannot be traced, 126 when it cannot be executed, 127 when there is none.";

/// Options of `refine`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RefineArgs {
    /// Number of runs, at most with --quiet.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,

    /// End after M runs in a row that showed nothing new, as DoubleChecker does after 10.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..))]
    pub quiet: Option<u32>,

    /// The file that entries are added to; by default `avtrace.toml` in this directory, or in one above if it is there.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Exit with N when the last run still showed something new.
    #[arg(long, value_name = "N", default_value_t = 66, value_parser = clap::value_parser!(u8))]
    pub error_exitcode: u8,

    /// Levels of nested regions that are checked.
    #[arg(long, value_enum, default_value_t = RegionsArg::Outermost, help_heading = heading::REGIONS)]
    pub regions: RegionsArg,

    /// Dependencies that count.
    #[arg(long, value_enum, default_value_t = RelationArg::Full, help_heading = heading::CHECKING)]
    pub relation: RelationArg,

    /// Look at what FILE names, which `avtrace run --first-pass` has written, and at nothing else.
    #[arg(long, value_name = "FILE", help_heading = heading::CHECKING)]
    pub focus: Option<PathBuf>,

    /// Also write the report of each run as JSON to a new file of DIR, as `avtrace run` does.
    #[arg(long, value_name = "DIR", help_heading = heading::REPORT)]
    pub report_dir: Option<PathBuf>,

    /// Options that set defects aside.
    #[command(flatten)]
    pub set_aside: SetAside,

    /// Options of capture.
    #[command(flatten)]
    pub capture: CaptureArgs,

    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}
