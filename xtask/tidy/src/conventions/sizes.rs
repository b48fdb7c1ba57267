//! The rule for the size of crates: a crate that grows too large is taken apart.

use super::Problem;
use crate::measure::{Tree, lines};

/// The most lines of Rust of a package, without tests.
const LINES: usize = 30_000;

pub fn check(tree: &Tree) -> Vec<Problem> {
    over(tree, LINES)
}

fn over(tree: &Tree, most: usize) -> Vec<Problem> {
    let crates = lines::of_crates(tree);
    let problem = |package: &crate::workspace::Package| {
        let lines = crates.get(package.name.as_str()).map_or(0, |lines| lines.production);
        let what = format!("{lines} lines of Rust are more than {most}: take the crate apart");
        (lines > most).then(|| Problem { path: package.dir.clone(), line: None, what })
    };
    tree.packages.iter().filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample;

    #[test]
    fn large_crates_are_found() {
        let files =
            [("src/lib.rs", "mod a;\n"), ("src/a.rs", "//\n//\n"), ("tests/b.rs", "//\n//\n")];
        let tree = sample(&files);
        assert!(over(&tree, 3).is_empty());
        let found = over(&tree, 2);
        assert_eq!(found[0].what, "3 lines of Rust are more than 2: take the crate apart");
    }
}
