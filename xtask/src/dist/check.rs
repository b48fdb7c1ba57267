//! Tries the packages in a Debian system that has nothing but what debootstrap installs: no compiler, no libraries of
//! a toolchain. Needs root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{process, workspace};

/// Debian release of the system.
const RELEASE: &str = "bookworm";

/// Commands in the system, as root. `$1` is the name of the package's file, `$2` that of the archive's. The bank
/// program has a defect, for which avtrace ends with 66.
const SCRIPT: &str = r#"
set -eu
for tool in cc gcc rustc cargo; do
    if command -v "$tool"; then echo "$tool is installed: this system proves nothing" >&2; exit 1; fi
done
finds_the_defect() {
    status=0
    "$@" 2>/report.txt || status=$?
    cat /report.txt
    [ "$status" = 66 ] && grep -q '`transfer`' /report.txt
}
echo "== the package"
dpkg --install "/packages/$1"
avtrace --version
avtrace doctor
finds_the_defect avtrace --capture inline /demo/bank
avtrace record --capture inline --embed-sources -o /demo/bank.avt /demo/bank
status=0; avtrace report --format json -o /demo/bank.json /demo/bank.avt || status=$?
[ "$status" = 66 ]
avtrace diff /demo/bank.avt /demo/bank.json
for file in /usr/include/avtrace.h /usr/share/bash-completion/completions/avtrace /usr/share/doc/avtrace/copyright; do
    [ -s "$file" ]
done
dpkg --remove avtrace
if command -v avtrace; then echo "avtrace is left after its package was removed" >&2; exit 1; fi
echo "== the archive"
tar -xzf "/packages/$2" -C /opt
finds_the_defect "/opt/${2%.tar.gz}/bin/avtrace" --capture inline /demo/bank
[ -s "/opt/${2%.tar.gz}/share/man/man1/avtrace.1" ]
"#;

/// Makes the system if there is none yet, and tries both packages in it.
///
/// # Errors
/// When a package does not work, or the system cannot be made.
pub(super) fn run(dist: &Path, archive: &Path, package: &Path) -> Result<()> {
    let system = system(dist)?;
    let packages = system.join("packages");
    for directory in [&packages, &system.join("demo"), &system.join("opt")] {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir_all(directory)?;
    }
    for path in [archive, package] {
        fs::copy(path, packages.join(file_name(path)?))?;
    }
    let mut compiler = Command::new("cc");
    compiler
        .current_dir(workspace::root())
        .args(["-g", "-O1", "-static", "-pthread", "-I", "markers/include", "-o"])
        .arg(system.join("demo/bank"))
        .arg("tests/programs/c/bank.c");
    process::run(&mut compiler)?;
    // Its mounts end with it.
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", MOUNTED, "sh"]).arg(&system).args([
        SCRIPT,
        file_name(package)?,
        file_name(archive)?,
    ]);
    process::run(&mut command)?;
    println!("Both packages work in a Debian system without a toolchain.");
    Ok(())
}

/// Mounts what a running system has, and executes the script `$2` in the system `$1`.
const MOUNTED: &str = r#"
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -c "$2" sh "$3" "$4"
"#;

fn file_name(path: &Path) -> Result<&str> {
    path.file_name().and_then(|name| name.to_str()).context("a file with a name")
}

/// Returns the directory of the system.
fn system(dist: &Path) -> Result<PathBuf> {
    let system = dist.join("debian");
    if system.join("usr/bin/dpkg").exists() {
        return Ok(system);
    }
    if bpf_build::find_on_path("debootstrap").is_none() {
        bail!("debootstrap is needed to try the packages: install the package debootstrap");
    }
    // A folder of an earlier attempt may be incomplete.
    let draft = dist.join("debian.part");
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    let mut debootstrap = Command::new("debootstrap");
    process::run(debootstrap.args(["--variant=minbase", RELEASE]).arg(&draft))
        .context("the packages are tried as root: call `cargo xtask dist --check` as root")?;
    fs::rename(draft, &system)?;
    Ok(system)
}
