//! The command lines of `hunt` and `merge`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;

use super::{CaptureArgs, OutputArgs, RegionsArg, RelationArg, attach::duration, heading};
use crate::hunt::Shard;

const EXAMPLES: &str = "\
Examples:
  avtrace hunt ./test                     50 runs
  avtrace hunt --time 8h --results night.avth ./test --its-option
  avtrace hunt --first ./test             until the first likely defect
  avtrace hunt --fail-if 'grep -q \"wrong sum\" \"$AVTRACE_OUTPUT\"' ./test
  avtrace hunt --runs 20 -- cargo test    the test executables, in turn
  avtrace hunt --per-test ./tests         each test case by itself
  avtrace hunt --replay night.avth#7      run 7 again, ten times
  avtrace hunt --resume --runs 200        go on where the last hunt ended

The first run observes gaps: places in a region where it releases a lock and acquires it again, or where other threads \
could come in between two of its steps. Further runs delay threads in the gaps that promise most, one or a few at a time, \
until another thread comes in; in between, some runs starve random threads of processors or put threads on random ones. \
The program must end by itself. A file that is the standard input of `hunt` is that of each run, else there is none; \
what the program prints is not shown.

A run fails when the program exits with a status other than 0, is killed, or takes longer than --limit; with --fail-if \
when CMD exits with 0, a shell command with the output in the file $AVTRACE_OUTPUT and the program's end in \
$AVTRACE_FAILURE. The report says for each defect how many failing and passing runs showed it, and the command that shows \
it again. All runs are kept in the file of --results, as they come: after a crash or a night --resume goes on.

Exit status: 66 when a likely defect was found (see --fail-on), else 0 when no run failed, else 1, also when \
avtrace failed; 2 for bad usage, 3 when the program cannot be traced, 126 when it cannot be executed, 127 when there is \
none. With --replay the runs that repeat decide.";

/// Options of `hunt`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HuntArgs {
    /// Number of runs; by default 50, or with --time as many as there is time for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = heading::HUNTING)]
    pub runs: Option<u64>,

    /// Begin no run after this time: `90s`, `5m`, `8h`. Where there are several tests, each has an equal share of the
    /// time that is left when it begins.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = heading::HUNTING)]
    pub time: Option<Duration>,

    /// Begin no run of a test after this time, where there are several.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = heading::HUNTING)]
    pub time_per_test: Option<Duration>,

    /// Runs side by side: for programs that share no port and no file.
    #[arg(long, value_name = "J", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), help_heading = heading::HUNTING)]
    pub jobs: u16,

    /// Seed of all choices; by default that of the time.
    #[arg(long, value_name = "S", conflicts_with = "resume", help_heading = heading::HUNTING)]
    pub seed: Option<u64>,

    /// End with the first likely defect.
    #[arg(long, help_heading = heading::HUNTING)]
    pub first: bool,

    /// Time that delays may take, in percent of that of the runs.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=90), help_heading = heading::HUNTING)]
    pub delay: u8,

    /// Kill the program when a run takes longer than this, and count it as failed; by default ten times the longest run
    /// so far, and at least 10 seconds.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = heading::HUNTING)]
    pub limit: Option<Duration>,

    /// Shell command that decides whether a run failed: with exit status 0 it did. It may take as long as a run.
    #[arg(long, value_name = "CMD", help_heading = heading::HUNTING)]
    pub fail_if: Option<OsString>,

    /// Runs that repeat the one that shows a defect, to measure how often it shows again; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = heading::HUNTING)]
    pub repeat: u64,

    /// File for the results of all runs, an SQLite database. An older one is kept with `.old` at its end. By default it
    /// is `avtrace.avth` in Cargo's target directory, and for other projects in the cache, by the directory's name.
    #[arg(long, value_name = "FILE", help_heading = heading::HUNTING)]
    pub results: Option<PathBuf>,

    /// Go on with the hunt that the results are of; --runs and --time count anew from there. The program need
    /// not be given again.
    #[arg(long, help_heading = heading::HUNTING)]
    pub resume: bool,

    /// Repeat run N of the results in FILE as often as --repeat says. The program is the one of that hunt, if none is
    /// given.
    #[arg(long, value_name = "FILE#N", value_parser = run_of_file, conflicts_with_all = ["resume", "time", "runs", "jobs", "shard", "first"], help_heading = heading::HUNTING)]
    pub replay: Option<(PathBuf, u64)>,

    /// Do part I of N of the hunt: gaps and choices are divided among them. `avtrace merge` makes one report of the
    /// results of all.
    #[arg(long, value_name = "I/N", value_parser = shard, conflicts_with = "resume", help_heading = heading::HUNTING)]
    pub shard: Option<Shard>,

    /// Hunt each test case by itself: those of an executable with GoogleTest or Rust's test harness, and of `cargo
    /// test`. --runs is for each, --time for all, and each has results of its own: of `a.avth`, those of `moves` are in
    /// `a.moves.avth`. A test without a gap in its first run gets no other.
    #[arg(long, conflicts_with_all = ["replay", "resume"], help_heading = heading::HUNTING)]
    pub per_test: bool,

    /// Levels of nested regions that are checked.
    #[arg(long, value_enum, default_value_t = RegionsArg::Outermost, help_heading = heading::REGIONS)]
    pub regions: RegionsArg,

    /// Dependencies that count.
    #[arg(long, value_enum, default_value_t = RelationArg::Full, help_heading = heading::CHECKING)]
    pub relation: RelationArg,

    /// Options of capture.
    #[command(flatten)]
    pub capture: CaptureArgs,

    /// Options of capture, as they were written; not an option itself.
    #[arg(skip)]
    pub written: Vec<OsString>,

    /// Print nothing but the report.
    #[arg(short, long, help_heading = heading::REPORT)]
    pub quiet: bool,

    /// Options of the report.
    #[command(flatten)]
    pub output: OutputArgs,

    /// The program, and its arguments.
    #[arg(
        required_unless_present_any = ["replay", "resume"],
        trailing_var_arg = true,
        value_name = "PROGRAM [ARGS]"
    )]
    pub program: Vec<OsString>,
}

