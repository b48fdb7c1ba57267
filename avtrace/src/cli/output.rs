//! Options of the report, which all commands that write one have.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::suppress::Glob;

/// Options of the report: its form, its destination, and its effect on the exit status.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// The form of the report.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Write the report to FILE.
    ///
    /// Several reports are written to it one after the other, JSON documents one a line.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Exit with N when something was found; see --fail-on.
    #[arg(long, value_name = "N", default_value_t = 66, value_parser = clap::value_parser!(u8))]
    pub error_exitcode: u8,

    /// Colour the report.
    #[arg(long, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,

    /// Show every defect in full as text: possible ones and those by design, too.
    ///
    /// Without it likely ones are shown in full, possible ones in a line each, and those by design are counted. JSON
    /// always has all.
    #[arg(long)]
    pub all: bool,

    /// Show at most N defects in full, and N in a line each; by default 10.
    #[arg(long, value_name = "N")]
    pub max: Option<usize>,

    /// Options that decide which findings count.
    #[command(flatten)]
    pub triage: Triage,
}

/// Options that decide which findings count.
#[derive(Args, Clone, Debug)]
pub struct Triage {
    /// Defects that count as found for the exit status.
    #[arg(long, value_enum, default_value_t = FailOnArg::Possible)]
    pub fail_on: FailOnArg,

    /// Set the defects aside that a file names.
    ///
    /// FILE is TOML with a table `[[suppress]]` for each: any of `region`, `subject`, `module` and `file` (patterns
    /// with `*`, `?` and `[…]`) and `fingerprint`, all of which must match, and a `reason`. Defects that are set
    /// aside are counted, entries that match nothing are listed. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub suppress: Vec<PathBuf>,

    /// Write entries for --suppress for what was found, to FILE or after the report.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub gen_suppressions: Option<PathBuf>,

    /// Set the defects aside that are about a variable, its fields or elements. Its name may have `*`, `?` and `[…]`.
    /// Repeatable.
    #[arg(long, value_name = "SYMBOL", value_parser = symbol)]
    pub ignore: Vec<Glob>,

    /// Set the defects aside that a JSON report has: only new ones count. Repeatable.
    #[arg(long, value_name = "REPORT")]
    pub baseline: Vec<PathBuf>,
}

fn symbol(text: &str) -> Result<Glob, String> {
    let mistake = "a name is needed, in which `*`, `?` and `[…]` may stand";
    if text.is_empty() {
        return Err(mistake.to_owned());
    }
    Glob::of_symbol(text).map_err(|_| mistake.to_owned())
}

/// Defects that count as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOnArg {
    /// Likely ones.
    Likely,
    /// Likely and possible ones, and runs that are not serializable.
    Possible,
    /// All, those by design as well.
    Any,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// A JSON document.
    Json,
}

/// Use of colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
