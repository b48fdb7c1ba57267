//! Tables of the matrix: counts for each value of each dimension, and the cases that are not as they should be.

use std::{collections::HashMap, fmt::Write as _};

use matrix::{
    Build, Data, Dimension, Gap, Half, Language, Lock, Naming, Pattern, Runs, Shape, Threads,
};

use super::run::{Outcome, Row};

/// Exit status of avtrace when something counts.
const FINDINGS: i32 = 66;

/// Counts of some programs.
#[derive(Debug, Clone, Default)]
struct Counts {
    programs: usize,
    harmful: usize,
    /// By [`Naming::ALL`], of those that did harm, or were hunted.
    named: [usize; 5],
    correct: usize,
    findings: usize,
    possible: usize,
    likely: usize,
    failed: usize,
}

impl Counts {
    fn add(&mut self, row: &Row) {
        let is_control = row.program.pattern.is_control();
        if !is_control {
            self.programs += 1;
            match &row.outcome {
                Ok(outcome) if outcome.is_to_be_named => {
                    self.harmful += usize::from(outcome.harm > 0);
                    let place = Naming::ALL.iter().position(|one| *one == outcome.verdict.naming);
                    self.named[place.unwrap_or(4)] += 1;
                }
                Ok(_) => {}
                Err(_) => self.failed += 1,
            }
        }
        let correct = [is_control.then_some(&row.outcome), Some(&row.twin)];
        for outcome in correct.into_iter().flatten() {
            match outcome {
                Ok(outcome) => {
                    self.correct += 1;
                    self.findings += usize::from(outcome.status == FINDINGS);
                    let is_likely = outcome.verdict.likely > 0;
                    self.possible += usize::from(!is_likely && outcome.verdict.possible > 0);
                    self.likely += usize::from(is_likely);
                    self.failed += usize::from(outcome.harm > 0);
                }
                Err(_) => self.failed += 1,
            }
        }
    }

    fn line(&self, name: &str) -> String {
        let mut line = format!("{name:<28}{:>8} {:>8}", self.programs, self.harmful);
        for count in self.named {
            let _ = write!(line, " {count:>9}");
        }
        let share = match self.named.iter().sum::<usize>() {
            0 => "-".to_owned(),
            to_be_named => format!("{} %", 100 * self.named[0] / to_be_named),
        };
        let quiet = self.correct - self.possible - self.likely;
        let _ = writeln!(
            line,
            " {share:>6} | {:>7} {quiet:>6} {:>8} {:>6} {:>4} | {:>6}",
            self.correct, self.possible, self.likely, self.findings, self.failed
        );
        line
    }
}

fn head(title: &str) -> String {
    let mut line = format!("\n{title:<28}{:>8} {:>8}", "programs", "did harm");
    for naming in Naming::ALL {
        let _ = write!(line, " {:>9}", naming.words().trim_start_matches("named "));
    }
    let _ = writeln!(
        line,
        " {:>6} | {:>7} {:>6} {:>8} {:>6} {:>4} | {:>6}",
        "", "correct", "quiet", "possible", "likely", "66", "failed"
    );
    line
}

/// All tables.
pub fn whole(rows: &[Row]) -> String {
    let mut counts: HashMap<(&str, &str), Counts> = HashMap::new();
    let mut all = Counts::default();
    let mut halves = HashMap::new();
    for row in rows {
        all.add(row);
        let half: &mut Counts =
            halves.entry(row.program.half().map_or("mixed", Half::word)).or_default();
        half.add(row);
        for value in row.program.values() {
            counts.entry((value.dimension, value.word)).or_default().add(row);
        }
    }
    let mut text = head("all programs");
    text.push_str(&all.line("whole"));
    for half in ["decided", "judged", "mixed"] {
        if let Some(counts) = halves.get(half) {
            text.push_str(&counts.line(&format!("  all values {half}")));
        }
    }
    for half in [Half::Decided, Half::Judged] {
        text.push_str(&head(&format!("values that are {}", half.word())));
        dimension::<Pattern>(&mut text, half, &counts);
        dimension::<Language>(&mut text, half, &counts);
        dimension::<Lock>(&mut text, half, &counts);
        dimension::<Data>(&mut text, half, &counts);
        dimension::<Shape>(&mut text, half, &counts);
        dimension::<Gap>(&mut text, half, &counts);
        dimension::<Build>(&mut text, half, &counts);
        dimension::<Threads>(&mut text, half, &counts);
        dimension::<Runs>(&mut text, half, &counts);
    }
    text.push_str(&failing(rows));
    text
}

/// Lines of the values of a dimension that belong to a half.
fn dimension<D: Dimension>(text: &mut String, half: Half, counts: &HashMap<(&str, &str), Counts>) {
    for value in D::ALL.iter().filter(|value| value.half().is_in(half)) {
        if let Some(counts) = counts.get(&(D::NAME, value.word())) {
            text.push_str(&counts.line(&format!("{}: {}", D::NAME, value.word())));
        }
    }
}

