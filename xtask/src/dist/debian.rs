//! The Debian package: the files of the archive below `/usr`, with what Debian's policy asks for beside them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{TIME, VERSION, time};
use crate::{process, workspace};

/// Revision of the package, for one version of avtrace.
const REVISION: &str = "1";

/// Complaints of lintian that are meant to be so.
const OVERRIDES: &str = "\
# A static executable whose address is not fixed looks like a library.
avtrace: shared-library-lacks-prerequisites [usr/bin/avtrace]
# It has symbols and no more: `avtrace doctor` attaches a probe to one.
avtrace: unstripped-binary-or-object [usr/bin/avtrace]
# It answers no request for a package.
avtrace: initial-upload-closes-no-bugs
";

/// Returns the person who makes the package, as `NAME <ADDRESS>`: the first author in the workspace's metadata, else
/// `DEBFULLNAME` and `DEBEMAIL`, as Debian's own tools read them, else what git knows.
///
/// # Errors
/// When no place names a maintainer.
pub(super) fn maintainer() -> Result<String> {
    let mut metadata = workspace::cargo();
    metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: serde_json::Value = process::answer(&mut metadata)
        .and_then(|text| serde_json::from_str(&text).ok())
        .context("`cargo metadata` failed")?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = packages.iter().find(|package| package["name"] == "avtrace");
    let author = own.and_then(|package| package["authors"][0].as_str()).map(ToOwned::to_owned);
    let git = |key: &str| {
        let mut git = Command::new("git");
        process::answer(git.current_dir(workspace::root()).args(["config", "--get", key]))
    };
    let variables = person(env::var("DEBFULLNAME").ok(), env::var("DEBEMAIL").ok());
    let author = author.filter(|author| author.contains(" <"));
    let found = author.or(variables).or_else(|| person(git("user.name"), git("user.email")));
    found.context(
        "nobody is named as the maintainer of the package: set `authors = [\"NAME <ADDRESS>\"]` in [workspace.package] \
         and in tracer-user/avtrace/Cargo.toml, the variables DEBFULLNAME and DEBEMAIL, or git's user.name and user.email",
    )
}

fn person(name: Option<String>, address: Option<String>) -> Option<String> {
    let (name, address) = (name?, address?);
    let (name, address) = (name.trim(), address.trim());
    (!name.is_empty() && address.contains('@')).then(|| format!("{name} <{address}>"))
}

/// Makes the package of the files in `stage`, which are laid out as below `/usr`.
///
/// # Errors
/// When a file cannot be written, or a tool fails.
pub(super) fn package(dist: &Path, stage: &Path, maintainer: &str) -> Result<PathBuf> {
    let root = dist.join("deb");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(root.join("DEBIAN"))?;
    let usr = root.join("usr");
    process::run(Command::new("cp").arg("--archive").arg(stage).arg(&usr))?;
    let documents = usr.join("share/doc/avtrace");
    let mit = fs::read_to_string(documents.join("LICENSE-MIT"))?;
    let date = date()?;
    // `Mon, 05 Jan 2026 …`
    let year = date.split(' ').nth(3).context("a date has a year")?;
    fs::write(documents.join("copyright"), copyright(&mit, year)?)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::remove_file(documents.join(name))?;
    }
    fs::rename(documents.join("CHANGELOG.md"), documents.join("changelog"))?;
    fs::write(documents.join("changelog.Debian"), changelog(maintainer, &date))?;
    let overrides = usr.join("share/lintian/overrides");
    fs::create_dir_all(&overrides)?;
    fs::write(overrides.join("avtrace"), OVERRIDES)?;
    let mut compressed = vec![
        documents.join("changelog"),
        documents.join("changelog.Debian"),
        documents.join(super::licences::FILE),
    ];
    for entry in fs::read_dir(usr.join("share/man/man1"))? {
        compressed.push(entry?.path());
    }
    process::run(Command::new("gzip").arg("-9n").args(compressed))?;

    let size = process::answer(Command::new("du").args(["-sk", "--apparent-size"]).arg(&usr));
    let size = size.and_then(|size| Some(size.split_whitespace().next()?.to_owned()));
    let size = size.context("`du` printed no size")?;
    fs::write(root.join("DEBIAN/control"), control(maintainer, &size, glibc().as_deref()))?;
    let mut sums = Command::new("sh");
    sums.current_dir(&root)
        .args(["-euc", "find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums"]);
    process::run(&mut sums)?;
    process::run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&root))?;
    let package = dist.join(format!("avtrace_{VERSION}-{REVISION}_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    build.env(TIME, time());
    process::run(build.args(["--root-owner-group", "--build"]).arg(&root).arg(&package))?;
    fs::remove_dir_all(root)?;
    Ok(package)
}

/// Returns the source package and the version of the C library that is linked, where this is a Debian system.
fn glibc() -> Option<String> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${source:Package} (= ${source:Version})", "libc6-dev"]);
    process::answer(&mut query)
}

