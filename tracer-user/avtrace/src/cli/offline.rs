//! The command lines of `check`, `convert` and `report`, which work on files alone.

use std::path::PathBuf;

use clap::{
    Args, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::{OutputArgs, RegionsArg, heading};
use crate::offline::algorithms::{self, ALGORITHMS, Algorithm};

const CHECK: &str = "\
Traces are text, one event a line (`THREAD|OP(OBJECT)|LOCATION`), or avtrace's own format (`avtrace record`, \
`avtrace convert`). Either may be compressed with gzip or Zstandard. The first bytes of a file tell which it is, not \
its name. Memory grows with the objects that a trace names, not with its length (but for commit-node: with different transactions).

Several traces are checked one after the other. As text their reports follow one another; as JSON, each is a \
document on a line of its own.

Examples:
  avtrace check bank.std
  avtrace check --format json *.avt | jq .counts.violations
  zcat big.std.gz | avtrace check --stats -

Exit status, the worst of all traces: 0 when nothing was found, 66 when a likely defect was (with --fail-on possible also for possible ones, a potential deadlock, or transactions that are not atomic in another interleaving), 3 when a trace is unreadable, \
malformed, or cut short with nothing found in what is left, 2 for bad usage, 1 when avtrace failed.";

/// Options of `check`.
#[derive(Args, Debug)]
#[command(after_help = CHECK)]
pub struct CheckArgs {
    /// The algorithm, which decides what can be found.
    #[arg(long, value_name = "NAME", default_value = ALGORITHMS[0].name, value_parser = algorithm(), help_heading = heading::CHECKING)]
    pub algorithm: &'static Algorithm,

    /// Dependencies that count.
    #[arg(long, value_enum, default_value_t = RelationArg::Full, help_heading = heading::CHECKING)]
    pub relation: RelationArg,

    /// Property of all interleavings to check, with `--algorithm commit-node`.
    #[arg(long, value_enum, default_value_t = PropertyArg::Conflict, help_heading = heading::CHECKING)]
    pub property: PropertyArg,

    /// Levels of nested regions to check.
    #[arg(long, value_enum, default_value_t = RegionsArg::Outermost, help_heading = heading::REGIONS)]
    pub regions: RegionsArg,

    /// List every violation instance by its event numbers, not only one for each distinct witness.
    #[arg(long, help_heading = heading::CHECKING)]
    pub instances: bool,

    /// Also list the gaps of regions: where another thread could have come in, whether it did or not.
    ///
    /// A gap lies between two steps of a region: a lock is released and acquired again, or another one acquired, or two
    /// accesses have no lock in common. Those that are the likeliest bugs come first.
    #[arg(long, help_heading = heading::CHECKING)]
    pub gaps: bool,

    /// Also look for potential deadlocks: threads that acquire locks in different orders, whether they met or not.
    ///
    /// Gate locks, reader-writer locks, and the order by forks, joins, signals and barriers are taken into account.
    /// Each is shown with the acquisitions at which the threads would wait, and the locks held there.
    #[arg(long, help_heading = heading::CHECKING)]
    pub deadlocks: bool,

    /// Also predict defects: accesses of other threads that did not come in between two accesses of a region, but could
    /// have.
    ///
    /// Each prediction is shown with the gap and the access that would have to fall into it, in an order of the same
    /// events that locks, forks, joins, signals and barriers allow, and with the reads that would find other values
    /// then. Predictions are in a class of their own and count for the exit status only with `--fail-on predicted` or
    /// `any`.
    #[arg(long, help_heading = heading::CHECKING)]
    pub predict: bool,

    /// Leave out lines that are no events, and events that do not fit, instead of refusing the trace.
    ///
    /// The report says what was left out. A damaged trace is checked up to the damage.
    #[arg(long, help_heading = heading::CHECKING)]
    pub lenient: bool,

    /// Say on standard error what the trace is made of, and what checking it took.
    #[arg(long, help_heading = heading::CHECKING)]
    pub stats: bool,

    /// Leave out the suppressions of `avtrace.toml`.
    #[arg(long, help_heading = heading::COUNTS)]
    pub no_config: bool,

    /// Options of the report.
    #[command(flatten)]
    pub output: OutputArgs,

    /// The traces; `-` is standard input.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
}

/// Dependencies that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RelationArg {
    /// All dependencies: on variables, locks, other synchronisation, threads.
    Full,
    /// Dependencies on variables only.
    Data,
}

