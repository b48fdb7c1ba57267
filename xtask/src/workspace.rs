//! Paths of the workspace and its target directory, and the cargo that is running us.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// The root of the workspace.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The target directory in use, wherever configuration put it: this program lies in one of its
/// profile directories.
///
/// # Errors
/// When the system does not know the path of this program.
pub fn target_dir() -> Result<PathBuf> {
    let program = env::current_exe().context("failed to find the path of this program")?;
    let target = program.ancestors().nth(2).context("this program is not in a target directory")?;
    Ok(target.to_owned())
}

/// A command for the cargo that runs us, in the root of the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
