//! Limits of a report without findings: regions that were left out, and places where others could have come in and
//! did not.

use super::super::{
    escape::width,
    explain,
    model::{ReacquiredLock, Report, SkippedProbes, Subject},
    quantity::count,
};

/// Limit of the locks that are named.
const MAX_NAMED: usize = 3;

/// Longest name of a region that is shown, in columns.
const NAME_COLUMNS: usize = 50;

/// Longest command that is repeated, in columns.
const COMMAND_COLUMNS: usize = 60;

/// Kinds of the reasons for which a region is left out although its code is there.
const LEFT_OUT: [&str; 3] = ["unprobed_exits", "unprobed_ends", "unprobable_ends"];

/// Names the regions that were left out, for the line that says that nothing was found; empty if there are none.
pub(super) fn regions(report: &Report) -> String {
    let is_left_out = |skipped: &&SkippedProbes| {
        skipped.reason_kind.as_deref().is_some_and(|kind| LEFT_OUT.contains(&kind))
    };
    let left_out: Vec<&SkippedProbes> =
        report.not_seen.skipped_probes.iter().filter(is_left_out).collect();
    let Some(first) = left_out.first() else { return String::new() };
    let all = left_out.len() as u64;
    // A line of names of templates says less than their number.
    let what = match left_out.iter().find(|one| width(&one.what) <= NAME_COLUMNS) {
        Some(one) if all == 1 => one.what.clone(),
        Some(one) => format!("{} and {}", one.what, count(all - 1, "other region")),
        None => count(all, "region"),
    };
    format!("; not checked: {what} ({})", first.reason)
}

/// Says where regions gave up locks and nobody came in.
pub(super) fn locks(report: &Report) -> impl Iterator<Item = String> {
    let note = |one: &ReacquiredLock| {
        let times = if one.times == 1 { "once".to_owned() } else { count(one.times, "time") };
        format!(
            "`{}` released {} and took it again {times}, and nobody came between: {} delays it there",
            explain::without_generics(&one.region),
            explain::object(&one.lock),
            hunt(&report.subject)
        )
    };
    report.reacquired.iter().take(MAX_NAMED).map(note)
}

/// Returns the command that hunts in the program.
fn hunt(subject: &Subject) -> String {
    match subject {
        Subject::Process { argv, .. } if !argv.is_empty() => {
            let command = argv.join(" ");
            let is_short = width(&command) <= COMMAND_COLUMNS;
            let command = if is_short { command } else { format!("{} ...", argv[0]) };
            format!("`avtrace hunt -- {command}`")
        }
        _ => "`avtrace hunt`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut() {
        let process = |argv: &[&str]| Subject::Process {
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            pid: 1,
            program: 1,
            exit_code: None,
            signal: None,
            replaced: false,
            parent: None,
            name: None,
        };
        assert_eq!(hunt(&process(&["./a", "2"])), "`avtrace hunt -- ./a 2`");
        assert_eq!(hunt(&process(&["./a", &"x".repeat(60)])), "`avtrace hunt -- ./a ...`");
        assert_eq!(hunt(&process(&[])), "`avtrace hunt`");
    }
}
