//! `cargo xtask dist`: packages of avtrace for machines without a toolchain: an archive and a Debian package, both with
//! a statically linked executable, manual pages, completions and the header of the markers. `check` tries them.

mod check;

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{process, setup, workspace};

/// Target of the executable. Linked statically with glibc: rustup's musl target is a download of its own that not every
/// build machine has, and nothing that avtrace does needs glibc to load anything at run time.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Version of the packages, that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes the packages below `target/dist`, and tries them in a Debian system of their own if that is wanted.
///
/// # Errors
/// When something cannot be built, or a package does not work.
pub fn run(tries: bool) -> Result<()> {
    setup::run()?;
    let target_dir = workspace::target_dir()?;
    let dist = target_dir.join("dist");
    let name = format!("avtrace-{VERSION}-x86_64-linux");
    let stage = dist.join(&name);
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    process::run(release("build").args(["--bin", "avtrace", "--example", "manual"]))?;
    let built = target_dir.join(TARGET).join("release/avtrace");
    must_be_static(&built)?;
    lay_out(&stage, &built)?;
    let archive = archive(&dist, &name)?;
    let package = package(&dist, &stage)?;
    for path in [&archive, &package] {
        let size = fs::metadata(path)?.len();
        println!("{}: {:.1} MB", path.display(), size as f64 / 1e6);
    }
    if tries {
        check::run(&dist, &archive, &package)?;
    }
    Ok(())
}

/// Writes the manual pages and completions of this tree to `target/manual`.
///
/// # Errors
/// When they cannot be built.
pub fn manual() -> Result<()> {
    setup::run()?;
    let directory = workspace::target_dir()?.join("manual");
    let mut command = workspace::cargo();
    command.args(["run", "--package", "avtrace", "--example", "manual", "--"]).arg(&directory);
    process::run(&mut command)?;
    println!("{}: man1/ and completions/", directory.display());
    Ok(())
}

/// Returns a command of cargo for the static executable. Its flags count for the target alone: build scripts and macros
/// are for this machine.
fn release(task: &str) -> Command {
    let mut command = workspace::cargo();
    command
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static")
        .args([task, "--release", "--target", TARGET, "--package", "avtrace"]);
    command
}

/// Checks that nothing is loaded with an executable.
fn must_be_static(path: &Path) -> Result<()> {
    let headers = process::answer(Command::new("readelf").arg("-lW").arg(path))
        .context("`readelf` of the package binutils is needed to look at the executable")?;
    if headers.contains("INTERP") {
        bail!("{} is not linked statically: it names a dynamic linker", path.display());
    }
    Ok(())
}

