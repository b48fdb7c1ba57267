//! Tools of the examples' test set-ups: runners of tests from PyPI, in a folder of the target directory, since
//! distributions have older ones; C++ test frameworks from Debian. Their tests skip themselves without.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Apt;
use crate::{process, workspace};

/// Packages of PyPI, each with a command of its name.
const PYTHON_PACKAGES: [&str; 4] = ["cmake", "meson", "ninja", "pytest"];
/// Those of the tests that take long, which are large.
const LARGE_PYTHON_PACKAGES: [&str; 1] = ["ray"];
/// Debian packages of test frameworks, by a file of each.
const FRAMEWORKS: [(&str, &str); 2] =
    [("/usr/include/gtest/gtest.h", "libgtest-dev"), ("/usr/include/catch2", "catch2")];

/// Installs what is missing, where it can.
///
/// # Errors
/// When there is no target directory.
pub fn tools() -> Result<()> {
    install_python_tools(&PYTHON_PACKAGES)?;
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

/// Installs the tools of examples whose tests take long, where it can.
///
/// # Errors
/// When there is no target directory.
pub fn large_tools() -> Result<()> {
    install_python_tools(&LARGE_PYTHON_PACKAGES)
}

fn install_python_tools(packages: &[&str]) -> Result<()> {
    let folder = workspace::target_dir()?.join("test-tools");
    if let Err(error) = python_tools(&folder, packages) {
        println!("setup: the examples' tests have no {}: {error:#}", packages.join(", "));
    }
    Ok(())
}

/// Installs packages of PyPI into a virtual environment in `folder`.
fn python_tools(folder: &Path, packages: &[&str]) -> Result<()> {
    let programs = folder.join("bin");
    if packages.iter().all(|name| programs.join(name).exists()) {
        return Ok(());
    }
    println!("setup: installing {} to {}", packages.join(", "), folder.display());
    process::run(Command::new("python3").args(["-m", "venv"]).arg(folder))
        .context("install Python 3 with its module venv")?;
    let mut install = Command::new(programs.join("pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
    process::run(&mut install).context("PyPI has to be within reach")
}
