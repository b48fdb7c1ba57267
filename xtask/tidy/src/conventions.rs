//! The conventions that no compiler checks. This file walks the workspace and prints; the rules are in the files
//! below it, one a concern.

mod arrows;
mod ceilings;
mod circles;
mod dependencies;
mod guide;
mod language;
mod links;
mod manifests;
mod references;
mod rust;
mod sizes;
mod text_files;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::measure::{self, Tree};
use crate::workspace;

/// A rule broken at a line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    /// The file, relative to the workspace.
    path: PathBuf,
    /// The line, from 1; `None` when it is about the whole file.
    line: Option<usize>,
    /// The rule, in words.
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// A file of the workspace that holds text.
struct Source<'a> {
    /// Relative to the workspace.
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    /// Returns whether the file's name ends in one of `extensions`.
    fn is(&self, extensions: &[&str]) -> bool {
        self.path.extension().is_some_and(|own| extensions.iter().any(|e| own == *e))
    }

    /// A problem at a line, from 1.
    fn at(&self, line: usize, what: impl Into<String>) -> Problem {
        Problem { path: self.path.to_owned(), line: Some(line), what: what.into() }
    }

    /// A problem of the whole file.
    fn whole(&self, what: impl Into<String>) -> Problem {
        Problem { path: self.path.to_owned(), line: None, what: what.into() }
    }
}

/// Uses of the lists of exceptions: places, circles, ceilings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// Compares the workspace with them.
    Check,
    /// Lowers their entries to the present numbers.
    Update,
    /// Writes the list of places anew, higher entries included.
    Replace,
}

/// Checks the workspace, and prints every broken rule.
///
/// # Errors
/// When a rule is broken, a file cannot be read, or the list cannot be updated.
pub fn run(lists: Lists) -> Result<()> {
    let root = workspace::root();
    let mut problems = Vec::new();
    let mut language = BTreeMap::new();
    let files = workspace::files(root)?;
    for path in &files {
        let bytes = fs::read(root.join(path))
            .with_context(|| format!("failed to read {}", path.display()))?;
        // Binary files, such as recorded traces, have no lines to check.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let source = Source { path, text: &text };
        problems.extend(text_files::check(&source));
        problems.extend(rust::check(&source));
        problems.extend(manifests::check(&source));
        problems.extend(links::check(&source, root));
        problems.extend(guide::check(&source, &files));
        problems.extend(references::check(&source, root, &files));
        language.insert(path.clone(), language::find(&source));
    }
    let tree = Tree::read(root)?;
    let (measures, circles) = (measure::measures(&tree), measure::circles::find(&tree));
    if lists == Lists::Check {
        problems.extend(language::check(&language, root)?);
        problems.extend(circles::check(&circles, root)?);
        problems.extend(ceilings::check(&measures, root)?);
    } else {
        language::update(&language, root, lists == Lists::Replace)?;
        circles::update(&circles, root)?;
        ceilings::update(&measures, root)?;
    }
    problems.extend(manifests::check_lints(&tree.packages, root)?);
    problems.extend(arrows::check(&tree.packages, root)?);
    problems.extend(sizes::check(&tree));
    problems.extend(manifests::check_licences(root));
    problems.extend(dependencies::check()?);
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: {} files are in order", files.len());
            Ok(())
        }
        1 => bail!("tidy: one rule is broken"),
        n => bail!("tidy: rules are broken in {n} places"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_print_like_a_compilers() {
        let source = Source { path: Path::new("a/b.rs"), text: "" };
        assert_eq!(source.at(3, "why").to_string(), "a/b.rs:3: why");
        assert_eq!(source.whole("why").to_string(), "a/b.rs: why");
    }
}
