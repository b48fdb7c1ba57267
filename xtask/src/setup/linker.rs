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

/// How many major versions later than the compiler's an LLVM is looked for; it reads older bitcode.
const LATER: u32 = 2;

/// Builds and installs a linker that reads the bitcode of `llvm`, with an LLVM that is here or that
/// packages can provide.
///
/// # Errors
/// When there is no LLVM to build on, or building fails; the message has the remedy.
pub fn install(llvm: LlvmMajor, apt: Option<&mut Apt>) -> Result<()> {
    let (major, prefix) = match apt {
        Some(apt) => from_packages(llvm, apt)?,
        None => here(llvm)?,
    };
    println!("setup: building bpf-linker on LLVM {major} in {}", prefix.display());
    process::run(&mut build(major, &prefix)).map_err(|error| {
        anyhow!("{error}; its messages above name what is missing, most often a library of LLVM")
    })
}

/// The major versions that read the bitcode of `llvm`, the nearest first.
fn readers(llvm: LlvmMajor) -> impl Iterator<Item = LlvmMajor> {
    (llvm.0..=llvm.0 + LATER).map(LlvmMajor)
}

/// An LLVM from Debian's packages, installed if it is not there.
fn from_packages(llvm: LlvmMajor, apt: &mut Apt) -> Result<(LlvmMajor, PathBuf)> {
    for major in readers(llvm) {
        let (dev, polly) = (format!("llvm-{major}-dev"), format!("libpolly-{major}-dev"));
        if apt.candidate(&dev)?.is_none() {
            continue;
        }
        apt.install(&[&dev, &polly, "libzstd-dev", "zlib1g-dev", "g++", "libc6-dev", "binutils"])?;
        if let Some(prefix) = prefix(major) {
            return Ok((major, prefix));
        }
        bail!(
            "{dev} is installed, and llvm-config-{major} is not to be found; reinstall llvm-{major}"
        );
    }
    here(llvm)
}

/// An LLVM that is here already, whoever installed it.
fn here(llvm: LlvmMajor) -> Result<(LlvmMajor, PathBuf)> {
    if let Some(found) = readers(llvm).find_map(|major| Some((major, prefix(major)?))) {
        return Ok(found);
    }
    bail!(
        "bpf-linker has to be built on LLVM {llvm} or later, and there is none; either install \
         LLVM's development files (with `llvm-config` on PATH), a C++ compiler and the development \
         files of zlib and zstd, and run `cargo xtask setup` again, or install a ready-made \
         bpf-linker of that LLVM: cargo binstall bpf-linker"
    )
}

/// Where the LLVM of a major version is installed, development files and all.
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
fn build(major: LlvmMajor, prefix: &std::path::Path) -> Command {
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
    use std::path::Path;

    #[test]
    fn the_command_names_feature_and_prefix() {
        let shown = process::display(&build(LlvmMajor(22), Path::new("/opt/llvm")));
        assert!(
            shown.contains("LLVM_PREFIX=/opt/llvm LLVM_SYS_221_PREFIX=/opt/llvm ")
                && shown.ends_with("--version 0.13.0 --no-default-features --features llvm-22"),
            "{shown}"
        );
    }

    #[test]
    fn an_llvm_beyond_the_tried_release_takes_the_newest() {
        let shown = process::display(&build(LlvmMajor(24), Path::new("/opt/llvm")));
        assert!(!shown.contains("--version") && shown.contains("llvm-24"), "{shown}");
    }

    #[test]
    fn later_llvms_are_tried_after_the_compilers_own() {
        assert_eq!(readers(LlvmMajor(22)).next(), Some(LlvmMajor(22)));
        assert!(readers(LlvmMajor(22)).all(|major| major >= LlvmMajor(22)));
    }
}
