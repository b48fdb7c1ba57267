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
mod list;
mod live;
mod load;
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

use std::io::Write as _;

use std::fmt;

use crate::cli::{Cli, Command};

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

/// Runs the command, and returns the exit status.
///
/// # Errors
/// When that fails. The error has not been printed yet.
pub fn run(cli: Cli) -> Result<u8, Failure> {
    match cli.command {
        None => run::run(cli.run),
        Some(Command::Run(arguments)) => run::run(arguments),
        Some(Command::Attach(arguments)) => attach::run(&arguments),
        Some(Command::Probes(arguments)) => list::probes(&arguments),
        Some(Command::Record(arguments)) => record::run(arguments),
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
    }
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