const MERGE: &str = "\
Examples:
  avtrace hunt --shard 1/2 --results one.avth ./test
  avtrace hunt --shard 2/2 --results two.avth ./test      on another machine
  avtrace merge one.avth two.avth
  avtrace merge reports/ --format json=all.json --format parquet=defects.parquet

Of reports, each defect is there once, by its fingerprint, with the number of reports and hosts that have it.

Exit status: 66 when a likely defect was found (see --fail-on), else 0; 3 when a file cannot be used, 2 for \
bad usage, 1 when avtrace failed.";

/// Options of `merge`.
#[derive(Args, Debug)]
#[command(after_help = MERGE)]
pub struct MergeArgs {
    /// Leave out the suppressions of `avtrace.toml`.
    #[arg(long, help_heading = heading::COUNTS)]
    pub no_config: bool,

    /// Options of the report.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Reports in JSON, directories of such (`*.json`; `avtrace run --report-dir`), or files of results of
    /// `avtrace hunt`.
    #[arg(required = true, value_name = "REPORT")]
    pub results: Vec<PathBuf>,
}

fn run_of_file(text: &str) -> Result<(PathBuf, u64), String> {
    let parts = text.rsplit_once('#');
    let parts = parts.and_then(|(file, run)| Some((PathBuf::from(file), run.parse().ok()?)));
    parts.filter(|(file, run)| !file.as_os_str().is_empty() && *run > 0).ok_or_else(|| {
        "a file and the number of a run are needed, such as `avtrace.avth#7`".to_owned()
    })
}

fn shard(text: &str) -> Result<Shard, String> {
    let parts = text.split_once('/');
    let parts = parts.and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match parts {
        Some((index @ 1.., count)) if index <= count => Ok(Shard { index: index - 1, count }),
        _ => Err("a part and the number of parts are needed, such as `1/4`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_shards_are_read() {
        assert_eq!(run_of_file("a#b#7"), Ok((PathBuf::from("a#b"), 7)));
        for text in ["a", "#7", "a#", "a#0", "a#x"] {
            assert!(run_of_file(text).is_err(), "{text}");
        }
        assert_eq!(shard("1/4"), Ok(Shard { index: 0, count: 4 }));
        assert_eq!(shard("4/4"), Ok(Shard { index: 3, count: 4 }));
        for text in ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/2"] {
            assert!(shard(text).is_err(), "{text}");
        }
    }
}
