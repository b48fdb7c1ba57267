//! Measures of a workspace, each a line with its number: its size, its shape, its functions and names, and the language
//! of its comments. Each concern has a file below this one.

pub mod circles;
mod docs;
mod functions;
pub mod lines;
mod names;
mod prose;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::syntax::{self, RustFile};
use crate::workspace::{self, Package};

/// A number with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    pub name: String,
    pub number: f64,
    /// More about the number; empty if its name says all.
    pub note: String,
}

impl Measure {
    fn new(name: impl Into<String>, number: usize) -> Self {
        Self::with_note(name, number, String::new())
    }

    fn with_note(name: impl Into<String>, number: usize, note: String) -> Self {
        Self { name: name.into(), number: number as f64, note }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = (self.number * 10.0).round() / 10.0;
        write!(f, "{}: {number}", self.name)?;
        if !self.note.is_empty() {
            write!(f, " ({})", self.note)?;
        }
        Ok(())
    }
}

/// A workspace, read once for all measures.
pub struct Tree {
    pub packages: Vec<Package>,
    /// Files that modules name.
    pub files: Vec<RustFile>,
    /// All Rust files with their text, also the files that no module names.
    pub rust: Vec<TextFile>,
    /// Markdown files with their text.
    pub markdown: Vec<TextFile>,
}

/// A file that is text.
pub struct TextFile {
    /// Relative to the root of the workspace.
    pub path: PathBuf,
    pub text: String,
}

impl Tree {
    /// # Errors
    /// When files cannot be read, or cargo finds no workspace at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let packages = workspace::packages(root)?;
        let mut files = syntax::read(root, &packages)?;
        for file in &mut files {
            file.is_test |= is_below_tests(&file.path);
        }
        let mut tree = Self { packages, files, rust: Vec::new(), markdown: Vec::new() };
        for path in workspace::files(root)? {
            let kind = path.extension().and_then(|extension| extension.to_str());
            let list = match kind {
                Some("rs") => &mut tree.rust,
                Some("md") => &mut tree.markdown,
                _ => continue,
            };
            let text = fs::read_to_string(root.join(&path))?;
            list.push(TextFile { path, text });
        }
        Ok(tree)
    }

    /// Name of the package that a file lies in, or "no crate".
    pub fn package_of(&self, path: &Path) -> &str {
        // Packages lie in each other's directories.
        let owners = self.packages.iter().filter(|package| path.starts_with(&package.dir));
        let owner = owners.max_by_key(|package| package.dir.as_os_str().len());
        owner.map_or("no crate", |package| &package.name)
    }

    /// Files of production code.
    pub fn production(&self) -> impl Iterator<Item = &RustFile> {
        self.files.iter().filter(|file| !file.is_test)
    }
}

/// Returns whether a file belongs to the packages of end-to-end tests and fuzz targets.
fn is_below_tests(path: &Path) -> bool {
    path.starts_with("tests") || path.starts_with("fuzz")
}

/// Prints the measures of the workspace at `root`.
///
/// # Errors
/// When it cannot be read.
pub fn run(root: &Path) -> Result<()> {
    for measure in measures(&Tree::read(root)?) {
        println!("{measure}");
    }
    Ok(())
}

/// All measures, with distinct names.
pub fn measures(tree: &Tree) -> Vec<Measure> {
    let mut measures = lines::measure(tree);
    measures.extend(circles::measure(tree));
    measures.push(arrows(&tree.packages));
    measures.extend(functions::measure(tree));
    measures.extend(names::measure(tree));
    measures.extend(docs::measure(tree));
    measures.extend(prose::measure(tree));
    measures
}

/// Dependencies between packages of the workspace, except dependencies of tests.
fn arrows(packages: &[Package]) -> Measure {
    let number = packages.iter().map(|package| package.uses.len()).sum();
    let lists: Vec<String> = (packages.iter())
        .filter(|package| !package.uses.is_empty())
        .map(|package| format!("{} → {}", package.name, package.uses.join(", ")))
        .collect();
    Measure::with_note("arrows between crates", number, lists.join("; "))
}

/// Makes the tree of a package with these files, whose root is `src/lib.rs`. For tests.
#[cfg(test)]
pub fn sample(files: &[(&str, &str)]) -> Tree {
    let texts = |extension: &str| {
        let named = files.iter().filter(|(path, _)| path.ends_with(extension));
        named.map(|(path, text)| TextFile { path: path.into(), text: (*text).to_owned() }).collect()
    };
    Tree {
        packages: vec![Package { name: "sample".to_owned(), ..Package::default() }],
        files: syntax::sample(files),
        rust: texts(".rs"),
        markdown: texts(".md"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_are_lines_with_a_number() {
        assert_eq!(Measure::new("lines", 12).to_string(), "lines: 12");
        let rate = Measure { name: "rate".to_owned(), number: 2.0 / 3.0, note: "of 9".to_owned() };
        assert_eq!(rate.to_string(), "rate: 0.7 (of 9)");
    }

    #[test]
    fn arrows_are_counted_and_listed() {
        let package = |name: &str, uses: &[&str]| Package {
            name: name.to_owned(),
            uses: uses.iter().map(|name| (*name).to_owned()).collect(),
            tests_use: vec!["c".to_owned()],
            ..Package::default()
        };
        let measure = arrows(&[package("a", &["b", "c"]), package("b", &["c"]), package("c", &[])]);
        assert_eq!(measure.to_string(), "arrows between crates: 3 (a → b, c; b → c)");
    }
}