/// Outcome of a run in one line.
pub fn outcome(outcome: &Outcome, is_correct: bool) -> String {
    let Outcome { harm, status, verdict, seconds, .. } = outcome;
    let first = verdict.headline.as_deref().unwrap_or("no defect");
    let naming = match is_correct {
        true => String::new(),
        false => format!("{}, ", verdict.naming.words()),
    };
    let gaps = &outcome.report["hunt"]["gaps"];
    let gaps = match gaps.is_object() {
        true => format!("gaps {}, delayed {}, cut {}, ", gaps["known"], gaps["tried"], gaps["cut"]),
        false => String::new(),
    };
    format!("harm {harm}, status {status}, {naming}{gaps}{seconds:.1} s; first: {first}")
}

fn described(result: &Result<Outcome, String>, is_correct: bool) -> String {
    match result {
        Ok(done) => outcome(done, is_correct),
        Err(error) => format!("failed: {error}"),
    }
}

/// Row in three lines.
pub fn line(row: &Row) -> String {
    let is_control = row.program.pattern.is_control();
    format!(
        "{}\n    program: {}\n    twin: {}",
        row.program.id(),
        described(&row.outcome, is_control),
        described(&row.twin, true)
    )
}

/// Cases that are not as they should be, with the command for each.
fn failing(rows: &[Row]) -> String {
    let mut text = String::from(
        "\nNot as they should be; `cargo xtask bench matrix --case ID` runs one alone:\n",
    );
    for row in rows {
        let is_control = row.program.pattern.is_control();
        let name = if is_control { "control" } else { "program" };
        for (name, result, is_correct) in
            [(name, &row.outcome, is_control), ("twin", &row.twin, true)]
        {
            if !is_as_it_should_be(result, is_correct) {
                let described = described(result, is_correct);
                let _ = writeln!(text, "{}\n    {name}: {described}", row.program.id());
            }
        }
    }
    text
}

/// Returns whether a correct program was quiet, or the bug of another one was named first if it did harm.
fn is_as_it_should_be(result: &Result<Outcome, String>, is_correct: bool) -> bool {
    match result {
        Ok(done) if is_correct => {
            let defects = done.verdict.likely + done.verdict.possible;
            done.status != FINDINGS && defects == 0 && done.harm == 0
        }
        Ok(done) => !done.is_to_be_named || done.verdict.naming == Naming::First,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use matrix::{Program, Verdict};

    use super::*;

    fn done(harm: u64, naming: Naming, likely: usize) -> Result<Outcome, String> {
        let status = if likely > 0 { FINDINGS } else { 0 };
        let verdict = Verdict { naming, likely, possible: 0, headline: None };
        let (is_to_be_named, report) = (harm > 0, serde_json::Value::Null);
        Ok(Outcome { harm, is_to_be_named, status, verdict, report, seconds: 1.0 })
    }

    fn row(pattern: &str, outcome: Result<Outcome, String>, twin: Result<Outcome, String>) -> Row {
        let id = format!("{pattern}.c.mutex.global.helpers.sleep.gcc-O2.4.loop");
        Row { program: Program::parse(&id).unwrap(), outcome, twin }
    }

    #[test]
    fn programs_that_did_harm_and_correct_ones_are_counted() {
        let quiet = || done(0, Naming::Missed, 0);
        let rows = [
            row("lost-update", done(5, Naming::First, 1), quiet()),
            row("lost-update", done(5, Naming::Possible, 0), done(0, Naming::Missed, 1)),
            row("lost-update", quiet(), Err("no compiler".to_owned())),
            row("two-counters", quiet(), quiet()),
        ];
        let text = whole(&rows);
        let numbers = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            let words = line[28..].split_whitespace();
            words.filter_map(|word| word.parse().ok()).collect::<Vec<usize>>()
        };
        // Programs, harmful; first, later, possible, by design, missed, share; correct, quiet, possible, likely, 66;
        // failed.
        assert_eq!(numbers("whole"), [3, 2, 1, 0, 1, 0, 0, 50, 4, 3, 0, 1, 1, 1]);
        assert_eq!(numbers("pattern: lost-update"), [3, 2, 1, 0, 1, 0, 0, 50, 2, 1, 0, 1, 1, 1]);
        assert_eq!(numbers("pattern: two-counters"), [0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0]);
        assert_eq!(text.matches("twin: ").count(), 2, "{text}");
        assert_eq!(text.matches("program: ").count(), 1, "{text}");
    }

    #[test]
    fn a_hunt_is_to_name_a_bug_that_did_no_harm() {
        let hunted = done(0, Naming::Missed, 0).map(|of| Outcome { is_to_be_named: true, ..of });
        let text = whole(&[row("lost-update", hunted, done(0, Naming::Missed, 0))]);
        assert!(text.contains("program: harm 0, status 0, missed"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("whole") && line.contains("0 %")));
    }

    #[test]
    fn a_twin_that_counts_anomalies_has_failed() {
        let rows = [row("lost-update", done(0, Naming::Missed, 0), done(2, Naming::Missed, 0))];
        let text = whole(&rows);
        assert!(text.contains("twin: harm 2"), "{text}");
    }
}
