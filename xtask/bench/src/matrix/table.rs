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
    /// By [`Naming::ALL`], of those that did harm.
    named: [usize; 5],
    correct: usize,
    findings: usize,
    likely: usize,
    failed: usize,
}

impl Counts {
    fn add(&mut self, row: &Row) {
        let is_control = row.program.pattern.is_control();
        if !is_control {
            self.programs += 1;
            match &row.outcome {
                Ok(outcome) if outcome.harm > 0 => {
                    self.harmful += 1;
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
                    self.likely += usize::from(outcome.verdict.likely > 0);
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
        let share = match self.harmful {
            0 => "-".to_owned(),
            harmful => format!("{} %", 100 * self.named[0] / harmful),
        };
        let quiet = self.correct - self.findings;
        let _ = writeln!(
            line,
            " {share:>6} | {:>7} {quiet:>6} {:>4} {:>7} | {:>6}",
            self.correct, self.findings, self.likely, self.failed
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
        " {:>6} | {:>7} {:>6} {:>4} {:>7} | {:>6}",
        "", "correct", "quiet", "66", "likely", "failed"
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
fn dimension<D: Dimension>(
    text: &mut String,
    half: Half,
    counts: &HashMap<(&str, &str), Counts>,
) {
    for value in D::ALL.iter().filter(|value| value.half().is_in(half)) {
        if let Some(counts) = counts.get(&(D::NAME, value.word())) {
            text.push_str(&counts.line(&format!("{}: {}", D::NAME, value.word())));
        }
    }
}

/// Outcome of a run in one line.
pub fn outcome(outcome: &Outcome) -> String {
    let Outcome { harm, status, verdict, seconds } = outcome;
    let first = verdict.headline.as_deref().unwrap_or("no defect");
    format!("harm {harm}, status {status}, {}, {seconds:.1} s; first: {first}", verdict.naming.words())
}

/// Row in one line.
pub fn line(row: &Row) -> String {
    let one = |result: &Result<Outcome, String>| match result {
        Ok(done) => outcome(done),
        Err(error) => format!("failed: {error}"),
    };
    format!("{}\n    program: {}\n    twin: {}", row.program.id(), one(&row.outcome), one(&row.twin))
}

/// Cases that are not as they should be, with the command for each.
fn failing(rows: &[Row]) -> String {
    let mut text = String::from("\nNot as they should be; `cargo xtask bench matrix --case ID` runs one alone:\n");
    for row in rows {
        let is_control = row.program.pattern.is_control();
        let complaint = match &row.outcome {
            Err(error) => Some(format!("failed: {error}")),
            Ok(done) if is_control => false_alarm(done),
            Ok(done) if done.harm > 0 && done.verdict.naming != Naming::First => {
                Some(outcome(done))
            }
            Ok(_) => None,
        };
        let about_twin = match &row.twin {
            Err(error) => Some(format!("failed: {error}")),
            Ok(done) => false_alarm(done),
        };
        let program = if is_control { "control" } else { "program" };
        for (which, complaint) in [(program, complaint), ("twin", about_twin)] {
            if let Some(complaint) = complaint {
                let _ = writeln!(text, "{}\n    {which}: {complaint}", row.program.id());
            }
        }
    }
    text
}

/// Complaint about a correct program that was not quiet or counted anomalies.
fn false_alarm(done: &Outcome) -> Option<String> {
    let is_quiet = done.status != FINDINGS && done.verdict.likely == 0 && done.harm == 0;
    (!is_quiet).then(|| outcome(done))
}
