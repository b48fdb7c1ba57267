//! Programs with a known atomicity bug: the files of `programs/`, each with its manifest, built without and with
//! optimisation.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{
    debian::{self, Recipe},
    load::Load,
    manifest::{self, Manifest},
    run::Case,
};
use crate::{process, workspace};

/// Optimisation levels, as options of the C compilers.
pub const LEVELS: [&str; 2] = ["-O0", "-O2"];

/// Origin of the interleaving of a program's threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Interleaving {
    /// Turns through pipes force the bad one.
    Forced,
    /// Threads meet as they happen to.
    Free,
}

/// Way of compiling a program.
struct Build<'a> {
    level: &'a str,
    interleaving: Interleaving,
    /// Further options of the compiler.
    options: &'a [&'a str],
}

/// Directory of the programs, in the workspace.
const PROGRAMS: &str = "xtask/bench/programs";

/// A program with a known bug.
pub struct Known {
    /// Name in tables, from the file.
    pub name: String,
    /// Description of the bug.
    pub manifest: Manifest,
    source: PathBuf,
    /// Source of a shared library that the program comes with.
    library: Option<PathBuf>,
    /// Recipe for the program that a patch is for.
    recipe: Option<&'static Recipe>,
}

/// All programs, by name.
///
/// # Errors
/// When a file has no manifest.
pub fn all() -> Result<Vec<Known>> {
    let dir = workspace::root().join(PROGRAMS);
    let mut programs = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("failed to list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let manifest = Manifest::parse(&text).with_context(|| path.display().to_string())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let recipe = manifest::value(&text, "Package").map(recipe).transpose()?;
        let library = manifest::value(&text, "Library").map(|name| dir.join("support").join(name));
        programs.push(Known { name: stem, manifest, source: path, library, recipe });
    }
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

impl Known {
    /// Packages that building it needs.
    pub fn needs(&self) -> &'static [&'static str] {
        self.recipe.map_or(&["gcc", "g++", "libc6-dev"], |recipe| recipe.needs)
    }

    /// The program at an optimisation level, built below `dir`.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn case(
        &self,
        level: &str,
        interleaving: Interleaving,
        dir: &Path,
        scratch: &Path,
    ) -> Result<Case> {
        let name = format!("{}{level}", self.name);
        let Some(recipe) = self.recipe else {
            let program =
                self.built(&Build { level, interleaving, options: &[] }, &dir.join("known"))?;
            let words = vec![program.into()];
            return Ok(Case { name, words, load: Load::Itself, dies: self.manifest.dies });
        };
        let support = workspace::root().join(PROGRAMS).join("support");
        let level = match interleaving {
            Interleaving::Forced => level.to_owned(),
            Interleaving::Free => format!("{level} -DUNFORCED"),
        };
        let program = debian::built(recipe, &level, Some((&self.source, &support)), dir)?;
        let mut words: Vec<OsString> = vec![program.into()];
        let mut load = Load::Itself;
        if recipe.package == debian::MEMCACHED.package {
            let socket = scratch.join("memcached");
            words.extend(
                ["-u", "root", "-c", "64", "-U", "0", "-A", "-t", "2", "-s"].map(OsString::from),
            );
            words.push(socket.clone().into());
            load = Load::Increments { socket };
        }
        Ok(Case { name, words, load, dies: self.manifest.dies })
    }

    /// The program with ThreadSanitizer and no forced interleaving, built below `dir`; `None` if that is not possible.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn with_thread_sanitizer(&self, level: &str, dir: &Path) -> Result<Option<PathBuf>> {
        // Rust's needs a nightly compiler.
        if self.recipe.is_some() || extension(&self.source) == "rs" {
            return Ok(None);
        }
        let options = &["-fsanitize=thread"];
        let build = Build { level, interleaving: Interleaving::Free, options };
        self.built(&build, &dir.join("tsan")).map(Some)
    }

    /// The executable, compiled when it is older than its sources.
    fn built(&self, build: &Build<'_>, dir: &Path) -> Result<PathBuf> {
        let &Build { level, interleaving, options } = build;
        let is_free = interleaving == Interleaving::Free;
        let end = if is_free { "-unforced" } else { "" };
        let dir = dir.join(format!("{}{level}{end}", self.name));
        fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
        let program = dir.join(&self.name);
        let support = workspace::root().join(PROGRAMS).join("support");
        let mut sources = vec![self.source.clone()];
        for entry in fs::read_dir(&support).context("failed to list the programs' headers")? {
            sources.push(entry?.path());
        }
        if debian::is_newer(&program, &sources) {
            return Ok(program);
        }
        if let Some(source) = &self.library {
            let mut command = compiler(source, level)?;
            command
                .args(options)
                .args(["-shared", "-fPIC", "-o"])
                .arg(dir.join(library_file(source)));
            process::run(command.arg("-I").arg(&support).arg(source))?;
        }
        let mut command = compiler(&self.source, level)?;
        command.args(options).arg("-o").arg(&program).arg(&self.source);
        match (is_free, extension(&self.source)) {
            (false, _) => {}
            (true, "rs") => {
                command.args(["--check-cfg", "cfg(unforced)", "--cfg", "unforced"]);
            }
            (true, _) => {
                command.arg("-DUNFORCED");
            }
        }
        if extension(&self.source) != "rs" {
            command.arg("-I").arg(&support);
        }
        if let Some(source) = &self.library {
            command.arg(dir.join(library_file(source))).arg("-Wl,-rpath,$ORIGIN");
        }
        process::run(&mut command)?;
        Ok(program)
    }
}

/// Recipe for the program of a patch, by its package.
fn recipe(package: &str) -> Result<&'static Recipe> {
    [&debian::MEMCACHED, &debian::LEVELDB_TRIAGE]
        .into_iter()
        .find(|recipe| recipe.package == package)
        .with_context(|| format!("no recipe for {package}"))
}

/// Compiler of a file at an optimisation level, with debug information.
fn compiler(source: &Path, level: &str) -> Result<Command> {
    let (program, options): (_, &[&str]) = match extension(source) {
        "c" => ("gcc", &["-g", "-pthread", "-Wall", "-Wextra"]),
        "cpp" => ("g++", &["-g", "-pthread", "-Wall", "-Wextra", "-std=c++17"]),
        "rs" => ("rustc", &["-g", "--edition", "2024"]),
        other => bail!("no compiler for .{other}"),
    };
    let mut command = Command::new(program);
    command.args(options);
    match (extension(source), level) {
        ("rs", "-O0") => command.args(["-C", "opt-level=0"]),
        // As `cargo build --release` does it.
        ("rs", _) => command.args(["-C", "opt-level=3"]),
        (_, level) => command.arg(level),
    };
    Ok(command)
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

/// Name of the shared library of a source file.
fn library_file(source: &Path) -> String {
    format!("lib{}.so", source.file_stem().unwrap_or_default().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_manifest() {
        let programs = all().unwrap();
        assert!(programs.len() >= 4);
        for program in programs {
            assert!(!program.manifest.reference.is_empty(), "{}", program.name);
            assert!(program.library.iter().all(|library| library.exists()), "{}", program.name);
        }
    }
}
