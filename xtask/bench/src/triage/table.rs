//! Tables of the outcomes, and the goals.

use super::{
    manifest::Manifest,
    outcome::{CLASSES, Found, Outcome},
};
use crate::capture::measure::median;

/// Runs of one program at one optimisation level.
pub struct Row<'a> {
    /// Name of the program.
    pub name: String,
    /// Description of its work; empty for a program with a known bug.
    pub about: String,
    /// Optimisation level.
    pub level: &'static str,
    /// Description of the bug; `None` for a correct program.
    pub manifest: Option<&'a Manifest>,
    /// The runs.
    pub outcomes: Vec<Outcome>,
    /// Reason for missing runs.
    pub failure: Option<String>,
}

impl Row<'_> {
    /// Runs in which the bad interleaving has happened.
    fn interleaved(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.is_interleaved)
    }

    /// The known bug in the reports on these runs.
    fn found(&self) -> Vec<&Found> {
        self.interleaved().filter_map(|outcome| outcome.report.found.as_ref()).collect()
    }

    fn slowdown(&self) -> f64 {
        median(self.outcomes.iter().map(|outcome| outcome.seconds.1 / outcome.seconds.0))
    }

    /// The most that one of the runs has.
    fn most(&self, of: impl Fn(&Outcome) -> usize) -> usize {
        self.outcomes.iter().map(of).max().unwrap_or(0)
    }

    /// Most defects of a class that one of the runs has.
    fn most_of_class(&self, class: usize) -> usize {
        self.most(|outcome| outcome.report.classes.map_or(0, |classes| classes[class]))
    }

    fn classes(&self) -> String {
        if self.outcomes.iter().all(|outcome| outcome.report.classes.is_none()) {
            return "-".to_owned();
        }
        let most: Vec<_> =
            (0..CLASSES.len()).map(|class| self.most_of_class(class).to_string()).collect();
        most.join("/")
    }
}

/// Table of the programs with a known bug, and the goals.
pub fn known(rows: &[Row<'_>], rounds: usize) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut shown = format!(
        "Known bugs, {rounds} runs each; rank, class, evidence and pattern are those of the true one at its worst; \
         defects are\nlikely/possible/by-design, findings, defects and lines the most of a run\n\
         {:27} {:>6} {:>4} {:10} {:8} {:20} {:>8} {:>8} {:>5} {:>8}\n",
        "",
        "found",
        "rank",
        "class",
        "evidence",
        "pattern",
        "findings",
        "defects",
        "lines",
        "slowdown"
    );
    for row in rows {
        shown += &known_line(row);
    }
    shown + &known_goals(rows)
}

fn known_line(row: &Row<'_>) -> String {
    let title = format!("{} {}", row.name, row.level);
    if let (true, Some(why)) = (row.outcomes.is_empty(), &row.failure) {
        return format!("{title:27} {why}\n");
    }
    let found = row.found();
    let worst = found
        .iter()
        .max_by_key(|found| (CLASSES.iter().position(|class| *class == found.class), found.rank));
    let shown = |text: fn(&Found) -> String| worst.map_or_else(|| "-".to_owned(), |of| text(of));
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let pattern = worst.map_or_else(String::new, |of| {
        let is_right = row.manifest.is_some_and(|manifest| manifest.is_pattern(&of.pattern));
        let mark = if is_right || of.pattern.is_empty() { "" } else { " (?)" };
        format!("{}{mark}", of.pattern)
    });
    let mut line = format!(
        "{title:27} {:>6} {:>4} {:10} {:8} {:20} {:>8} {:>8} {:>5} {:>8.1}\n",
        format!("{}/{}", found.len(), row.interleaved().count()),
        shown(|of| of.rank.to_string()),
        or_dash(shown(|of| of.class.clone())),
        shown(|of| if of.has_data { "data" } else { "sync" }.to_owned()),
        or_dash(pattern),
        row.most(|outcome| outcome.report.findings),
        row.classes(),
        row.most(|outcome| outcome.lines),
        row.slowdown(),
    );
    let missed = row.interleaved().find(|outcome| outcome.report.found.is_none());
    if let Some(instead) = missed.and_then(|outcome| outcome.report.instead.as_ref()) {
        line += &format!("    first instead: {instead}\n");
    }
    if let Some(why) = &row.failure {
        line += &format!("    one run: {why}\n");
    }
    line
}

