//! The rule for dependencies between packages of the workspace: each is in the list of allowed ones, [`LIST`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::Problem;
use crate::workspace::Package;

/// Path of the list, relative to the workspace.
const LIST: &str = "xtask/tidy/src/conventions/arrows.txt";

/// Names of the packages that a package, or its tests, may use.
#[derive(Debug, Default, PartialEq, Eq)]
struct Allowed<'a> {
    uses: Vec<&'a str>,
    tests_use: Vec<&'a str>,
}

/// Checks the dependencies of all packages.
///
/// # Errors
/// When the list cannot be read.
pub fn check(packages: &[Package], root: &Path) -> Result<Vec<Problem>> {
    let text =
        fs::read_to_string(root.join(LIST)).with_context(|| format!("failed to read {LIST}"))?;
    Ok(compare(packages, &parse(&text)?))
}

fn compare(packages: &[Package], list: &BTreeMap<&str, Allowed<'_>>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let none = Allowed::default();
    for package in packages {
        let allowed = list.get(package.name.as_str()).unwrap_or(&none);
        let is_allowed = |name: &str| allowed.uses.contains(&name);
        let of_tests = |name: &str| is_allowed(name) || allowed.tests_use.contains(&name);
        let wrong = package.uses.iter().filter(|name| !is_allowed(name));
        let wrong = wrong.chain(package.tests_use.iter().filter(|name| !of_tests(name)));
        problems.extend(wrong.map(|name| Problem {
            path: package.dir.join("Cargo.toml"),
            line: None,
            what: format!("{} may not depend on {name}: see {LIST}", package.name),
        }));
    }
    problems.extend(list.keys().filter(|name| packages.iter().all(|p| p.name != **name)).map(
        |name| Problem {
            path: PathBuf::from(LIST),
            line: None,
            what: format!("there is no package {name}"),
        },
    ));
    problems
}

/// Reads lines such as `a: b c | d`: `a` may use `b` and `c`, and its tests `d` as well.
fn parse(text: &str) -> Result<BTreeMap<&str, Allowed<'_>>> {
    let mut list = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((package, names)) = line.split_once(':') else {
            bail!("{LIST}: no package in `{line}`");
        };
        let (uses, tests_use) = names.split_once('|').unwrap_or((names, ""));
        let allowed = Allowed {
            uses: uses.split_whitespace().collect(),
            tests_use: tests_use.split_whitespace().collect(),
        };
        list.insert(package, allowed);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(list: &str) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let package = |name: &str, uses: &[&str], tests_use: &[&str]| Package {
            name: name.to_owned(),
            dir: name.into(),
            roots: Vec::new(),
            uses: names(uses),
            tests_use: names(tests_use),
        };
        let packages =
            [package("a", &["b"], &["c"]), package("b", &[], &[]), package("c", &[], &[])];
        compare(&packages, &parse(list).unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn listed_arrows_are_allowed() {
        assert!(problems("# head\na: b | c\nb:\n").is_empty());
        assert!(problems("a: b c\nb: c\nc:\n").is_empty());
    }

    #[test]
    fn other_arrows_are_found() {
        let found = problems("a: c\nd: a\n");
        let of_a = format!("a/Cargo.toml: a may not depend on b: see {LIST}");
        assert_eq!(found, [of_a, format!("{LIST}: there is no package d")]);
        assert_eq!(
            problems("a: b\n"),
            [format!("a/Cargo.toml: a may not depend on c: see {LIST}")]
        );
        assert!(parse("a b\n").is_err());
    }
}
