//! Hunts as text: the runs that show a defect, and the treatments of all runs.

use super::and;
use crate::{
    escape,
    model::{Failure, Hunt, HuntEnd, HuntedDefect, Share, Treatments},
    quantity::{count, grouped, seconds},
};

const MAX_FAILURES: usize = 4;
/// Longest text of the output of a failing run, in columns.
const OUTPUT_COLUMNS: usize = 160;

/// Remarks on a defect, each with its title.
pub(super) fn remarks(defect: &HuntedDefect) -> Vec<(&'static str, String)> {
    let HuntedDefect { first_run, shown_run, by, runs, failing, passing, replay, replayed } =
        defect;
    let all = failing.of + passing.of;
    let first = match first_run == shown_run {
        true => String::new(),
        false => format!(", first in run {}", grouped(*first_run)),
    };
    let seen = format!(
        "in {} of {} runs{first}; shown is run {}, {by}",
        grouped(*runs),
        grouped(all),
        grouped(*shown_run)
    );
    let mut remarks = vec![("hunted", seen)];
    if failing.of > 0 {
        let of = |share: &Share, kind: &str| {
            format!("{} of {} {kind}", grouped(share.runs), grouped(share.of))
        };
        let text = format!("in {} and {} runs", of(failing, "failing"), of(passing, "passing"));
        remarks.push(("fails", text));
    }
    if let Some(command) = replay {
        let shown = match replayed {
            Some(Share { runs, of }) => {
                format!(" (measured: it shows in {} of {} such runs)", grouped(*runs), grouped(*of))
            }
            None => String::new(),
        };
        remarks.push(("again", format!("`{command}`{shown}")));
    }
    remarks
}

/// Notes on a hunt, a paragraph each.
pub(super) fn notes(hunt: &Hunt) -> Vec<(&'static str, String)> {
    let mut notes = vec![("note", runs(hunt))];
    if let Some(failures) = failures(&hunt.failures, hunt.unexplained) {
        notes.push(("note", failures));
    }
    if hunt.failed_by_delay > 0 {
        notes.push((
            "note",
            format!(
                "{} failed without a likely or possible defect while threads were delayed, though runs without delays \
                 had passed: the program may fail when it is late, or have a bug that avtrace does not see; the delays \
                 there were shortened",
                count(hunt.failed_by_delay, "run")
            ),
        ));
    }
    if hunt.untraced > 0 {
        let error = hunt.untraced_error.as_deref().unwrap_or("no error was given");
        notes.push((
            "warning",
            format!("{} could not be traced; the first: {error}", count(hunt.untraced, "run")),
        ));
    }
    notes
}

fn runs(hunt: &Hunt) -> String {
    let Treatments { observed, delayed, starved, moved } = hunt.treatments;
    let parts: Vec<String> = [
        (observed, "without any change"),
        (delayed, "with delays at gaps"),
        (starved, "with threads that got no processor for a while"),
        (moved, "with threads on random processors"),
    ]
    .into_iter()
    .filter(|&(runs, _)| runs > 0)
    .map(|(runs, how)| format!("{} {how}", grouped(runs)))
    .collect();
    let gaps = match hunt.gaps.known {
        0 => "no gap was seen in which another thread could come in".to_owned(),
        known => format!(
            "{} seen, threads delayed at {}, others came between at {}{}",
            count(known, "gap"),
            grouped(hunt.gaps.tried),
            grouped(hunt.gaps.cut),
            match hunt.gaps.refused {
                0 => String::new(),
                refused => format!(", {} where no probe for a delay is possible", grouped(refused)),
            }
        ),
    };
    let end = match hunt.ended {
        HuntEnd::AllRuns => "",
        HuntEnd::Time => "; ended when the time was over",
        HuntEnd::FirstDefect => "; ended with the first likely defect",
        HuntEnd::Interrupted => "; interrupted",
        HuntEnd::NoGap => "; there was nothing to try",
    };
    let share = match hunt.elapsed_ns {
        0 => String::new(),
        all => format!(
            ", {} of them in delays ({} %)",
            seconds(hunt.delayed_ns),
            hunt.delayed_ns.saturating_mul(100) / all
        ),
    };
    let wall = match hunt.wall_ns {
        0 => String::new(),
        wall => format!("; the hunt took {}", seconds(wall)),
    };
    format!(
        "{} in {}{share}: {}; {gaps}{end}{wall}; the results are in {}",
        count(hunt.runs, "run"),
        seconds(hunt.elapsed_ns),
        and(&parts),
        hunt.results
    )
}

fn failures(failures: &[Failure], unexplained: u64) -> Option<String> {
    let first = failures.first()?;
    let mut parts: Vec<String> = failures
        .iter()
        .take(MAX_FAILURES)
        .map(|failure| {
            let first = grouped(failure.first_run);
            format!("{} ({}, first run {first})", failure.text, count(failure.runs, "run"))
        })
        .collect();
    if let Some(more) = failures.len().checked_sub(MAX_FAILURES).filter(|&more| more > 0) {
        parts.push(format!("{} more kinds", grouped(more as u64)));
    }
    let all: u64 = failures.iter().map(|failure| failure.runs).sum();
    let unexplained = match unexplained {
        0 => String::new(),
        some if some == all => "; no likely or possible defect was seen in them".to_owned(),
        some => format!("; in {} of them no likely or possible defect was seen", grouped(some)),
    };
    let last = first.output.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map(|line| {
        let line = escape::printable(line.trim()).into_owned();
        format!(
            "; run {} printed last: {}",
            first.first_run,
            escape::cut_end(&line, OUTPUT_COLUMNS)
        )
    });
    Some(format!("runs failed: {}{unexplained}{}", and(&parts), last.unwrap_or_default()))
}