/// Lays the files out as they are below `/usr`.
fn lay_out(stage: &Path, built: &Path) -> Result<()> {
    let executable = stage.join("bin/avtrace");
    fs::create_dir_all(stage.join("bin"))?;
    // Symbols stay: a trial of probes needs one, and backtraces in bug reports do.
    let mut strip = Command::new("strip");
    process::run(strip.arg("--strip-debug").arg("-o").arg(&executable).arg(built))?;
    let manual = stage.join("manual");
    process::run(release("run").args(["--example", "manual", "--"]).arg(&manual))?;
    let completions = [
        ("avtrace.bash", "share/bash-completion/completions/avtrace"),
        ("_avtrace", "share/zsh/vendor-completions/_avtrace"),
        ("avtrace.fish", "share/fish/vendor_completions.d/avtrace.fish"),
    ];
    for (from, to) in completions {
        copy(&manual.join("completions").join(from), &stage.join(to))?;
    }
    for entry in fs::read_dir(manual.join("man1"))? {
        let page = entry?;
        copy(&page.path(), &stage.join("share/man/man1").join(page.file_name()))?;
    }
    fs::remove_dir_all(manual)?;
    let root = workspace::root();
    copy(&root.join("markers/include/avtrace.h"), &stage.join("include/avtrace.h"))?;
    let documents = stage.join("share/doc/avtrace");
    for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root.join(name), &documents.join(name))?;
    }
    for entry in fs::read_dir(root.join("docs"))? {
        let document = entry?;
        if document.file_type()?.is_file() {
            copy(&document.path(), &documents.join("docs").join(document.file_name()))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("a file in a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("failed to create {}", parent.display()))?;
    fs::copy(from, to).with_context(|| format!("failed to copy {}", from.display()))?;
    Ok(())
}

/// Time of all files in packages, in seconds since 1970: that of the commit, so that the same sources make the same
/// packages.
fn time() -> String {
    let of_commit = || {
        let mut git = Command::new("git");
        let time =
            process::answer(git.current_dir(workspace::root()).args(["log", "-1", "--format=%ct"]));
        time.map(|time| time.trim().to_owned()).filter(|time| !time.is_empty())
    };
    env::var("SOURCE_DATE_EPOCH").ok().or_else(of_commit).unwrap_or_else(|| "0".to_owned())
}

/// Makes the archive.
fn archive(dist: &Path, name: &str) -> Result<PathBuf> {
    let archive = dist.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.env("GZIP", "-9n")
        .args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", time()))
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(dist)
        .arg(name);
    process::run(&mut tar)?;
    Ok(archive)
}

/// Makes the Debian package.
fn package(dist: &Path, stage: &Path) -> Result<PathBuf> {
    let root = dist.join("deb");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(root.join("DEBIAN"))?;
    let usr = root.join("usr");
    process::run(Command::new("cp").arg("--archive").arg(stage).arg(&usr))?;
    let pages = fs::read_dir(usr.join("share/man/man1"))?.collect::<Result<Vec<_>, _>>()?;
    process::run(Command::new("gzip").arg("-9n").args(pages.iter().map(fs::DirEntry::path)))?;
    let documents = usr.join("share/doc/avtrace");
    let mut copyright = fs::File::create(documents.join("copyright"))?;
    writeln!(copyright, "avtrace is licensed under either of these, as you choose.\n")?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copyright.write_all(&fs::read(documents.join(name))?)?;
        writeln!(copyright)?;
        fs::remove_file(documents.join(name))?;
    }
    fs::rename(documents.join("CHANGELOG.md"), documents.join("changelog"))?;
    process::run(Command::new("gzip").arg("-9n").arg(documents.join("changelog")))?;
    let size = process::answer(Command::new("du").args(["-sk", "--apparent-size"]).arg(&usr));
    let size = size.and_then(|size| Some(size.split_whitespace().next()?.to_owned()));
    fs::write(root.join("DEBIAN/control"), control(&size.context("`du` said nothing")?))?;
    process::run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&root))?;
    let package = dist.join(format!("avtrace_{VERSION}_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    build.env("SOURCE_DATE_EPOCH", time());
    process::run(build.args(["--root-owner-group", "--build"]).arg(&root).arg(&package))?;
    fs::remove_dir_all(root)?;
    Ok(package)
}

/// Returns the description of the package. It depends on nothing.
fn control(kilobytes: &str) -> String {
    format!(
        "Package: avtrace\n\
         Version: {VERSION}\n\
         Architecture: amd64\n\
         Maintainer: The avtrace developers <avtrace@localhost>\n\
         Installed-Size: {kilobytes}\n\
         Section: devel\n\
         Priority: optional\n\
         Suggests: debuginfod\n\
         Description: find atomicity violations in native programs, with a witness for each\n \
         avtrace runs a program, watches its atomic regions, its locks and its threads,\n \
         and reports every region that another thread got into, with the source lines\n \
         of the whole cycle.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_no_dependency() {
        let control = control("12345");
        assert!(control.contains("\nInstalled-Size: 12345\n") && !control.contains("Depends"));
        let continued = control.lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(continued, 3, "{control}");
    }

    #[test]
    fn executables_with_a_dynamic_linker_are_refused() {
        let error = must_be_static(Path::new("/bin/true")).unwrap_err();
        assert!(error.to_string().contains("not linked statically"), "{error}");
    }
}
