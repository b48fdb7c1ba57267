//! Tools of the examples' test set-ups: runners of tests from PyPI, in a folder of the target directory, since
//! distributions have older ones; C++ test frameworks from Debian. Their tests skip themselves without.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Apt;
use crate::{process, workspace};

/// Packages of PyPI, each with a file of the virtual environment.
const PYTHON_PACKAGES: [(&str, &str); 5] = [
    ("cmake", "bin/cmake"),
    ("duckdb", "lib/python3*/site-packages/duckdb"),
    ("meson", "bin/meson"),
    ("ninja", "bin/ninja"),
    ("pytest", "bin/pytest"),
];
/// Packages that are large.
const LARGE_PACKAGES: [(&str, &str); 1] = [("ray", "lib/python3*/site-packages/ray")];
/// Debian packages of test frameworks, of automake and of Python's headers, by a file of each.
const FRAMEWORKS: [(&str, &str); 5] = [
    ("usr/include/gtest/gtest.h", "libgtest-dev"),
    ("usr/include/catch2", "catch2"),
    ("usr/include/python3*/Python.h", "python3-dev"),
    ("usr/bin/automake", "automake"),
    ("usr/bin/libtoolize", "libtool"),
];

/// Installs missing tools, where it can.
///
/// # Errors
/// When there is no target directory.
pub fn tools() -> Result<()> {
    python_packages(&PYTHON_PACKAGES)?;
    let missing = FRAMEWORKS.iter().filter(|(file, _)| !exists(Path::new("/"), file));
    let missing: Vec<&str> = missing.map(|&(_, package)| package).collect();
    if !missing.is_empty()
        && let Some(mut apt) = Apt::detect()
        && let Err(error) = apt.install(&missing)
    {
        println!("setup: the examples' tests have no {}: {error:#}", missing.join(", "));
    }
    Ok(())
}

/// Installs the further tools of tests that take minutes.
///
/// # Errors
/// When there is no target directory.
pub fn large_tools() -> Result<()> {
    python_packages(&LARGE_PACKAGES)
}

/// Installs packages of PyPI that are missing into the virtual environment, and says so where it cannot.
fn python_packages(packages: &[(&str, &str)]) -> Result<()> {
    let folder = workspace::target_dir()?.join("test-tools");
    let missing = packages.iter().filter(|(_, file)| !exists(&folder, file));
    let missing: Vec<&str> = missing.map(|&(package, _)| package).collect();
    if !missing.is_empty()
        && let Err(error) = install(&folder, &missing)
    {
        println!("setup: the examples' tests have no {}: {error:#}", missing.join(", "));
    }
    Ok(())
}

/// Returns whether a file is there, in whose path one part may end in `*`.
fn exists(folder: &Path, file: &str) -> bool {
    let Some((before, after)) = file.split_once("*/") else { return folder.join(file).exists() };
    let (directory, start) = before.rsplit_once('/').unwrap_or(("", before));
    let entries = fs::read_dir(folder.join(directory)).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .any(|entry| entry.path().join(after).exists())
}

/// Installs packages of PyPI into a virtual environment.
fn install(folder: &Path, packages: &[&str]) -> Result<()> {
    println!("setup: installing {} to {}", packages.join(", "), folder.display());
    let pip = folder.join("bin/pip");
    if !pip.exists() {
        process::run(Command::new("python3").args(["-m", "venv"]).arg(folder))
            .context("install Python 3 with its module venv")?;
    }
    let mut install = Command::new(pip);
    install.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
    process::run(&mut install).context("PyPI has to be within reach")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_below_any_version() {
        let folder = workspace::target_dir().expect("a directory").join("test-tools-of-a-test");
        let package = folder.join("lib/python3.99/site-packages/thing");
        fs::create_dir_all(&package).expect("a directory");
        assert!(exists(&folder, "lib/python3*/site-packages/thing"));
        assert!(!exists(&folder, "lib/python3*/site-packages/other"));
        assert!(!exists(&folder, "lib/python2*/site-packages/thing"));
        fs::remove_dir_all(folder).expect("a directory");
    }
}
