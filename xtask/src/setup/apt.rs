//! Packages on Debian and its relatives: installed ones, available ones, and their installation.

use std::fs;
use std::process::Command;

use anyhow::{Result, anyhow};
use bpf_build::Release;

use crate::process::{self, Privilege};

/// The compiler and the `core` for BPF that fits it; always of one version.
const RUST_FOR_BPF: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];

/// The package manager.
pub struct Apt {
    privilege: Privilege,
    /// Set if this run has brought the package lists up to date.
    updated: bool,
}

impl Apt {
    /// The package manager, if this is a system that has it.
    pub fn detect() -> Option<Self> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let there = is_debian(&release) && bpf_build::find_on_path("apt-get").is_some();
        there.then(|| Self { privilege: Privilege::detect(), updated: false })
    }

    /// Debian's Rust packages for BPF, if they can be had in a version that will do.
    pub fn rust_for_bpf(&mut self) -> Result<Option<Vec<&'static str>>> {
        if self.candidate(RUST_FOR_BPF[1])?.is_none() {
            return Ok(None);
        }
        let version = self.candidate(RUST_FOR_BPF[0])?;
        let release = version.as_deref().and_then(Release::parse);
        if release.is_some_and(|release| release >= Release::oldest_usable()) {
            return Ok(Some(RUST_FOR_BPF.to_vec()));
        }
        if let Some(version) = version {
            let oldest = Release::oldest_usable();
            println!("setup: {} {version} is older than {oldest}", RUST_FOR_BPF[0]);
        }
        Ok(None)
    }

    /// The version of a package that would be installed, if any. Brings the package lists up to
    /// date, once, when they do not know the package.
    pub fn candidate(&mut self, package: &str) -> Result<Option<String>> {
        if let Some(version) = candidate(package) {
            return Ok(Some(version));
        }
        if self.updated {
            return Ok(None);
        }
        if self.privilege == Privilege::None {
            println!("setup: the package lists do not know {package}; only root can renew them");
            return Ok(None);
        }
        println!("setup: the package lists do not know {package}");
        self.update()?;
        Ok(candidate(package))
    }

    /// Installs the missing ones of `packages`.
    ///
    /// # Errors
    /// When that fails or must not be done; the message has the command to run.
    pub fn install(&mut self, packages: &[&str]) -> Result<()> {
        let missing: Vec<_> =
            packages.iter().copied().filter(|package| policy(package).0.is_none()).collect();
        if missing.is_empty() { Ok(()) } else { self.install_newest(&missing) }
    }

    /// Installs `packages` in the version on offer, also where an older one is there.
    ///
    /// # Errors
    /// As for [`install`](Self::install).
    pub fn install_newest(&mut self, packages: &[&str]) -> Result<()> {
        let words = install_words(packages);
        let by_hand = format!(
            "run as root: apt-get update && {}; then try again",
            process::display(Command::new("env").args(&words))
        );
        let names = packages.join(", ");
        let Some(mut install) = self.privilege.command("env") else {
            return Err(anyhow!("{names} cannot be installed without root; {by_hand}"));
        };
        install.args(&words);
        println!("setup: installing {names}");
        if process::run(&mut install).is_ok() {
            return Ok(());
        }
        // Lists that name files the mirror no longer has are the usual reason.
        if !self.updated {
            println!("setup: trying again with new package lists");
            self.update()?;
            if process::run(&mut install).is_ok() {
                return Ok(());
            }
        }
        Err(anyhow!("installing {names} failed; {by_hand}"))
    }

    /// Brings the package lists up to date.
    fn update(&mut self) -> Result<()> {
        self.updated = true;
        match self.privilege.command("apt-get") {
            Some(mut command) => process::run(command.args(["update", "--quiet"])),
            None => Err(anyhow!("the package lists are out of date; run as root: apt-get update")),
        }
    }
}

/// The words after `env` that install `packages` without questions and without removing others: the user decides
/// about packages in conflict with installed ones.
fn install_words<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec![
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "-y",
        "--no-remove",
        "--no-install-recommends",
    ];
    words.extend(packages);
    words
}

/// Returns whether `/etc/os-release` names Debian or a system made from it.
fn is_debian(os_release: &str) -> bool {
    os_release.lines().any(|line| {
        let Some((key, value)) = line.split_once('=') else { return false };
        matches!(key, "ID" | "ID_LIKE")
            && value
                .trim_matches('"')
                .split_whitespace()
                .any(|id| matches!(id, "debian" | "ubuntu"))
    })
}

/// State of a package: the installed version and the one on offer.
fn policy(package: &str) -> (Option<String>, Option<String>) {
    let output = process::answer(
        Command::new("apt-cache").env("LC_ALL", "C").args(["policy", "--", package]),
    );
    parse_policy(&output.unwrap_or_default())
}

/// The version of a package on offer.
fn candidate(package: &str) -> Option<String> {
    policy(package).1
}

/// The installed version and the candidate in the output of `apt-cache policy`.
fn parse_policy(output: &str) -> (Option<String>, Option<String>) {
    let field = |name: &str| {
        let value = output.lines().find_map(|line| line.trim().strip_prefix(name))?.trim();
        (value != "(none)").then(|| value.to_owned())
    };
    (field("Installed:"), field("Candidate:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_its_relatives_are_known() {
        assert!(is_debian("PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n"));
        assert!(is_debian("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian("ID=fedora\nHOME_URL=\"https://debian.example/\"\n"));
        assert!(!is_debian(""));
    }

    #[test]
    fn reads_what_apt_knows() {
        let both = "gcc:\n  Installed: 4:12.2.0-3\n  Candidate: 4:12.2.0-4\n  Version table:\n";
        assert_eq!(parse_policy(both), (Some("4:12.2.0-3".into()), Some("4:12.2.0-4".into())));
        let absent = "gcc:\n  Installed: (none)\n  Candidate: 4:12.2.0-4\n";
        assert_eq!(parse_policy(absent), (None, Some("4:12.2.0-4".into())));
        assert_eq!(parse_policy("gcc:\n  Installed: (none)\n  Candidate: (none)\n"), (None, None));
        assert_eq!(parse_policy(""), (None, None));
    }

    #[test]
    fn without_root_the_command_is_shown() {
        let mut apt = Apt { privilege: Privilege::None, updated: false };
        let error = apt.install(&["avtrace-no-such-package"]).unwrap_err().to_string();
        assert!(
            error.contains(
                "run as root: apt-get update && env DEBIAN_FRONTEND=noninteractive apt-get \
                 install -y --no-remove --no-install-recommends avtrace-no-such-package; then"
            ),
            "{error}"
        );
    }
}
