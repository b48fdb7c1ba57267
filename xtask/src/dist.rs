//! `cargo xtask dist`: packages of avtrace for machines without a toolchain: an archive and a Debian package, both with
//! a statically linked executable, manual pages, completions and the header of the markers. `debian` makes the second
//! from the first, `check` tries both.

mod check;
mod debian;
mod licences;

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{bpf, process, setup, workspace};

/// Target of the executable, which is linked statically with glibc: rustup's musl target is a separate download that
/// not every build machine has. avtrace never needs glibc to load libraries at run time: it asks `getent` for accounts.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Version of the packages and of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes the packages below `target/dist`, and with `tries` installs them in a fresh Debian system.
///
/// # Errors
/// When something cannot be built, or a package does not work.
pub fn run(tries: bool) -> Result<()> {
    let maintainer = debian::maintainer()?;
    setup::run()?;
    bpf::must_be_of_sources()?;
    let target_dir = workspace::target_dir()?;
    let dist = target_dir.join("dist");
    let name = archive_name(VERSION);
    let stage = dist.join(&name);
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    process::run(&mut release())?;
    let built = target_dir.join(TARGET).join("packaged/avtrace");
    must_be_static(&built)?;
    let debug = dist.join(format!("{name}.debug"));
    lay_out(&stage, &built, &debug)?;
    let archive = archive(&dist, &name)?;
    let package = debian::package(&dist, &stage, &maintainer)?;
    for path in [&archive, &package, &debug] {
        let size = fs::metadata(path)?.len();
        println!("{}: {:.1} MB", path.display(), size as f64 / 1e6);
    }
    let name_of = |path: &Path| path.file_name().unwrap_or_default().to_owned();
    let mut sums = Command::new("sha256sum");
    sums.current_dir(&dist).args([&archive, &package, &debug].map(|path| name_of(path)));
    let sums = process::answer(&mut sums).context("failed to run `sha256sum`")?;
    fs::write(dist.join("SHA256SUMS"), sums)?;
    if tries {
        check::run(&dist, &archive, &package)?;
    }
    Ok(())
}

/// Writes the manual pages and completions of this tree to `target/manual`, and returns that.
///
/// # Errors
/// When they cannot be built.
pub fn manual() -> Result<PathBuf> {
    setup::run()?;
    let directory = workspace::target_dir()?.join("manual");
    let avtrace = || {
        let mut command = workspace::cargo();
        command.args(["run", "--quiet", "--package", "avtrace", "--"]).env(TIME, time());
        command
    };
    process::run(avtrace().args(["man", "--dir"]).arg(directory.join("man1")))?;
    let completions = directory.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, file, _) in COMPLETIONS {
        fs::write(
            completions.join(file),
            process::answer(avtrace().args(["completions", shell]))
                .context("avtrace prints no completions")?,
        )?;
    }
    println!("{}: man1/ and completions/", directory.display());
    Ok(directory)
}

/// Shells with completions: the file of each, and its place below `/usr`.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "avtrace.bash", "share/bash-completion/completions/avtrace"),
    ("zsh", "_avtrace", "share/zsh/vendor-completions/_avtrace"),
    ("fish", "avtrace.fish", "share/fish/vendor_completions.d/avtrace.fish"),
];

/// Returns the name of the archive and of the folder in it.
fn archive_name(version: &str) -> String {
    format!("avtrace-{version}-x86_64-linux")
}

/// Returns the cargo command that builds only the static executable: dependencies of tests would enable more features.
/// The flags apply to the target alone, because build scripts and macros run on this machine.
fn release() -> Command {
    let mut command = workspace::cargo();
    command
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static")
        .args(["build", "--locked", "--profile", "packaged", "--target", TARGET])
        .args(["--package", "avtrace", "--bin", "avtrace"]);
    command
}

/// Checks that an executable has no dynamic linker.
fn must_be_static(path: &Path) -> Result<()> {
    let headers = process::answer(Command::new("readelf").arg("-lW").arg(path))
        .context("`readelf` of the package binutils is needed to look at the executable")?;
    if headers.contains("INTERP") {
        bail!("{} is not linked statically: it names a dynamic linker", path.display());
    }
    Ok(())
}

/// Puts the debug information of `built` into the file `debug`, and the rest into `executable`, which names that file:
/// with both in one directory, backtraces have lines. Symbols stay in `executable`: a trial of probes needs one, and
/// without the other file backtraces have functions.
fn split_debug(built: &Path, executable: &Path, debug: &Path) -> Result<()> {
    let objcopy = || Command::new("objcopy");
    process::run(objcopy().arg("--only-keep-debug").arg(built).arg(debug))?;
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(debug);
    process::run(objcopy().arg("--strip-debug").arg(link).arg(built).arg(executable))
}

