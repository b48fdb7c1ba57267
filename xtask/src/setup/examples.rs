//! Tools of the examples' test set-ups: runners of tests from PyPI, in a folder of the target directory, since
//! distributions have older ones; C++ test frameworks from Debian. Their tests skip themselves without.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Apt;
use crate::{process, workspace};

/// Packages of PyPI, each with a command of its name.
const PYTHON_PACKAGES: [&str; 4] = ["cmake", "meson", "ninja", "pytest"];
/// Debian packages of test frameworks, by a file of each.
const FRAMEWORKS: [(&str, &str); 2] =
    [("/usr/include/gtest/gtest.h", "libgtest-dev"), ("/usr/include/catch2", "catch2")];

/// Installs what is missing, where it can.
///
/// # Errors
/// When there is no target directory.
pub fn tools() -> Result<()> {
    let folder = workspace::target_dir()?.join("test-tools");
    if let Err(error) = python_tools(&folder) {
        println!("setup: the examples' tests have no {}: {error:#}", PYTHON_PACKAGES.join(", "));
    }
    let missing = FRAMEWORKS.iter().filter(|(file, _)| !Path::new(file).exists());
    let missing: Vec<&str> = missing.map(|&(_, package)| package).collect();
    if !missing.is_empty()
        && let Some(mut apt) = Apt::detect()
        && let Err(error) = apt.install(&missing)
    {
        println!("setup: the examples' tests have no {}: {error:#}", missing.join(", "));
    }
    Ok(())
}

/// Installs the packages of PyPI into a virtual environment in `folder`.
fn python_tools(folder: &Path) -> Result<()> {
    let programs = folder.join("bin");
    if PYTHON_PACKAGES.iter().all(|name| programs.join(name).exists()) {
        return Ok(());
    }
    println!("setup: installing {} to {}", PYTHON_PACKAGES.join(", "), folder.display());
    process::run(Command::new("python3").args(["-m", "venv"]).arg(folder))
        .context("install Python 3 with its module venv")?;
    let mut install = Command::new(programs.join("pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check"]).args(PYTHON_PACKAGES);
    process::run(&mut install).context("PyPI has to be within reach")
}