/// Properties of all interleavings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PropertyArg {
    /// The order of conflicting accesses is that of a serial execution.
    Conflict,
    /// All reads, and the last writes, are those of a serial execution.
    View,
}

fn algorithm() -> impl TypedValueParser<Value = &'static Algorithm> {
    let values =
        ALGORITHMS.iter().map(|algorithm| PossibleValue::new(algorithm.name).help(algorithm.about));
    PossibleValuesParser::new(values).try_map(|name| algorithms::find(&name).ok_or("not known"))
}

const CONVERT: &str = "\
Text holds what a checker sees: the events, the gaps between them, and the names of objects and places. Call stacks, \
addresses, values and what is known of the recorded process are in avtrace's own format only. Parquet is a table of \
the events with their names and source lines, for databases (docs/parquet.md); it cannot be read back.

Examples:
  avtrace convert t.avt t.std
  avtrace convert t.avt - | less
  avtrace convert bank.std.gz bank.avt
  avtrace convert run.avt events.parquet

Exit status: 0, 3 when the trace is unreadable, malformed or cut short, 2 for bad usage, 1 when avtrace failed.";

/// Options of `convert`.
#[derive(Args, Debug)]
#[command(after_help = CONVERT)]
pub struct ConvertArgs {
    /// Format of the output; by default avtrace's own when OUT ends in `.avt`, Parquet when it ends in `.parquet`, and
    /// text otherwise.
    #[arg(long, value_enum)]
    pub to: Option<TraceFormatArg>,

    /// Leave out lines that are no events, instead of refusing the trace. Each leaves a gap.
    #[arg(long)]
    pub lenient: bool,

    /// The trace, in either format, compressed or not; `-` is standard input.
    #[arg(value_name = "IN")]
    pub input: PathBuf,

    /// The output file; `-` is standard output. A file is replaced when all is written.
    #[arg(value_name = "OUT", required_unless_present = "output_option")]
    pub output: Option<PathBuf>,

    /// Same as OUT.
    #[arg(short = 'o', long = "output", value_name = "OUT", conflicts_with = "output")]
    pub output_option: Option<PathBuf>,
}

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormatArg {
    /// Lines of one event each, `THREAD|OP(OBJECT)|LOCATION`.
    Text,
    /// avtrace's own.
    Avt,
    /// A table of events in a Parquet file.
    Parquet,
}

const REPORT: &str = "\
Examples:
  avtrace report report.json
  avtrace report --format html=report.html t.avt  a recording, checked first
  avtrace report reports                          a directory: each defect once
  avtrace check --format json *.avt > all.json; avtrace report all.json

Exit status: 0 when nothing was found, 66 when a likely defect was (see --fail-on), 3 when a file is no report, 2 for bad usage, 1 when \
avtrace failed.";

/// Options of `report`.
#[derive(Args, Debug)]
#[command(after_help = REPORT)]
pub struct ReportArgs {
    /// Leave out the suppressions of `avtrace.toml`.
    #[arg(long, help_heading = heading::COUNTS)]
    pub no_config: bool,

    /// Options of the report.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Files of reports in JSON, one or several in each, or recordings (`.avt`); `-` is standard input, for JSON. Of a
    /// directory, all `*.json`: as text each defect is shown once then, with the number of reports that have it; or the
    /// recordings in segments.
    #[arg(required = true, value_name = "REPORT")]
    pub reports: Vec<PathBuf>,
}
