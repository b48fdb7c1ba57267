//! Tries the packages in a fresh Debian system from debootstrap: without a compiler, and without libraries of a
//! toolchain. Needs root, and the mirror that apt uses on this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{process, setup::apt::Apt, workspace};

/// Commands in the system, as root. `$1` is the file name of the package, `$2` of the archive. The bank
/// program has a defect, for which avtrace ends with 66.
const SCRIPT: &str = r#"
set -eu
fail() { echo "$1" >&2; exit 1; }
for tool in cc gcc rustc cargo; do
    if command -v "$tool"; then fail "$tool is installed: this system proves nothing"; fi
done
finds_the_defect() {
    echo "\$ $*"
    status=0
    "$@" 2>/report.txt || status=$?
    cat /report.txt
    [ "$status" = 66 ] || fail "exit status $status, not 66"
    grep -q '`transfer`' /report.txt || fail "the report names no \`transfer\`"
}
left() { find / -xdev -path /packages -prune -o -path /demo -prune -o -path /opt -prune -o -name '*avtrace*' -print; }
echo "== the package"
dpkg --install "/packages/$1"
avtrace --version
avtrace doctor
finds_the_defect avtrace --capture inline /demo/bank
chown -R nobody /demo
cd /demo
finds_the_defect setpriv --reuid=nobody --regid=nogroup --clear-groups avtrace /demo/bank
# Modules of the C library must not be loaded into a static executable, which some databases of users ask for.
sed -i -E 's/^(passwd|group):.*/\1: files compat/' /etc/nsswitch.conf
finds_the_defect env SUDO_UID="$(id -u nobody)" SUDO_GID="$(id -g nobody)" avtrace --capture inline /demo/bank
finds_the_defect env SUDO_UID=4242 SUDO_GID=4242 avtrace --capture inline /demo/bank
avtrace record --capture inline --embed-sources -o /demo/bank.avt /demo/bank
status=0; avtrace report --format json -o /demo/bank.json /demo/bank.avt || status=$?
[ "$status" = 66 ] || fail "exit status $status of the recording, not 66"
avtrace diff /demo/bank.avt /demo/bank.json
for file in /usr/include/avtrace.h /usr/share/man/man1/avtrace.1.gz /usr/share/man/man1/avtrace-run.1.gz \
    /usr/share/bash-completion/completions/avtrace /usr/share/zsh/vendor-completions/_avtrace \
    /usr/share/fish/vendor_completions.d/avtrace.fish /usr/share/doc/avtrace/copyright \
    /usr/share/doc/avtrace/changelog.Debian.gz /usr/share/doc/avtrace/docs/guide/first-run.md \
    /usr/share/doc/avtrace/examples/bank/bank.c; do
    [ -s "$file" ] || fail "$file is missing"
done
bash -euc '. /usr/share/bash-completion/completions/avtrace; complete -p avtrace'
dpkg --verify avtrace
dpkg --remove avtrace
[ -z "$(left)" ] || fail "left after the package was removed: $(left)"
if dpkg --status avtrace >/dev/null 2>&1; then fail "the package is not removed"; fi
echo "== the archive"
tar -xzf "/packages/$2" -C /opt
finds_the_defect "/opt/${2%.tar.gz}/bin/avtrace" --capture inline /demo/bank
[ -s "/opt/${2%.tar.gz}/share/man/man1/avtrace.1" ] || fail "the manual page is missing"
"#;

/// Makes the system if it does not exist yet, and tries both packages in it.
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
        .args(["-g", "-O1", "-pthread", "-I", "markers/include", "-o"])
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
    println!("Trying both packages in {}", system.display());
    // The script is too long to be shown as commands are.
    if !command.status().context("failed to run `unshare`")?.success() {
        bail!("a package does not work in {}", system.display());
    }
    println!("Both packages work in a Debian system without a toolchain.");
    Ok(())
}

/// Mounts the file systems of a running system, and executes the script `$2` in the system `$1`.
const MOUNTED: &str = r#"
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -c "$2" sh "$3" "$4"
"#;

fn file_name(path: &Path) -> Result<&str> {
    path.file_name().and_then(|name| name.to_str()).context("a file with a name")
}

/// Returns the directory of the system, which is of the release of this machine: the bank program is compiled here.
fn system(dist: &Path) -> Result<PathBuf> {
    let system = dist.join("debian");
    if system.join("usr/bin/dpkg").exists() {
        return Ok(system);
    }
    let mut apt = Apt::detect().context("packages are tried on Debian and its relatives alone")?;
    if bpf_build::find_on_path("debootstrap").is_none() {
        apt.install(&["debootstrap"])?;
    }
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = codename(&about).context("/etc/os-release has no VERSION_CODENAME")?;
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", TARGETS, "Identifier: Packages"]);
    let targets = process::answer(&mut targets).unwrap_or_default();
    let Some(mirror) = mirror(&targets, &release) else {
        bail!(
            "apt on this machine has no source of {release} for debootstrap to take packages from"
        );
    };
    // A folder of an earlier attempt may be incomplete.
    let draft = dist.join("debian.part");
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &release]).arg(&draft).arg(mirror);
    process::run(&mut debootstrap)
        .context("the packages are tried as root: call `cargo xtask dist --check` as root")?;
    fs::rename(draft, &system)?;
    Ok(system)
}

/// Fields of apt's sources, a source a line.
const TARGETS: &str = "$(CODENAME) $(COMPONENT) $(REPO_URI)";

/// Returns the mirror with the main part of a release, from apt's sources.
fn mirror(targets: &str, release: &str) -> Option<String> {
    let fields = targets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut mirrors = fields.filter_map(|fields| match fields[..] {
        [codename, "main", mirror] if codename == release => Some(mirror.to_owned()),
        _ => None,
    });
    mirrors.next()
}

/// Returns the name of a release in the text of `/etc/os-release`.
fn codename(about: &str) -> Option<String> {
    let name = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let name = name.trim_matches('"');
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_the_release() {
        let targets = "tin-security main http://m.example/security/\ntin extra http://x.example/\n\
                       tin main http://m.example/debian/\ntin main http://n.example/\n";
        assert_eq!(mirror(targets, "tin").as_deref(), Some("http://m.example/debian/"));
        assert_eq!(mirror(targets, "lead"), None);
        assert_eq!(mirror("", "tin"), None);
    }

    #[test]
    fn the_release_is_that_of_this_machine() {
        let about = "ID=debian\nVERSION_CODENAME=tin\nVERSION_ID=\"1\"\n";
        assert_eq!(codename(about).as_deref(), Some("tin"));
        assert_eq!(codename("VERSION_CODENAME=\"\"\n"), None);
        assert_eq!(codename(""), None);
    }
}
