//! The command line of `attach`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{CaptureArgs, OutputArgs, RegionsArg, RelationArg, heading};

const EXAMPLES: &str = "\
Examples:
  sudo avtrace attach --pid 1234          trace it until Ctrl-C, and report
  sudo avtrace attach --pid $(pgrep -n memcached) --duration 60s
  sudo avtrace attach --pid 1234 --record t.avt --duration 5m
  sudo avtrace attach --pid 1234 --record traces --keep 500M
  sudo avtrace attach --name nginx        trace all processes of this name
  sudo avtrace attach --cgroup /sys/fs/cgroup/system.slice/postgresql.service
  avtrace attach --pid 1234               without root: a process of yours

Several processes (at most 32) are traced beside each other, and share --buffer; each has a report. One that cannot be \
traced is named, and the others are traced.

The process goes on when avtrace ends, however it ends. With --capture kernel it is never stopped. With --capture inline, \
which an ordinary user may take for own processes, it is stopped twice, while memory is mapped and while its code is \
patched; it has its own code and memory back afterwards, except after kill -9 of avtrace. Regions that have begun when \
avtrace attaches are not checked, and locks that are held then are not known. It ends with the last process, after \
--duration, after --max-defects, or when a signal (INT, TERM, HUP, QUIT) asks for it, and writes its report then. Each \
defect is named on standard error when it is found; the signal USR1 asks for a report so far there. On a terminal a line \
says how it goes, once a second.

Exit status: 66 when a likely defect was found (see --fail-on), else 0; 1 when avtrace failed, 2 for bad \
usage, 3 when no process can be traced.";

/// Options of `attach`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AttachArgs {
    /// Processes to attach to.
    #[command(flatten)]
    pub processes: ProcessesArgs,

    /// Detach after this time: `500ms`, `60s`, `5m`, `2h`.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = heading::PROCESSES)]
    pub duration: Option<Duration>,

    /// Detach when this many defects were found that count (see --fail-on).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = heading::PROCESSES)]
    pub max_defects: Option<u64>,

    /// Levels of nested regions that are checked.
    #[arg(long, value_enum, default_value_t = RegionsArg::Outermost, help_heading = heading::REGIONS)]
    pub regions: RegionsArg,

    /// Dependencies that count.
    #[arg(long, value_enum, default_value_t = RelationArg::Full, help_heading = heading::CHECKING)]
    pub relation: RelationArg,

    /// Also record the events in FILE, for `avtrace check`.
    ///
    /// Where there are several processes, or one replaces its program, the next ones go to files beside it: of `t.avt`,
    /// the second to `t.2.avt`.
    #[arg(long, value_name = "FILE", help_heading = heading::RECORDING)]
    pub record: Option<PathBuf>,

    /// Record to a directory, and keep the last events only: SIZE altogether, as `512K`, `64M` or `2G`.
    ///
    /// The directory gets files of some seconds or minutes each, and the oldest are removed, so that the time before a
    /// failure is there afterwards. `avtrace check DIR` checks those that are left, also after kill -9 of avtrace. It
    /// must be new or empty; 1M or more is needed for each process.
    #[arg(long, value_name = "SIZE", requires = "record", value_parser = super::size, help_heading = heading::RECORDING)]
    pub keep: Option<u64>,

    /// Also store source lines in the recording: those that a report on it needs, and two around each.
    ///
    /// A report on another machine then shows the same lines, and its defects have the same fingerprints. At most
    /// 8 MiB; the report says if that was too little.
    #[arg(long, requires = "record", help_heading = heading::RECORDING)]
    pub embed_sources: bool,

    /// Options of capture.
    #[command(flatten)]
    pub capture: CaptureArgs,

    /// Print nothing but the report: not the defects as they are found, nor the line on a terminal.
    #[arg(short, long, help_heading = heading::REPORT)]
    pub quiet: bool,

    /// Options of the report.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Processes to attach to: all that one of these selects.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
pub struct ProcessesArgs {
    /// Process to attach to; several with commas, or by several options.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = heading::PROCESSES
    )]
    pub pid: Vec<u32>,

    /// Attach to all processes of this name: that of the process (`/proc/PID/comm`), or of the file of its program.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = heading::PROCESSES)]
    pub name: Vec<String>,

    /// Attach to all processes in this cgroup of version 2 and below, as of now: a path, or a name as in
    /// `/proc/PID/cgroup`.
    #[arg(long, value_name = "PATH", help_heading = heading::PROCESSES)]
    pub cgroup: Vec<PathBuf>,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60 * 1000),
        "h" => Some(60 * 60 * 1000),
        _ => None,
    };
    let duration = milliseconds.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
    let duration = duration.filter(|&duration| duration > 0);
    let wrong =
        || "a number with a unit is needed, such as `500ms`, `60s`, `5m` or `2h`".to_owned();
    duration.map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, milliseconds) in
            [("500ms", 500), ("60s", 60_000), ("5m", 300_000), ("2h", 7_200_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "60", "s", "0s", "1.5s", "-1s", "1 s", "5min", "99999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration(&format!("{}h", u64::MAX)).is_err());
    }
}
