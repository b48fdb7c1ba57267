//! Building `bpf-linker` on an LLVM of the right major version.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, anyhow, bail};
use bpf_build::LlvmMajor;

use super::apt::Apt;
use crate::{process, workspace};

/// The release that avtrace is tried with, and the LLVM versions it can be built on.
const RELEASE: &str = "0.13.0";
const BUILDS_ON: std::ops::RangeInclusive<u32> = 21..=23;

/// Number of major versions after the compiler's that an LLVM is looked for; it reads older bitcode.
const LATER: u32 = 2;

/// An LLVM to build the linker on: its major version and where it is installed.
pub struct Llvm {
    major: LlvmMajor,
    prefix: PathBuf,
}

/// Finds an LLVM that reads the bitcode of `llvm`: the nearest version in packages, of which it installs the missing
/// ones; else an installed one from elsewhere.
///
/// # Errors
/// When the packages there are cannot be installed.
pub fn provide_llvm(llvm: LlvmMajor, apt: Option<&mut Apt>) -> Result<Option<Llvm>> {
    if let Some(apt) = apt {
        for major in readers(llvm) {
            let (dev, polly) = (format!("llvm-{major}-dev"), format!("libpolly-{major}-dev"));
            if apt.candidate(&dev)?.is_none() {
                continue;
            }
            let others = ["libzstd-dev", "zlib1g-dev", "g++", "libc6-dev", "binutils"];
            apt.install(&[&[dev.as_str(), &polly], &others[..]].concat())?;
            if let Some(prefix) = prefix(major) {
                return Ok(Some(Llvm { major, prefix }));
            }
            bail!("{dev} is installed, and its llvm-config is not to be found; reinstall {dev}");
        }
    }
    Ok(readers(llvm).find_map(|major| Some(Llvm { major, prefix: prefix(major)? })))
}

/// Remedy where there is no LLVM to build on.
pub fn by_hand(llvm: LlvmMajor) -> String {
    format!(
        "install LLVM {llvm} or later with its development files (`llvm-config` on PATH), a C++ \
         compiler and the development files of zlib and zstd, and run `cargo xtask setup` again; \
         or install a ready-made bpf-linker of such an LLVM: cargo binstall bpf-linker"
    )
}

/// Builds and installs the linker.
///
/// # Errors
/// When building fails.
pub fn install(llvm: &Llvm) -> Result<()> {
    println!("setup: building bpf-linker on LLVM {} in {}", llvm.major, llvm.prefix.display());
    process::run(&mut build(llvm)).map_err(|error| {
        anyhow!("{error}; the messages above say why, most often a library that is missing")
    })
}

/// The major versions that read the bitcode of `llvm`, the nearest first.
fn readers(llvm: LlvmMajor) -> impl Iterator<Item = LlvmMajor> {
    (llvm.0..=llvm.0 + LATER).map(LlvmMajor)
}

/// Directory of an installed LLVM of a major version, development files included.
fn prefix(major: LlvmMajor) -> Option<PathBuf> {
    let candidates = [
        format!("llvm-config-{major}"),
        format!("/usr/lib/llvm-{major}/bin/llvm-config"),
        "llvm-config".to_owned(),
    ];
    candidates.into_iter().find_map(|tool| {
        let version = process::answer(Command::new(&tool).arg("--version"))?;
        if version.split('.').next()?.trim().parse() != Ok(major.0) {
            return None;
        }
        // The tool is also in packages without the libraries to link with.
        let libraries = process::answer(Command::new(&tool).arg("--libdir"))?;
        let mut libraries = fs::read_dir(libraries.trim()).ok()?.flatten();
        let linkable = |name: &str| {
            name.starts_with("libLLVM") && (name.ends_with(".so") || name.ends_with(".a"))
        };
        libraries.any(|file| linkable(&file.file_name().to_string_lossy())).then_some(())?;
        let prefix = process::answer(Command::new(&tool).arg("--prefix"))?;
        Some(PathBuf::from(prefix.trim()))
    })
}

/// The command that builds and installs the linker.
fn build(llvm: &Llvm) -> Command {
    let Llvm { major, prefix } = llvm;
    let mut command = workspace::cargo();
    command.args(["install", "bpf-linker", "--locked", "--force"]);
    if BUILDS_ON.contains(&major.0) {
        command.args(["--version", RELEASE]);
    }
    command
        .args(["--no-default-features", "--features"])
        .arg(format!("llvm-{major}"))
        // Its own build script reads the one, the bindings' the other.
        .env("LLVM_PREFIX", prefix)
        .env(format!("LLVM_SYS_{major}1_PREFIX"), prefix)
        // Flags meant for this workspace are not meant for it.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llvm(major: u32) -> Llvm {
        Llvm { major: LlvmMajor(major), prefix: "/opt/llvm".into() }
    }

    #[test]
    fn the_command_names_feature_and_prefix() {
        let shown = process::display(&build(&llvm(22)));
        assert!(
            shown.contains("LLVM_PREFIX=/opt/llvm LLVM_SYS_221_PREFIX=/opt/llvm ")
                && shown.ends_with("--version 0.13.0 --no-default-features --features llvm-22"),
            "{shown}"
        );
    }

    #[test]
    fn an_llvm_beyond_the_tried_release_takes_the_newest() {
        let shown = process::display(&build(&llvm(24)));
        assert!(!shown.contains("--version") && shown.contains("llvm-24"), "{shown}");
    }

    #[test]
    fn later_llvms_are_tried_after_the_compilers_own() {
        assert_eq!(readers(LlvmMajor(22)).next(), Some(LlvmMajor(22)));
        assert!(readers(LlvmMajor(22)).all(|major| major >= LlvmMajor(22)));
    }
}
