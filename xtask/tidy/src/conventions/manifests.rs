//! Rules for package manifests: the licence and the workspace's lints; and the licence texts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Problem, Source};
use crate::workspace::Package;

/// The licence of everything here.
const LICENCE: &str = "license = \"MIT OR Apache-2.0\"";
/// Files with the texts of the licences.
const TEXTS: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

pub fn check(source: &Source<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if source.path.file_name().is_none_or(|name| name != "Cargo.toml") {
        return problems;
    }
    let packaged = section(source.text, "[package]").is_some();
    let has = |name: &str, lines: &[&str]| {
        section(source.text, name)
            .is_some_and(|body| body.lines().any(|line| lines.contains(&line.trim())))
    };
    if packaged && !has("[package]", &["license.workspace = true", LICENCE]) {
        problems.push(source.whole(format!("the package does not say `{LICENCE}`")));
    }
    if !packaged && !has("[workspace.package]", &[LICENCE]) {
        problems.push(source.whole(format!("the workspace does not say `{LICENCE}`")));
    }
    problems
}

/// Checks that the packages of the workspace take its lints.
///
/// # Errors
/// When a manifest cannot be read.
pub fn check_lints(packages: &[Package], root: &Path) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for package in packages {
        let path = package.dir.join("Cargo.toml");
        let text = fs::read_to_string(root.join(&path))
            .with_context(|| format!("failed to read {}", path.display()))?;
        let lints = section(&text, "[lints]").unwrap_or_default();
        if !lints.lines().any(|line| line.trim() == "workspace = true") {
            let what = "the package does not take the workspace's lints".to_owned();
            problems.push(Problem { path, line: None, what });
        }
    }
    Ok(problems)
}

/// Checks that the texts of the licence are there.
pub fn check_licences(root: &Path) -> Vec<Problem> {
    let missing = TEXTS.iter().filter(|name| !root.join(name).is_file());
    missing
        .map(|name| Problem {
            path: PathBuf::from(name),
            line: None,
            what: "the text of the licence is missing".to_owned(),
        })
        .collect()
}

/// Text between the heading `name` and the next one.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut start = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some(start) = start
            && line.starts_with('[')
        {
            return Some(&text[start..at]);
        }
        at += line.len();
        if line.trim() == name {
            start = Some(at);
        }
    }
    start.map(|start| &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&Source { path: Path::new(path), text }).len()
    }

    #[test]
    fn good_manifests_pass() {
        let member =
            "[package]\nname = \"a\"\nlicense.workspace = true\n\n[lints]\nworkspace = true\n";
        assert_eq!(problems("a/Cargo.toml", member), 0);
        let root = format!("[workspace]\nmembers = []\n[workspace.package]\n{LICENCE}\n");
        assert_eq!(problems("Cargo.toml", &root), 0);
        let inner = format!("[package]\n{LICENCE}\n");
        assert_eq!(problems("tests/programs/a/Cargo.toml", &inner), 0);
        assert_eq!(problems("rustfmt.toml", "max_width = 100\n"), 0);
    }

    #[test]
    fn a_missing_licence_is_found() {
        let lints = "[lints]\nworkspace = true\n";
        assert_eq!(problems("a/Cargo.toml", &format!("[package]\nname = \"a\"\n{lints}")), 1);
        let other = format!("[package]\nlicense = \"MIT\"\n{lints}");
        assert_eq!(problems("a/Cargo.toml", &other), 1);
        let misplaced = format!("[package]\n{lints}[x]\nlicense.workspace = true\n");
        assert_eq!(problems("a/Cargo.toml", &misplaced), 1);
        assert_eq!(problems("Cargo.toml", "[workspace]\n"), 1);
    }

    #[test]
    fn packages_take_the_lints() {
        let root = tempfile::tempdir().unwrap();
        let packages = ["a", "b/c"].map(|dir| Package { dir: dir.into(), ..Package::default() });
        for (package, text) in packages.iter().zip(["[lints]\nworkspace = true\n", "[lints]\n"]) {
            fs::create_dir_all(root.path().join(&package.dir)).unwrap();
            fs::write(root.path().join(&package.dir).join("Cargo.toml"), text).unwrap();
        }
        let found = check_lints(&packages, root.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, Path::new("b/c/Cargo.toml"));
    }

    #[test]
    fn missing_texts_are_found() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(check_licences(root.path()).len(), TEXTS.len());
        fs::write(root.path().join(TEXTS[0]), "").unwrap();
        assert_eq!(check_licences(root.path()).len(), TEXTS.len() - 1);
    }
}
