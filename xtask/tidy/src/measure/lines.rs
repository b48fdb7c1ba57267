//! Lines of Rust, of the workspace and of each crate: all lines of a file, comments and empty ones included. Tests are
//! files and items that are compiled for tests only, and files that no module of production code names: suites,
//! benchmarks, examples, and programs that tests compile.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Measure, Tree};

/// Lines of one crate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Lines {
    pub production: usize,
    pub tests: usize,
}

pub fn measure(tree: &Tree) -> Vec<Measure> {
    let crates = of_crates(tree);
    let sum = |lines: fn(&Lines) -> usize| crates.values().map(lines).sum();
    let mut measures = vec![
        Measure::new("lines of Rust, production", sum(|lines| lines.production)),
        Measure::new("lines of Rust, tests", sum(|lines| lines.tests)),
        Measure::new("files of Rust", tree.rust.len()),
    ];
    measures.extend(crates.iter().map(|(name, lines)| {
        let note = format!("{} of tests", lines.tests);
        Measure::with_note(format!("lines of {name}"), lines.production, note)
    }));
    measures
}

/// Lines of each crate, by its name. Files that belong to no package are in "no crate".
pub fn of_crates(tree: &Tree) -> BTreeMap<&str, Lines> {
    let mut crates = BTreeMap::<&str, Lines>::new();
    let named: BTreeMap<&Path, _> = tree.files.iter().map(|f| (f.path.as_path(), f)).collect();
    for file in &tree.rust {
        let total = file.text.lines().count();
        let tests = named
            .get(file.path.as_path())
            .map_or(total, |file| file.test_lines().into_iter().map(|range| range.count()).sum());
        let lines = crates.entry(tree.package_of(&file.path)).or_default();
        lines.production += total - tests;
        lines.tests += tests;
    }
    crates
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn lines_of_tests_are_counted_apart() {
        let tree = sample(&[
            ("src/lib.rs", "//! A.\n\nmod a;\n#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n"),
            ("src/a.rs", "fn f() {}\n"),
            ("tests/suite.rs", "fn f() {}\nfn g() {}\n"),
        ]);
        assert_eq!(of_crates(&tree)["sample"], Lines { production: 4, tests: 6 });
    }
}
