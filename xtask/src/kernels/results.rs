//! Results of the suite: their lines on the console, and the table of all kernels.

use std::fmt;

use anyhow::Result;

/// Mark at the begin of each line of the suite.
const MARK: &str = "@@avtrace";

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Result that is expected.
    Works,
    /// Result that is not expected.
    Fails,
    /// Not to be had with this kernel, as documented.
    Absent,
}

const OUTCOMES: [(Outcome, &str); 3] =
    [(Outcome::Works, "ok"), (Outcome::Fails, "FAILS"), (Outcome::Absent, "no")];

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word =
            OUTCOMES.iter().find(|(outcome, _)| outcome == self).map_or("", |(_, word)| word);
        formatter.write_str(word)
    }
}

/// Outcome of a check that could be made.
pub struct Found {
    /// The outcome.
    pub outcome: Outcome,
    /// Figures.
    pub detail: String,
}

impl Found {
    /// Outcome of a check that has passed.
    ///
    /// # Errors
    /// Never; checks return it as theirs.
    pub fn works(detail: impl Into<String>) -> Result<Self> {
        Ok(Self { outcome: Outcome::Works, detail: detail.into() })
    }
}

/// A line of the suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The suite has begun.
    Begin,
    /// A check has an outcome.
    Result {
        /// The check's name.
        check: String,
        /// Its outcome.
        outcome: Outcome,
        /// Figures, or the error.
        detail: String,
    },
    /// The suite has come to its end.
    End,
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => write!(formatter, "{MARK}|begin"),
            Self::End => write!(formatter, "{MARK}|end"),
            Self::Result { check, outcome, detail } => {
                let detail: String = detail.chars().map(plain).take(2000).collect();
                write!(formatter, "{MARK}|{check}|{outcome}|{}", detail.trim())
            }
        }
    }
}

/// A character that cannot break a line.
fn plain(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

impl Line {
    /// Parses a line of the console; `None` for lines of other programs. Kernel messages before it on the same line
    /// are ignored.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line[line.find(MARK)? + MARK.len()..].splitn(4, '|').skip(1);
        Some(match (fields.next()?, fields.next(), fields.next()) {
            ("begin", None, None) => Self::Begin,
            ("end", None, None) => Self::End,
            (check, Some(word), Some(detail)) => {
                let &(outcome, _) = OUTCOMES.iter().find(|(_, other)| *other == word)?;
                Self::Result { check: check.to_owned(), outcome, detail: detail.to_owned() }
            }
            _ => return None,
        })
    }
}

/// A column of the table: a kernel, and its results.
pub struct Column {
    /// The kernel's release, or its package's name where it did not come so far.
    pub kernel: String,
    /// Lines of the suite.
    pub lines: Vec<Line>,
}

impl Column {
    fn result(&self, name: &str) -> Option<(Outcome, &str)> {
        self.lines.iter().find_map(|line| match line {
            Line::Result { check, outcome, detail } if check == name => Some((*outcome, &**detail)),
            _ => None,
        })
    }
}

/// A table in Markdown with one row for each check and one column for each kernel. Details of failures are left out.
pub fn table(checks: &[&str], columns: &[Column]) -> String {
    let cell = |column: &Column, check: &str| match column.result(check) {
        None => "not run".to_owned(),
        Some((Outcome::Fails, _)) | Some((_, "")) => {
            column.result(check).map_or_else(String::new, |(outcome, _)| outcome.to_string())
        }
        Some((outcome, detail)) => format!("{outcome}: {detail}"),
    };
    let mut rows = vec![
        columns.iter().map(|column| column.kernel.clone()).collect::<Vec<_>>(),
        columns.iter().map(|_| "---".to_owned()).collect(),
    ];
    rows[0].insert(0, "check".to_owned());
    rows[1].insert(0, "---".to_owned());
    for check in checks {
        let cells = columns.iter().map(|column| cell(column, check));
        rows.push([(*check).to_owned()].into_iter().chain(cells).collect());
    }
    let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
    rows.iter().map(line).collect::<String>()
}

/// Failures, and checks without a result.
pub fn failures(checks: &[&str], columns: &[Column]) -> Vec<String> {
    let mut failures = Vec::new();
    for column in columns {
        for check in checks {
            match column.result(check) {
                Some((Outcome::Fails, detail)) => {
                    failures.push(format!("{}: {check}: {detail}", column.kernel));
                }
                None => failures.push(format!("{}: {check}: not run", column.kernel)),
                Some(_) => {}
            }
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(check: &str, outcome: Outcome, detail: &str) -> Line {
        Line::Result { check: check.to_owned(), outcome, detail: detail.to_owned() }
    }

    #[test]
    fn lines_are_read_as_they_were_printed() {
        let lines = [
            Line::Begin,
            result("attach", Outcome::Works, "1.5 s"),
            result("doctor", Outcome::Fails, "a | b"),
            result("watch", Outcome::Absent, ""),
            Line::End,
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.to_string()), Some(line));
        }
        let printed = result("x", Outcome::Fails, "two\nlines\x1b[1m\n").to_string();
        assert!(!printed.contains(['\n', '\x1b']), "{printed}");
    }

    #[test]
    fn lines_of_others_are_ignored() {
        let kernels = "[    1.5] random: crng init done";
        assert_eq!(Line::parse(kernels), None);
        assert_eq!(Line::parse(&format!("{kernels}{}", Line::End)), Some(Line::End));
        assert_eq!(Line::parse("@@avtrace|check|perhaps|x"), None);
        assert_eq!(Line::parse("@@avtrace"), None);
    }

    #[test]
    fn what_was_not_run_has_failed() {
        let lines = vec![result("a", Outcome::Works, "2 s"), result("b", Outcome::Fails, "bad")];
        let columns = [Column { kernel: "6.1".to_owned(), lines }];
        let checks = ["a", "b", "c"];
        let expected =
            "| check | 6.1 |\n| --- | --- |\n| a | ok: 2 s |\n| b | FAILS |\n| c | not run |\n";
        assert_eq!(table(&checks, &columns), expected);
        assert_eq!(failures(&checks, &columns), ["6.1: b: bad", "6.1: c: not run"]);
        assert!(failures(&["a"], &columns).is_empty());
    }
}
