//! The commands, one file each: from a command line to an exit status. Capturing, checking and writing are
//! elsewhere.

mod attach;
mod cache;
mod check;
mod collector;
mod convert;
mod diff;
mod doctor;
mod explain;
mod explore;
mod first_pass;
mod hunt;
mod hunt_results;
mod init;
mod list;
mod live;
mod load;
mod manual;
mod merge;
mod options;
mod output;
mod provenance;
mod record;
mod refine;
mod report;
mod report_dir;
mod reports;
mod run;
mod summary;
mod test_listing;
mod triage;
mod untraced;

use std::io::Write as _;

use std::fmt;

use crate::cli::{Cli, Command};
use linux::tracee::Ending;

/// An error that is printed in one line before avtrace exits.
#[derive(Debug)]
pub struct Failure {
    /// Cause, and remedy.
    pub message: String,
    /// Exit status (`docs/semantics.md#exit-status`).
    pub status: u8,
}

impl Failure {
    /// Creates the failure of avtrace itself.
    fn internal(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), status: 1 }
    }

    /// Creates the failure for a command line that makes no sense.
    fn usage(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), status: 2 }
    }

    /// Creates the failure for an input that cannot be used.
    fn input(error: impl fmt::Display) -> Self {
        Self { message: error.to_string(), status: 3 }
    }
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Exit with this status.
    Status(u8),
    /// Death by this signal, which killed the traced program.
    Killed(i32),
}

impl From<u8> for End {
    fn from(status: u8) -> Self {
        Self::Status(status)
    }
}

impl From<Ending> for End {
    fn from(ending: Ending) -> Self {
        match ending {
            // The low byte, as in a shell.
            Ending::Exited(status) => Self::Status(status as u8),
            Ending::Killed(signal) => Self::Killed(signal),
        }
    }
}

/// Runs the command, and returns the way to end.
///
/// # Errors
/// When that fails. The error has not been printed yet.
pub fn run(cli: Cli) -> Result<End, Failure> {
    let status = match cli.command {
        None => return run::run_or_suggest(cli.run),
        Some(Command::Run(arguments)) => return run::run(arguments),
        Some(Command::Record(arguments)) => return record::run(arguments),
        Some(Command::Attach(arguments)) => attach::run(&arguments),
        Some(Command::Probes(arguments)) => list::probes(&arguments),
        Some(Command::Check(arguments)) => check::run(&arguments),
        Some(Command::Convert(arguments)) => convert::run(&arguments),
        Some(Command::Report(arguments)) => report::run(&arguments),
        Some(Command::Diff(arguments)) => diff::run(&arguments),
        Some(Command::Refine(arguments)) => refine::run(&arguments),
        Some(Command::Hunt(arguments)) => hunt::run(&arguments),
        Some(Command::Explore(arguments)) => explore::run(&arguments),
        Some(Command::Merge(arguments)) => merge::run(&arguments),
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Explain(arguments)) => explain::run(&arguments),
        Some(Command::Cache(arguments)) => cache::run(&arguments),
        Some(Command::Init(arguments)) => init::init(&arguments),
        Some(Command::Demo(arguments)) => init::demo(&arguments),
        Some(Command::Man(arguments)) => manual::man(&arguments),
        Some(Command::Completions(arguments)) => manual::completions(&arguments),
    };
    status.map(End::Status)
}

/// Prints an error, in one line and without anything that could act on a terminal.
pub fn complain(message: &str) {
    // If standard error cannot be written, the message is lost.
    let message = ::report::printable(message);
    let line = format!("avtrace: error: {}\n", ::report::cut_message(&message));
    // In one write: a thread that runs out of memory meanwhile must not leave half a line.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Returns the worse of two exit statuses, if several inputs are handled in one run: avtrace's own failure,
/// then input that cannot be read, then findings, then a run without regions.
fn worse(one: u8, other: u8) -> u8 {
    let rank = |status| match status {
        0 => 0,
        triage::NOTHING_CHECKED => 1,
        3 => 3,
        1 => 4,
        _ => 2,
    };
    if rank(other) > rank(one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::worse;

    #[test]
    fn the_worst_status_is_that_of_all() {
        let worst = |all: &[u8]| all.iter().copied().fold(0, worse);
        assert_eq!(worst(&[]), 0);
        assert_eq!(worst(&[0, 66, 0]), 66);
        assert_eq!(worst(&[66, 3, 66]), 3);
        assert_eq!(worst(&[3, 1, 66]), 1);
        assert_eq!(worst(&[0, 9, 0]), 9);
        assert_eq!(worst(&[0, 67, 66, 67]), 66);
    }
}
