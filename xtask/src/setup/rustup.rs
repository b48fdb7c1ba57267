//! The compiler by way of rustup: a nightly with the source of the standard library.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process;

/// A toolchain is some hundred megabytes; a mirror that has none may not answer at all.
const LIMIT: Duration = Duration::from_secs(600);

/// The words after `rustup` that install a nightly with its source, or add the source to it.
const WORDS: [&str; 7] =
    ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "rust-src"];

/// Has rustup install it.
///
/// # Errors
/// When there is no rustup, or it fails, or takes too long; the message has the command to run.
pub fn install_source() -> Result<()> {
    if bpf_build::find_on_path("rustup").is_none() {
        bail!(
            "no compiler for BPF can be had from this system's packages, and there is no rustup; \
             install rustup (https://rustup.rs), then run: rustup {}",
            WORDS.join(" ")
        );
    }
    let mut command = Command::new("rustup");
    command.args(WORDS).env_remove("RUSTUP_TOOLCHAIN");
    match process::run_within(&mut command, LIMIT) {
        Ok(()) => Ok(()),
        Err(error) => bail!("{error}; run it by hand, or install another nightly with rust-src"),
    }
}
