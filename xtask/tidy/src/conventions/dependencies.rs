//! The rule for `checker`: no dependency of it knows an operating system.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::Problem;
use crate::workspace;

/// The package that is to stay pure, and its folder.
const PURE: &str = "avtrace-checker";
const FOLDER: &str = "checker";
/// Packages that it must not depend on, by itself or through others.
const SYSTEM: [&str; 3] = ["aya", "libc", "nix"];

/// Asks cargo for everything the pure package depends on here, where libc would show.
pub fn check() -> Result<Vec<Problem>> {
    let output = workspace::cargo(workspace::root())
        .args(["tree", "--package", PURE, "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}", "--quiet"])
        .output()
        .context("failed to run cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let problems = impure(&String::from_utf8_lossy(&output.stdout)).into_iter().map(|name| {
        let what = format!("{PURE} depends on {name}, which knows of an operating system");
        Problem { path: PathBuf::from(FOLDER).join("Cargo.toml"), line: None, what }
    });
    Ok(problems.collect())
}

/// The packages in the output of `cargo tree` that must not be there, each once.
fn impure(tree: &str) -> Vec<String> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let mut found: Vec<_> = names
        .filter(|name| {
            SYSTEM.iter().any(|system| {
                name.strip_prefix(system).is_some_and(|rest| {
                    // aya-obj and aya-ebpf are as much a part of it as aya.
                    rest.is_empty() || (*system == "aya" && rest.starts_with('-'))
                })
            })
        })
        .map(str::to_owned)
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pure_tree_passes() {
        assert!(impure("checker v0.1.0 (path)\nrustc-hash v2.1.1\nlibcrux v0.1.0\n").is_empty());
    }

    #[test]
    fn impure_packages_are_found_once() {
        let tree =
            "checker v0.1.0\nmemmap2 v0.9.12\nlibc v0.2.0\nlibc v0.2.0 (*)\naya-obj v0.3.0\n";
        assert_eq!(impure(tree), ["aya-obj", "libc"]);
    }
}
