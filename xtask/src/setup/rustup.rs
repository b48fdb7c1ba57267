//! The compiler by way of rustup: a nightly with the source of the standard library.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use bpf_build::{RejectedCompiler, Unfit};

use crate::process;

/// A toolchain is some hundred megabytes; a mirror without nightlies may not answer at all.
const LIMIT: Duration = Duration::from_secs(600);

/// Has rustup add the source to a nightly that lacks nothing else, or install a nightly with it.
///
/// # Errors
/// When there is no rustup, or it fails, or takes too long; the message has the command to run.
pub fn install_source(rejected: &[RejectedCompiler]) -> Result<()> {
    let words = words(rejected);
    if bpf_build::find_on_path("rustup").is_none() {
        bail!(
            "no compiler for BPF can be had from this system's packages, and there is no rustup; \
             install rustup (https://rustup.rs), then run: rustup {}",
            words.join(" ")
        );
    }
    let mut command = Command::new("rustup");
    command.args(&words).env_remove("RUSTUP_TOOLCHAIN").env_remove("RUST_BACKTRACE");
    match process::run_within(&mut command, LIMIT) {
        Ok(()) => Ok(()),
        Err(error) => bail!("{error}; run it by hand, or install another nightly with rust-src"),
    }
}

/// The words after `rustup`. A nightly that is there is added to and not renewed: someone may rely
/// on it as it is.
fn words(rejected: &[RejectedCompiler]) -> Vec<&str> {
    let incomplete =
        rejected.iter().find(|c| c.name.starts_with("nightly") && c.why == Unfit::NoCore);
    match incomplete {
        Some(nightly) => vec!["component", "add", "rust-src", "--toolchain", &nightly.name],
        None => {
            vec!["toolchain", "install", "nightly", "--profile=minimal", "--component=rust-src"]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(name: &str, why: Unfit) -> RejectedCompiler {
        RejectedCompiler { name: name.to_owned(), why }
    }

    #[test]
    fn a_nightly_without_source_is_completed() {
        let list = [rejected("stable", Unfit::NoCore), rejected("nightly-x", Unfit::NoCore)];
        assert_eq!(words(&list).join(" "), "component add rust-src --toolchain nightly-x");
    }

    #[test]
    fn without_a_usable_nightly_one_is_installed() {
        let broken = rejected("nightly-x", Unfit::Unusable("no".to_owned()));
        for list in [&[][..], &[rejected("stable", Unfit::NoCore)], &[broken]] {
            assert_eq!(words(list)[..3], ["toolchain", "install", "nightly"]);
        }
    }
}
