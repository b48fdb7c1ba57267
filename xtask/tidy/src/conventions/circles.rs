//! The rule for circles of imports: each is in [`LIST`] with its reason, or part of a listed one. The list only gets
//! shorter: an entry is removed once its circle is gone, and lowered once files have left it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::Problem;
use crate::measure::circles::Circle;

/// Path of the list, relative to the workspace.
const LIST: &str = "xtask/tidy/src/conventions/circles.txt";

/// Head of the list.
const HEAD: &str = "\
# Circles of imports: the reason for each, then its files. They only get fewer: cargo xtask tidy --update
";

/// A circle that is known, and may stay for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownCircle {
    reason: String,
    files: Vec<String>,
}

impl KnownCircle {
    fn covers(&self, circle: &Circle) -> bool {
        circle.files.iter().all(|file| self.files.contains(file))
    }
}

/// Compares the circles with the list in the workspace.
///
/// # Errors
/// When the list is not readable, or is no list.
pub fn check(found: &[Circle], root: &Path) -> Result<Vec<Problem>> {
    Ok(compare(found, &read(root)?))
}

fn compare(found: &[Circle], list: &[KnownCircle]) -> Vec<Problem> {
    let unknown = found.iter().filter(|circle| !list.iter().any(|entry| entry.covers(circle)));
    let mut problems: Vec<Problem> = (unknown)
        .map(|circle| Problem {
            path: PathBuf::from(&circle.files[0]),
            line: None,
            what: format!("a new circle of imports: {}", circle.files.join(", ")),
        })
        .collect();
    if lowered(found, list).len() < list.len() {
        let what = "some circles are gone: `cargo xtask tidy --update`".to_owned();
        problems.push(Problem { path: PathBuf::from(LIST), line: None, what });
    }
    problems
}

/// Rewrites the list for the present circles, without adding any.
///
/// # Errors
/// When a file cannot be read or written.
pub fn update(found: &[Circle], root: &Path) -> Result<()> {
    let list = lowered(found, &read(root)?);
    fs::write(root.join(LIST), render(&list)).with_context(|| format!("failed to write {LIST}"))
}

/// Entries of circles that are there, with the files that are in them.
fn lowered(found: &[Circle], list: &[KnownCircle]) -> Vec<KnownCircle> {
    let entry_of = |circle: &Circle| {
        let entry = list.iter().find(|entry| entry.covers(circle))?;
        Some(KnownCircle { reason: entry.reason.clone(), files: circle.files.clone() })
    };
    found.iter().filter_map(entry_of).collect()
}

fn read(root: &Path) -> Result<Vec<KnownCircle>> {
    let text =
        fs::read_to_string(root.join(LIST)).with_context(|| format!("failed to read {LIST}"))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<KnownCircle>> {
    let mut list: Vec<KnownCircle> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("    "), list.last_mut()) {
            (Some(file), Some(entry)) => entry.files.push(file.to_owned()),
            (Some(_), None) => bail!("{LIST}: a circle starts with its reason"),
            (None, _) => list.push(KnownCircle { reason: line.to_owned(), files: Vec::new() }),
        }
    }
    if let Some(entry) = list.iter().find(|entry| entry.files.len() < 2) {
        bail!("{LIST}: a circle has two files or more: {}", entry.reason);
    }
    Ok(list)
}

fn render(list: &[KnownCircle]) -> String {
    let mut text = HEAD.to_owned();
    for entry in list {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{}\n", entry.reason);
        for file in &entry.files {
            let _ = writeln!(text, "    {file}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(files: &[&str]) -> Circle {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Circle { package: "a".to_owned(), files }
    }

    const TEXT: &str = "# head\n\nA tree names its leaves.\n    a.rs\n    b.rs\n    c.rs\n";

    #[test]
    fn known_circles_and_parts_of_them_pass() {
        let list = parse(TEXT).unwrap();
        assert!(compare(&[circle(&["a.rs", "b.rs", "c.rs"])], &list).is_empty());
        assert!(compare(&[circle(&["a.rs", "c.rs"])], &list).is_empty());
    }

    #[test]
    fn new_circles_and_old_entries_are_found() {
        let list = parse(TEXT).unwrap();
        let found = compare(&[circle(&["a.rs", "d.rs"])], &list);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found[0], "a.rs: a new circle of imports: a.rs, d.rs");
        assert!(found[1].contains("are gone"), "{found:?}");
    }

    #[test]
    fn an_update_removes_and_never_adds() {
        let list = parse(TEXT).unwrap();
        let found = [circle(&["a.rs", "b.rs"]), circle(&["d.rs", "e.rs"])];
        let lowered = lowered(&found, &list);
        assert_eq!(
            render(&lowered),
            format!("{HEAD}\nA tree names its leaves.\n    a.rs\n    b.rs\n")
        );
        assert_eq!(parse(&render(&lowered)).unwrap(), lowered);
    }

    #[test]
    fn a_circle_has_a_reason_and_files() {
        assert!(parse("    a.rs\n").is_err());
        assert!(parse("Why.\n    a.rs\n").is_err());
    }
}
