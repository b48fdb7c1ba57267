//! `cargo xtask bpf`: compiles the BPF programs for machines without a BPF toolchain, into the package that embeds
//! them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use bpf_build::{SHIPPED_OBJECT, SHIPPED_SOURCES};

use crate::{process, setup, workspace};

/// Package that embeds the object.
const PACKAGE: &str = "tracer-user/capture";

/// Compiles the programs and writes the object, without its line tables, and the fingerprint of its sources. With
/// `checks` it compares the object with the existing one instead.
///
/// # Errors
/// When they cannot be compiled, or the object is another one.
pub fn run(checks: bool) -> Result<()> {
    let toolchain = setup::run()?;
    let source_dir = workspace::root().join(bpf_build::DIRECTORY);
    let out_dir = workspace::target_dir()?.join("bpf");
    fs::create_dir_all(&out_dir)?;
    let built = bpf_build::build(&toolchain, &source_dir, &out_dir)?;
    let stripped = out_dir.join("avtrace-bpf.o");
    let mut strip =
        Command::new(objcopy().context("install `llvm`: its `llvm-objcopy` is needed")?);
    process::run(strip.arg("--strip-debug").arg(&built.path).arg(&stripped))?;
    let package = workspace::root().join(PACKAGE);
    let (object, sources) = (package.join(SHIPPED_OBJECT), package.join(SHIPPED_SOURCES));
    let fingerprint = bpf_build::fingerprint(&source_dir)?.context("there are no sources")?;
    if checks {
        if fs::read(&stripped)? != fs::read(&object).unwrap_or_default() {
            bail!("{} is not what the sources give: run `cargo xtask bpf`", object.display());
        }
        return Ok(());
    }
    fs::create_dir_all(object.parent().unwrap_or(&package))?;
    fs::copy(&stripped, &object)?;
    fs::write(sources, format!("{fingerprint}\n"))?;
    println!("{}: {} bytes", object.display(), fs::metadata(&object)?.len());
    Ok(())
}

/// Checks that the object that is there was compiled from the sources: another compiler makes another one of them.
///
/// # Errors
/// When it was not.
pub fn must_be_of_sources() -> Result<()> {
    let root = workspace::root();
    match bpf_build::shipped(&root.join(PACKAGE), &root.join(bpf_build::DIRECTORY))? {
        Some(_) => Ok(()),
        None => bail!("the BPF programs have changed: run `cargo xtask bpf`"),
    }
}

/// Finds the `llvm-objcopy` of the newest LLVM.
fn objcopy() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix("llvm-")?.parse().ok()?;
            Some((version, entry.path().join("bin/llvm-objcopy")))
        })
        .filter(|(_, path)| Path::is_file(path))
        .collect();
    found.sort();
    found.pop().map(|(_, path)| path).or_else(|| bpf_build::find_on_path("llvm-objcopy"))
}
