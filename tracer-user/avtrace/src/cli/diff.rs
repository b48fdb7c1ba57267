//! The command line of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::{ColorArg, FailOnArg, PlainFormat, heading};
use report::suppress::Glob;

const EXAMPLES: &str = "\
Examples:
  avtrace diff main.json branch.json           which defects a branch adds
  avtrace diff reports-monday reports-today    of directories of reports
  avtrace diff old.avt new.avt                 of recordings, which are checked
  avtrace diff --format json a.json b.json | jq '.new[].line'

Defects are the same if they have the same fingerprint, which is of the region, the text of the lines at both ends of the \
gap, and the subject: it stays when lines move. A defect is changed if its class, pattern, evidence or order is another \
one. To fail a run at once for what an earlier report has not, see --baseline of `avtrace run`.

Exit status: 0 when nothing is new, 66 when a defect that counts (see --fail-on) is new, or counts now and did not before; 3 \
when a file is unreadable, 2 for bad usage, 1 when avtrace failed.";

/// Options of `diff`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DiffArgs {
    /// Form of the comparison.
    #[arg(long, value_enum, default_value_t = PlainFormat::Text, help_heading = heading::REPORT)]
    pub format: PlainFormat,

    /// Write the comparison to FILE.
    #[arg(short, long, value_name = "FILE", help_heading = heading::REPORT)]
    pub output: Option<PathBuf>,

    /// Colour the text.
    #[arg(long, value_enum, default_value_t = ColorArg::Auto, help_heading = heading::REPORT)]
    pub color: ColorArg,

    /// Defects that count for the exit status.
    #[arg(long, value_enum, default_value_t = FailOnArg::Likely, help_heading = heading::COUNTS)]
    pub fail_on: FailOnArg,

    /// Exit with N when a defect that counts is new.
    #[arg(long, value_name = "N", default_value_t = 66, value_parser = clap::value_parser!(u8), help_heading = heading::COUNTS)]
    pub error_exitcode: u8,

    /// Leave out the defects that a file names; as for `avtrace check`. Repeatable.
    #[arg(long, value_name = "FILE", help_heading = heading::COUNTS)]
    pub suppress: Vec<PathBuf>,

    /// Leave out the defects that are about a variable, its fields or elements. Repeatable.
    #[arg(long, value_name = "SYMBOL", value_parser = super::output::symbol, help_heading = heading::COUNTS)]
    pub ignore: Vec<Glob>,

    /// Leave out the suppressions of `avtrace.toml`.
    #[arg(long, help_heading = heading::COUNTS)]
    pub no_config: bool,

    /// The earlier report (JSON), recording (`.avt`), or directory of either.
    #[arg(value_name = "OLD")]
    pub old: PathBuf,

    /// The later one.
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
}