fn known_goals(rows: &[Row<'_>]) -> String {
    let happened: usize = rows.iter().map(|row| row.interleaved().count()).sum();
    let found: Vec<&Found> = rows.iter().flat_map(Row::found).collect();
    let with_data = rows.iter().filter(|row| row.manifest.is_some_and(|of| of.has_data));
    let with_data: Vec<&Found> = with_data.flat_map(Row::found).collect();
    let all = found.len();
    let is_likely = |row: &&Row<'_>| row.manifest.is_some_and(|of| of.class == CLASSES[0]);
    let to_be_likely: Vec<&Found> = rows.iter().filter(is_likely).flat_map(Row::found).collect();
    let likely = to_be_likely.iter().filter(|of| of.class == CLASSES[0]).count();
    let goals = [
        ("found of the runs in which it happened", all, happened, 95.0),
        ("of those that ought to be likely, likely", likely, to_be_likely.len(), 100.0),
        ("of these among the first three", rank_at_most(&found, 3), all, 100.0),
        ("of these first", rank_at_most(&found, 1), all, 66.6),
        (
            "of those with data, data evidence",
            with_data.iter().filter(|of| of.has_data).count(),
            with_data.len(),
            100.0,
        ),
    ];
    let mut shown = "\nGoals for known bugs:\n".to_owned();
    for (what, part, whole, least) in goals {
        // Counts of runs are small.
        let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
        let verdict = if percent >= least { "met" } else { "missed" };
        shown += &format!(
            "  {what:40} {part:>4} of {whole:<4} {percent:>5.1} %, at least {least:.0} %: {verdict}\n"
        );
    }
    shown
}

/// Table of the correct programs, the goals, and every likely defect.
pub fn correct(rows: &[Row<'_>], rounds: usize) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut shown = format!(
        "\nCorrect programs, {rounds} runs each; findings, defects and lines are the most of a run\n\
         {:10} {:>8} {:>8} {:>8} {:>9} {:>5} {:>9} {:>8}  goals\n",
        "", "findings", "likely", "possible", "by-design", "lines", "by itself", "slowdown"
    );
    let mut likely = String::new();
    for row in rows {
        if let (true, Some(why)) = (row.outcomes.is_empty(), &row.failure) {
            shown += &format!("{:10} {why}\n", row.name);
            continue;
        }
        let has_classes = row.outcomes.iter().any(|outcome| outcome.report.classes.is_some());
        let class = |class: usize| match has_classes {
            true => row.most_of_class(class).to_string(),
            false => "-".to_owned(),
        };
        let verdict = match (has_classes, row.most_of_class(0) <= 1 && row.most_of_class(1) <= 10) {
            (false, _) => "-",
            (true, true) => "met",
            (true, false) => "missed",
        };
        shown += &format!(
            "{:10} {:>8} {:>8} {:>8} {:>9} {:>5} {:>7.2} s {:>8.1}  {verdict}\n",
            row.name,
            row.most(|outcome| outcome.report.findings),
            class(0),
            class(1),
            class(2),
            row.most(|outcome| outcome.lines),
            median(row.outcomes.iter().map(|outcome| outcome.seconds.0)),
            row.slowdown(),
        );
        if let Some(why) = &row.failure {
            shown += &format!("    one run: {why}\n");
        }
        let mut lines: Vec<&String> =
            row.outcomes.iter().flat_map(|outcome| &outcome.report.likely).collect();
        lines.sort();
        lines.dedup();
        for line in lines {
            likely += &format!("  {}: {line}\n", row.name);
        }
    }
    shown += "Goals for correct programs: at most 1 likely and 10 possible each\n\nTheir work:\n";
    for row in rows {
        shown += &format!("  {}: {}\n", row.name, row.about);
    }
    if !likely.is_empty() {
        shown += &format!("\nLikely defects of correct programs:\n{likely}");
    }
    shown
}

fn rank_at_most(found: &[&Found], rank: usize) -> usize {
    found.iter().filter(|of| of.rank <= rank).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::outcome::Report;

    fn outcome(rank: usize, class: &str) -> Outcome {
        let found =
            Found { rank, class: class.to_owned(), has_data: true, pattern: "torn".to_owned() };
        let report = Report {
            found: Some(found),
            findings: 3,
            classes: Some([1, 2, 0]),
            likely: Vec::new(),
            instead: None,
        };
        Outcome { seconds: (1.0, 2.0), is_interleaved: true, report, lines: 20 }
    }

    #[test]
    fn the_worst_run_is_shown() {
        let text = "// Regions: f\n// Pattern: torn\n// Evidence: data\n// Reference: r\n";
        let manifest = Manifest::parse(text).unwrap();
        let row = Row {
            name: "prog".to_owned(),
            about: String::new(),
            level: "-O2",
            manifest: Some(&manifest),
            outcomes: vec![outcome(1, "likely"), outcome(4, "possible")],
            failure: None,
        };
        let line = known_line(&row);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            ["prog", "-O2", "2/2", "4", "possible", "data", "torn", "3", "1/2/0", "20", "2.0"]
        );
        let goals = known_goals(&[row]);
        assert!(goals.contains("likely, likely    1 of 2     50.0 %"), "{goals}");
    }
}
