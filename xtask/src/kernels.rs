//! `cargo xtask kernels`: boots kernels in QEMU, runs a suite in each that tries what avtrace does there, and prints
//! a table.

mod archive;
pub mod guest;
mod image;
pub mod left_behind;
pub mod machine;
mod packages;
mod results;
mod running;
mod suite;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use self::{
    machine::{Booted, Processor},
    packages::Kernel,
    results::{Column, Line},
};
use crate::{setup, setup::apt::Apt, workspace};

/// Time for one kernel, most of which an emulated machine needs that shares its processors with others.
const LIMIT: Duration = Duration::from_secs(3600);

/// Tries the named kernels, or Debian's. `only` selects checks by words in their names.
///
/// # Errors
/// When something is missing, or a check fails in a kernel; the message lists all that did.
pub fn run(named: &[PathBuf], emulate: bool, only: &[String]) -> Result<()> {
    let checks: Vec<_> = suite::selected(only)
        .map(|check| check.name)
        .filter(|&name| name != suite::RELEASE)
        .collect();
    let has_space = |word: &String| word.contains(char::is_whitespace);
    if checks.is_empty() || only.iter().any(has_space) {
        let names = suite::CHECKS.iter().map(|check| check.name).collect::<Vec<_>>();
        bail!("no check is selected; give `--only` one word of a name: {}", names.join(", "));
    }
    setup::run()?;
    provide_qemu()?;
    let folder = workspace::target_dir()?.join("kernels");
    fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let kernels = if named.is_empty() {
        packages::offered(&folder)?
    } else {
        named.iter().map(|file| packages::named(file, &folder)).collect::<Result<_>>()?
    };
    let initramfs = image::build(&folder)?;
    println!("{}: {} MiB", initramfs.display(), machine::mebibytes(&initramfs));
    let mut processor = if emulate { Processor::Emulated } else { machine::best_processor() };
    let mut columns = Vec::new();
    for kernel in &kernels {
        println!("\n{}", kernel.name);
        let log = folder.join(format!("{}.log", kernel.name));
        let booted = boot(kernel, &initramfs, &mut processor, only, &log)?;
        if !booted.is_complete {
            println!("  ended early ({}):", log.display());
            booted.last.iter().for_each(|line| println!("    {line}"));
        }
        columns.push(column(kernel, booted));
    }
    println!("\n{}", results::table(&checks, &columns));
    let failures = results::failures(&checks, &columns);
    if !failures.is_empty() {
        bail!("{} checks failed:\n  {}", failures.len(), failures.join("\n  "));
    }
    println!("{} passed, 0 failed", checks.len() * columns.len());
    Ok(())
}

/// Boots a kernel with KVM or, where that cannot boot it, emulated; then the next ones are as well.
fn boot(
    kernel: &Kernel,
    initramfs: &Path,
    processor: &mut Processor,
    only: &[String],
    log: &Path,
) -> Result<Booted> {
    if *processor == Processor::Kvm {
        let booted = machine::boot(kernel, initramfs, *processor, only, log, LIMIT)?;
        if booted.has_begun() {
            return Ok(booted);
        }
        println!("  KVM does not boot it here: it is emulated, which takes minutes");
        *processor = Processor::Emulated;
    }
    machine::boot(kernel, initramfs, *processor, only, log, LIMIT)
}

fn column(kernel: &Kernel, booted: Booted) -> Column {
    let release = booted.lines.iter().find_map(|line| match line {
        Line::Result { check, detail, .. } if check == suite::RELEASE => Some(detail.clone()),
        _ => None,
    });
    Column { kernel: release.unwrap_or_else(|| kernel.name.clone()), lines: booted.lines }
}

/// Installs QEMU where it is missing.
fn provide_qemu() -> Result<()> {
    if bpf_build::find_on_path(machine::PROGRAM).is_some() {
        return Ok(());
    }
    match Apt::detect() {
        Some(mut apt) => apt.install(&["qemu-system-x86"]),
        None => bail!("{} not found; install QEMU with your package manager", machine::PROGRAM),
    }
}