/// Lays the files out as they are below `/usr`, but for the debug information, which goes to `debug`.
fn lay_out(stage: &Path, built: &Path, debug: &Path) -> Result<()> {
    fs::create_dir_all(stage.join("bin"))?;
    split_debug(built, &stage.join("bin/avtrace"), debug)?;
    let manual = manual()?;
    for (_, from, to) in COMPLETIONS {
        copy(&manual.join("completions").join(from), &stage.join(to))?;
    }
    for entry in fs::read_dir(manual.join("man1"))? {
        let page = entry?;
        copy(&page.path(), &stage.join("share/man/man1").join(page.file_name()))?;
    }
    let root = workspace::root();
    copy(&root.join("markers/include/avtrace.h"), &stage.join("include/avtrace.h"))?;
    let shared = stage.join("share/doc/avtrace");
    for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root.join(name), &shared.join(name))?;
    }
    fs::write(shared.join(licences::FILE), licences::collect(TARGET)?)?;
    copy_tree(&root.join("docs"), &shared.join("docs"), is_document)?;
    // Documents lead to them.
    copy_tree(&root.join("examples"), &shared.join("examples"), is_source)
}

/// Markdown, and schemas.
fn is_document(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|own| own == "md" || own == "json")
}

/// Selects files that no build has made.
fn is_source(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name != "target" && name != "__pycache__")
}

/// Copies the files of a directory and of those below it that are wanted.
fn copy_tree(from: &Path, to: &Path, is_wanted: fn(&Path) -> bool) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let (path, target) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if !is_wanted(&path) {
            continue;
        }
        if path.is_dir() {
            copy_tree(&path, &target, is_wanted)?;
        } else {
            copy(&path, &target)?;
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

/// Variable with the time of all that is made.
const TIME: &str = "SOURCE_DATE_EPOCH";

/// Time of all files in packages, in seconds since 1970: the time of the commit, so that the same sources make the
/// same packages.
fn time() -> String {
    let of_commit = || {
        let mut git = Command::new("git");
        let time =
            process::answer(git.current_dir(workspace::root()).args(["log", "-1", "--format=%ct"]));
        time.map(|time| time.trim().to_owned()).filter(|time| !time.is_empty())
    };
    env::var(TIME).ok().or_else(of_commit).unwrap_or_else(|| "0".to_owned())
}

/// Makes the archive.
fn archive(dist: &Path, name: &str) -> Result<PathBuf> {
    let archive = dist.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--use-compress-program=gzip -9n", "--sort=name"])
        .args(["--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", time()))
        .arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(dist)
        .arg(name);
    process::run(&mut tar)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_with_a_dynamic_linker_are_refused() {
        let error = must_be_static(Path::new("/bin/true")).unwrap_err();
        assert!(error.to_string().contains("not linked statically"), "{error}");
    }

    #[test]
    fn debug_information_is_split_off() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        fs::write(file("a.c"), "int main(void) { return 0; }\n").unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-o"]).args([file("built"), file("a.c")]);
        process::run(&mut compiler).unwrap();
        split_debug(&file("built"), &file("a"), &file("a.debug")).unwrap();
        let sections = |name: &str| {
            process::answer(Command::new("readelf").arg("-SW").arg(file(name))).unwrap()
        };
        assert!(!sections("a").contains(".debug_line"));
        assert!(sections("a").contains(".gnu_debuglink") && sections("a").contains(".symtab"));
        assert!(sections("a.debug").contains(".debug_line"));
    }

    #[test]
    fn documents_are_laid_out_with_those_of_the_guide() {
        let stage = tempfile::tempdir().unwrap();
        copy_tree(&workspace::root().join("docs"), stage.path(), is_document).unwrap();
        for file in ["usage.md", "report.schema.json", "guide/first-run.md"] {
            assert!(stage.path().join(file).is_file(), "{file}");
        }
        assert!(!stage.path().join("book.toml").exists());
    }

    #[test]
    fn the_recipe_for_github_has_the_archive() {
        let recipe = workspace::root().join("examples/github/avtrace.yml");
        let recipe = fs::read_to_string(recipe).unwrap();
        assert!(recipe.contains(&format!("AVTRACE_VERSION: {VERSION}\n")), "{recipe}");
        let folder = archive_name("$AVTRACE_VERSION");
        assert!(recipe.contains(&format!("folder={folder}\n")), "{recipe}");
    }

    #[test]
    fn what_was_built_of_examples_is_left_out() {
        let (from, stage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for file in ["cargo/src/lib.rs", "cargo/target/debug/lib", "pytest/__pycache__/a.pyc"] {
            let path = from.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        copy_tree(from.path(), stage.path(), is_source).unwrap();
        assert!(stage.path().join("cargo/src/lib.rs").is_file());
        assert!(!stage.path().join("cargo/target").exists());
        assert!(!stage.path().join("pytest/__pycache__").exists());
    }
}
