//! Options of the report, which all commands that write one have.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::heading;
use report::{Class, suppress::Glob};

/// Options of the report: its form, its destination, and its effect on the exit status.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// Form of the report, and its file: `text`, `json`, `sarif`, `junit`, `dot`, `trace`, `html`,
    /// `otlp`, `parquet`, `parquet-findings` or `parquet-runs`.
    ///
    /// `text` is for people, `json` has everything, `sarif` (2.1.0) is for code scanning and editors, `junit` for the
    /// test results of CI systems, `dot` draws the cycles by Graphviz, `trace` is a timeline for ui.perfetto.dev,
    /// `html` a page for browsers that needs no network; `otlp` has log events of OpenTelemetry, for a collector whose
    /// address may stand for the file (`otlp=http://localhost:4318/v1/logs`); `parquet` is a table of defects for
    /// databases, `parquet-findings` and `parquet-runs` are those of findings and of reports. Repeatable:
    /// `--format text --format html=report.html` writes both.
    #[arg(long = "format", value_name = "FORMAT[=FILE]", default_value = "text", value_parser = format_to, help_heading = heading::REPORT)]
    pub formats: Vec<FormatTo>,

    /// Write the report to FILE: that of the one --format without a file of its own.
    ///
    /// Several reports are written to it one after the other, JSON documents one a line; other forms have them in one
    /// document.
    #[arg(short, long, value_name = "FILE", help_heading = heading::REPORT)]
    pub output: Option<PathBuf>,

    /// Exit with N when something was found; see --fail-on.
    #[arg(long, value_name = "N", default_value_t = 66, value_parser = clap::value_parser!(u8), help_heading = heading::COUNTS)]
    pub error_exitcode: u8,

    /// Colour the report.
    #[arg(long, value_enum, default_value_t = ColorArg::Auto, help_heading = heading::REPORT)]
    pub color: ColorArg,

    /// Show every defect in full as text: possible ones and those by design, too.
    ///
    /// Without it likely ones are shown in full, possible ones in a line each, and those by design are counted. JSON
    /// always has all.
    #[arg(long, help_heading = heading::REPORT)]
    pub all: bool,

    /// Show at most N defects in full, and N in a line each; by default 10.
    #[arg(long, value_name = "N", help_heading = heading::REPORT)]
    pub max: Option<usize>,

    /// Show the call stack of each step as text, as far as it was recorded with that very event.
    ///
    /// Functions that were inlined are part of it. Return addresses are found along frame pointers: programs that are
    /// compiled with -fno-omit-frame-pointer (Rust: -C force-frame-pointers=yes) show up to six calls, others one.
    #[arg(long, help_heading = heading::REPORT)]
    pub stacks: bool,

    /// Leave the name of the machine out of reports.
    #[arg(long, help_heading = heading::REPORT)]
    pub no_host: bool,

    /// Options that decide which findings count.
    #[command(flatten)]
    pub triage: Triage,
}

/// Options that decide which findings count.
#[derive(Args, Clone, Debug)]
pub struct Triage {
    /// Defects that count as found for the exit status.
    ///
    /// Possible defects are in the report and change no status unless they are asked for.
    #[arg(long, value_enum, default_value_t = FailOnArg::Likely, help_heading = heading::COUNTS)]
    pub fail_on: FailOnArg,

    /// Write entries for --suppress for what was found, to FILE or after the report.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", help_heading = heading::COUNTS)]
    pub gen_suppressions: Option<PathBuf>,

    /// Options that set defects aside.
    #[command(flatten)]
    pub set_aside: SetAside,
}

/// Options that set defects aside.
#[derive(Args, Clone, Debug)]
pub struct SetAside {
    /// Set the defects aside that a file names.
    ///
    /// FILE is TOML with a table `[[suppress]]` for each: any of `region`, `subject`, `module` and `file` (patterns
    /// with `*`, `?` and `[…]`) and `fingerprint`, all of which must match, and a `reason`. Defects that are set
    /// aside are counted, entries that match nothing are listed. Repeatable.
    #[arg(long, value_name = "FILE", help_heading = heading::COUNTS)]
    pub suppress: Vec<PathBuf>,

    /// Set the defects aside that are about a variable, its fields or elements. Its name may have `*`, `?` and `[…]`.
    /// Repeatable.
    #[arg(long, value_name = "SYMBOL", value_parser = symbol, help_heading = heading::COUNTS)]
    pub ignore: Vec<Glob>,

    /// Set the defects aside that a JSON report has: only new ones count. Repeatable.
    #[arg(long, value_name = "REPORT", help_heading = heading::COUNTS)]
    pub baseline: Vec<PathBuf>,
}

pub(super) fn symbol(text: &str) -> Result<Glob, String> {
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
    /// Likely and possible ones, runs that are not serializable, and with `check` potential deadlocks and transactions
    /// that are not atomic in another interleaving.
    Possible,
    /// Those of `possible`, and predictions (`check --predict`).
    Predicted,
    /// All, predictions and those by design as well.
    Any,
    /// Likely ones; a run in which nothing was checked ends with 67.
    NothingChecked,
}

impl FailOnArg {
    /// Returns the least likely class that counts.
    pub const fn least_class(self) -> Class {
        match self {
            Self::Likely | Self::NothingChecked => Class::Likely,
            Self::Possible | Self::Predicted => Class::Possible,
            Self::Any => Class::ByDesign,
        }
    }
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// A JSON document.
    Json,
    /// Static Analysis Results Interchange Format, 2.1.0.
    Sarif,
    /// Test results in XML.
    Junit,
    /// A graph for Graphviz.
    Dot,
    /// Trace events in JSON, for Perfetto and chrome://tracing.
    Trace,
    /// A page for browsers.
    Html,
    /// Log events of OpenTelemetry, in JSON.
    Otlp,
    /// A Parquet file of defects.
    Parquet,
    /// A Parquet file of findings.
    ParquetFindings,
    /// A Parquet file of runs.
    ParquetRuns,
}

/// The form of a report, with its file where it has one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatTo {
    /// The form.
    pub format: Format,
    /// The file.
    pub file: Option<PathBuf>,
}

fn format_to(text: &str) -> Result<FormatTo, String> {
    let (name, file) = match text.split_once('=') {
        Some((_, "")) => return Err("a file is needed after `=`".to_owned()),
        Some((name, file)) => (name, Some(PathBuf::from(file))),
        None => (text, None),
    };
    let Ok(format) = Format::from_str(name, false) else {
        let named = Format::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let named: Vec<String> = named.map(|value| value.get_name().to_owned()).collect();
        return Err(format!("`{name}` is none of {}", named.join(", ")));
    };
    Ok(FormatTo { format, file })
}

/// The form of what is no report: a list, a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlainFormat {
    /// For people.
    Text,
    /// A JSON document.
    Json,
}

/// Use of colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// On a terminal, unless NO_COLOR, CLICOLOR or CLICOLOR_FORCE say otherwise.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
