//! Tables of hunts, and their goals.

use super::method::{Method, Sample};
use crate::capture::measure::median;

/// Runs within which a bug is to be found, and the share of hunts, in percent.
const GOALS: [(u64, f64); 2] = [(20, 90.0), (5, 50.0)];
/// Most of the time that delays may take, in percent.
const MOST_DELAYED: f64 = 20.0;

/// Searches for the bug of one program.
pub struct Row {
    /// Name of the program.
    pub name: String,
    /// Outcomes of each method; `None` where the method is not possible.
    pub cells: Vec<(Method, Vec<Sample>)>,
    /// Reason for missing ones.
    pub failure: Option<String>,
}

impl Row {
    fn hunts(&self) -> &[Sample] {
        let hunts = self.cells.iter().find(|(method, _)| *method == Method::Hunt);
        hunts.map_or(&[], |(_, samples)| samples)
    }
}

/// Hunts of one correct program.
#[derive(Default)]
pub struct CorrectRow {
    /// Name of the program.
    pub name: String,
    /// Plain runs, and the distinct likely defects in them.
    pub plain_runs: u64,
    pub plain: usize,
    /// Runs of the hunt, failed runs, and the share of delays in percent.
    pub runs: u64,
    pub failed: u64,
    pub delayed: f64,
    /// Likely defects that no plain run showed.
    pub new: Vec<String>,
    /// Reason for missing runs.
    pub failure: Option<String>,
}

/// Table of the known-bad programs, and the goals.
pub fn known(rows: &[Row], methods: &[Method], runs: u64) -> String {
    let mut shown = format!(
        "Known bugs, nothing forced: the run that showed it first in each series, at most {runs}, and the median of \
         seconds\n{:20}",
        ""
    );
    for method in methods {
        shown += &format!(" {:>22}", method.name());
    }
    shown.push('\n');
    for row in rows {
        shown += &line(row);
    }
    shown + &goals(rows)
}

/// Line of one program.
pub fn line(row: &Row) -> String {
    let mut shown = format!("{:20}", row.name);
    for (_, samples) in &row.cells {
        shown += &format!(" {:>22}", cell(samples));
    }
    shown.push('\n');
    let instead = row.hunts().iter().find_map(|sample| sample.instead.as_ref());
    for (what, text) in [("first instead", instead), ("missing", row.failure.as_ref())] {
        if let Some(text) = text {
            shown += &format!("    {what}: {text}\n");
        }
    }
    shown
}

/// The first runs that showed the bug, and the median of seconds: `2 3 - (4.1 s)`.
fn cell(samples: &[Sample]) -> String {
    if samples.is_empty() {
        return "not possible".to_owned();
    }
    let runs: Vec<String> = (samples.iter())
        .map(|sample| sample.found.map_or_else(|| "-".to_owned(), |run| run.to_string()))
        .collect();
    let seconds = median(samples.iter().map(|sample| sample.seconds));
    format!("{} ({seconds:.1} s)", runs.join(" "))
}

/// Goals for all hunts together.
fn goals(rows: &[Row]) -> String {
    let hunts: Vec<&Sample> = rows.iter().flat_map(Row::hunts).collect();
    if hunts.is_empty() {
        return String::new();
    }
    let mut shown = "\nGoals for hunts:\n".to_owned();
    for (runs, least) in GOALS {
        let found = hunts.iter().filter(|hunt| hunt.found.is_some_and(|run| run <= runs)).count();
        let percent = found as f64 * 100.0 / hunts.len() as f64;
        let verdict = if percent >= least { "met" } else { "missed" };
        shown += &format!(
            "  found within {runs} runs: {found} of {}, {percent:.1} %, at least {least:.0} %: {verdict}\n",
            hunts.len()
        );
    }
    let (all, delays) = hunts
        .iter()
        .fold((0.0, 0.0), |(all, delays), hunt| (all + hunt.times.0, delays + hunt.times.1));
    let percent = if all > 0.0 { delays * 100.0 / all } else { 0.0 };
    let verdict = if percent <= MOST_DELAYED { "met" } else { "missed" };
    shown
        + &format!("  delays: {percent:.1} % of the time, at most {MOST_DELAYED:.0} %: {verdict}\n")
}

/// Table of the correct programs.
pub fn correct(rows: &[CorrectRow]) -> String {
    let mut shown = "Correct programs: distinct likely defects in plain runs, and those that hunts alone show\n".to_owned();
    shown += &format!(
        "{:10} {:>10} {:>7} {:>11} {:>7} {:>8} {:>4}  goal\n",
        "", "plain runs", "likely", "hunted runs", "failed", "delays", "new"
    );
    for row in rows {
        shown += &correct_line(row);
    }
    shown
}

/// Line of one correct program, with its new defects below.
pub fn correct_line(row: &CorrectRow) -> String {
    if let Some(failure) = &row.failure {
        return format!("{:10} {failure}\n", row.name);
    }
    let is_met = row.new.is_empty() && row.delayed <= MOST_DELAYED;
    let mut shown = format!(
        "{:10} {:>10} {:>7} {:>11} {:>7} {:>6.1} % {:>4}  {}\n",
        row.name,
        row.plain_runs,
        row.plain,
        row.runs,
        row.failed,
        row.delayed,
        row.new.len(),
        if is_met { "met" } else { "missed" }
    );
    for one in &row.new {
        shown += &format!("    new: {one}\n");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(found: Option<u64>) -> Sample {
        Sample { found, seconds: 2.0, times: (10.0, 1.0), instead: None }
    }

    #[test]
    fn each_series_is_shown_and_the_goals_are_of_all_hunts() {
        let row = Row {
            name: "prog".to_owned(),
            cells: vec![
                (Method::Hunt, vec![found(Some(2)), found(Some(7)), found(None)]),
                (Method::Plain, vec![found(None)]),
                (Method::Tsan, Vec::new()),
            ],
            failure: None,
        };
        let shown = known(&[row], &[Method::Hunt, Method::Plain, Method::Tsan], 20);
        assert!(shown.contains("2 7 - (2.0 s)"), "{shown}");
        assert!(shown.contains("not possible"), "{shown}");
        assert!(shown.contains("within 20 runs: 2 of 3, 66.7 %, at least 90 %: missed"), "{shown}");
        assert!(shown.contains("within 5 runs: 1 of 3, 33.3 %, at least 50 %: missed"), "{shown}");
        assert!(shown.contains("delays: 10.0 % of the time, at most 20 %: met"), "{shown}");
    }

    #[test]
    fn a_defect_of_hunts_alone_misses_the_goal() {
        let mut row = CorrectRow { name: "xz".to_owned(), runs: 200, ..CorrectRow::default() };
        assert!(correct(std::slice::from_ref(&row)).contains("met"));
        row.new.push("`f`: torn".to_owned());
        let shown = correct(&[row]);
        assert!(shown.contains("missed") && shown.contains("new: `f`: torn"), "{shown}");
    }
}