/// Returns the description of the package, which has no dependencies.
fn control(maintainer: &str, kilobytes: &str, linked: Option<&str>) -> String {
    let linked = linked.map(|source| format!("Built-Using: {source}\n")).unwrap_or_default();
    format!(
        "Package: avtrace\n\
         Version: {VERSION}-{REVISION}\n\
         Architecture: amd64\n\
         Maintainer: {maintainer}\n\
         Installed-Size: {kilobytes}\n\
         {linked}\
         Section: devel\n\
         Priority: optional\n\
         Description: tracer that finds atomicity violations in native programs\n \
         avtrace runs a program, watches its atomic regions, its locks and its threads,\n \
         and reports every region that another thread got into, with the source lines\n \
         of the whole cycle. It traces by probes in the program itself, as any user, or\n \
         by BPF programs in the kernel, as root.\n"
    )
}

/// Returns the licences of the package's files, in Debian's machine-readable form, which names a year.
///
/// # Errors
/// When the text of the MIT licence names no holder.
fn copyright(mit: &str, year: &str) -> Result<String> {
    let Some((_, text)) = mit.split_once("Copyright (c) ") else {
        bail!("LICENSE-MIT names no holder of the copyright");
    };
    let (holder, terms) = text.split_once('\n').unwrap_or((text, ""));
    let lines = terms.trim().lines().map(|line| match line.trim() {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    });
    let terms: String = lines.collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: avtrace\n\
         Comment:\n \
         The executable holds libraries of others, linked statically: their licences are\n \
         in {}.gz beside this file. The GNU C Library is among them, under the\n \
         LGPL-2.1 or later; Built-Using names its source package.\n\
         \n\
         Files: *\n\
         Copyright: {year} {holder}\n\
         License: Expat or Apache-2.0\n\
         \n\
         License: Expat\n{terms}\
         \n\
         License: Apache-2.0\n \
         On Debian systems the text of this licence is in\n \
         /usr/share/common-licenses/Apache-2.0.\n",
        super::licences::FILE
    ))
}

/// Returns the changelog of the package itself. avtrace has its own CHANGELOG.md.
fn changelog(maintainer: &str, date: &str) -> String {
    format!(
        "avtrace ({VERSION}-{REVISION}) unstable; urgency=medium\n\
         \n  \
         * Package of avtrace {VERSION}, whose changes are in changelog.gz.\n\
         \n -- \
         {maintainer}  {date}\n"
    )
}

/// Returns the time of the package's files, as in messages of e-mail.
fn date() -> Result<String> {
    let mut date = Command::new("date");
    date.env("LC_ALL", "C").args(["--utc", "--rfc-email"]).arg(format!("--date=@{}", time()));
    let date = process::answer(&mut date).context("`date` does not know the time of the files")?;
    Ok(date.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_no_dependency() {
        let control = control("A B <a@b.example>", "12345", Some("glibc (= 2.36-9)"));
        assert!(control.contains("\nInstalled-Size: 12345\n") && !control.contains("Depends"));
        assert!(control.contains("\nMaintainer: A B <a@b.example>\n"), "{control}");
        assert!(control.contains("\nBuilt-Using: glibc (= 2.36-9)\nSection"), "{control}");
        let continued: Vec<&str> = control.lines().filter(|line| line.starts_with(' ')).collect();
        assert!(continued.len() == 4 && continued.iter().all(|line| line.len() <= 80));
    }

    #[test]
    fn a_person_has_a_name_and_an_address() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(person(some("A B\n"), some("a@b.example\n")), some("A B <a@b.example>"));
        for (name, address) in [(None, some("a@b")), (some("A"), None), (some(" "), some("a@b"))] {
            assert_eq!(person(name, address), None);
        }
        assert_eq!(person(some("A"), some("nowhere")), None);
    }

    #[test]
    fn the_licence_is_in_debians_form() {
        let text = "MIT License\n\nCopyright (c) Some People\n\nPermission is.\n\nNo warranty.\n";
        let copyright = copyright(text, "2026").unwrap();
        assert!(
            copyright.contains("\nCopyright: 2026 Some People\nLicense: Expat or Apache-2.0\n")
        );
        assert!(copyright.contains("\nLicense: Expat\n Permission is.\n .\n No warranty.\n\nL"));
        assert!(super::copyright("no such line", "2026").is_err());
    }

    #[test]
    fn changes_are_in_debians_form() {
        let changes = changelog("A B <a@b.example>", "Mon, 05 Jan 2026 10:00:00 +0000");
        let end = "\n\n -- A B <a@b.example>  Mon, 05 Jan 2026 10:00:00 +0000\n";
        assert!(changes.ends_with(end) && changes.contains("\n\n  * Package of"), "{changes}");
    }
}
