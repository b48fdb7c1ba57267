//! Debian's sources of a program, built: with ThreadSanitizer, or as its package is but with symbols.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::tools::Compiler;

/// Recipe for building a program from its sources.
pub struct Recipe {
    /// The source package, and the program.
    pub package: &'static str,
    /// The package, and the packages needed to build it.
    pub needs: &'static [&'static str],
    /// Set if there is a `configure`.
    pub configures: bool,
    /// Set if it is written in C++.
    pub is_cpp: bool,
    /// Options for the compiler that only this package needs.
    pub flags: &'static str,
}

/// The program, built below `dir`, once; with a compiler, by that one with `-fsanitize=thread`.
///
/// # Errors
/// When the sources cannot be had or built; the message says which.
pub fn built(recipe: &Recipe, sanitizer: Option<Compiler>, dir: &Path) -> Result<PathBuf> {
    let (c, cpp) = sanitizer.unwrap_or(Compiler::Gcc).commands();
    let variant = sanitizer.map_or("plain", |_| c);
    let built = dir.join(format!("{}-{variant}", recipe.package));
    let program = built.join(recipe.package);
    if program.exists() {
        return Ok(program);
    }
    let source = source(recipe.package, dir)?;
    // What `configure` makes of the sources is the compiler's own.
    if built.exists() {
        fs::remove_dir_all(&built)?;
    }
    quietly(Command::new("cp").arg("-a").args([&source, &built]))?;
    let sanitize = sanitizer.map_or("", |_| "-fsanitize=thread");
    let flags = format!("-g -O2 -pthread {sanitize} {}", recipe.flags);
    if recipe.configures {
        let mut configure = Command::new("./configure");
        configure.args(["--quiet", "--disable-docs", "--disable-dependency-tracking"]);
        quietly(configure.arg(format!("CC={c}")).current_dir(&built))?;
    }
    let mut make = Command::new("make");
    let (name, flags_name) = if recipe.is_cpp { ("CXX", "CXXFLAGS") } else { ("CC", "CFLAGS") };
    make.arg(recipe.package).arg(format!("{name}={}", if recipe.is_cpp { cpp } else { c }));
    make.arg(format!("{flags_name}={flags}"));
    // Patches make generated files look older than their sources.
    make.args(["ACLOCAL=:", "AUTOCONF=:", "AUTOMAKE=:", "AUTOHEADER=:"]);
    quietly(make.current_dir(&built))?;
    Ok(program)
}

/// The unpacked sources of a package, fetched when they are not there.
pub fn source(package: &str, dir: &Path) -> Result<PathBuf> {
    if let Some(there) = unpacked(package, dir)? {
        return Ok(there);
    }
    let options = apt_options(dir)?;
    quietly(Command::new("apt-get").arg("update").args(&options))?;
    let mut fetch = Command::new("apt-get");
    quietly(fetch.arg("source").args(&options).arg(package).current_dir(dir))?;
    unpacked(package, dir)?.context("apt-get source has unpacked nothing")
}

/// The directory `PACKAGE-VERSION`.
fn unpacked(package: &str, dir: &Path) -> Result<Option<PathBuf>> {
    let is_version = |name: &str| {
        let version = name.strip_prefix(package).and_then(|rest| rest.strip_prefix('-'));
        version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
    };
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name().to_str().is_some_and(is_version) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Options with which apt fetches sources from where this system has its packages from. The system's own lists stay as
/// they are.
fn apt_options(dir: &Path) -> Result<Vec<String>> {
    let (parts, lists, cache) = (dir.join("parts"), dir.join("lists"), dir.join("cache"));
    for made in [&parts, &lists.join("partial"), &cache.join("archives/partial")] {
        fs::create_dir_all(made).with_context(|| format!("failed to create {}", made.display()))?;
    }
    for entry in fs::read_dir("/etc/apt/sources.list.d").context("apt has no sources")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sources") {
            let Some(name) = path.file_name() else { continue };
            fs::write(parts.join(name), source_types(&fs::read_to_string(&path)?))?;
        }
    }
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    let mut options = vec![
        option("Dir::Etc::sourceparts", &parts),
        option("Dir::State::lists", &lists),
        option("Dir::Cache", &cache),
    ];
    let list = Path::new("/etc/apt/sources.list");
    if list.exists() {
        let lines = fs::read_to_string(list)?;
        let own = dir.join("sources.list");
        let sources = lines.lines().filter_map(|line| line.strip_prefix("deb "));
        fs::write(&own, sources.map(|rest| format!("deb-src {rest}\n")).collect::<String>())?;
        options.push(option("Dir::Etc::sourcelist", &own));
    }
    Ok(options)
}

/// A file of sources that asks for source packages.
fn source_types(text: &str) -> String {
    let asked = |line: &str| match line.split_once(':') {
        Some((key, _)) if key.eq_ignore_ascii_case("types") => "Types: deb-src\n".to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(asked).collect()
}

/// Runs a command of which only a failure is of interest.
pub fn quietly(command: &mut Command) -> Result<()> {
    let what = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("failed to run `{what}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        bail!("`{what}` failed; it said last: {last}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_packages_are_asked_for() {
        let text = "Types: deb\nURIs: mirror\n\ntypes: deb deb-src\nURIs: other\n";
        let expected = "Types: deb-src\nURIs: mirror\n\nTypes: deb-src\nURIs: other\n";
        assert_eq!(source_types(text), expected);
    }

    #[test]
    fn what_is_unpacked_has_a_version() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["prog-gcc", "program-1.0", "prog-1.2"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(unpacked("prog", dir.path()).unwrap(), Some(dir.path().join("prog-1.2")));
        assert_eq!(unpacked("pro", dir.path()).unwrap(), None);
    }
}
