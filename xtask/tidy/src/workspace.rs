//! Root of the workspace, its files and packages.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Returns the root of the workspace that this program was built in.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Returns a command for the cargo that runs this program, in `root`.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Lists every file below `root`, sorted, relative to it. Output of builds and the data of git are left out.
///
/// # Errors
/// When a directory cannot be read.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        let entries =
            fs::read_dir(&dir).with_context(|| format!("failed to list {}", dir.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let name = entry.file_name();
                if name != "target" && name != ".git" {
                    pending.push(entry.path());
                }
            } else if kind.is_file() && entry.file_name() != ".git" {
                files.push(entry.path().strip_prefix(root)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A package of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// Directory of its manifest, relative to the root.
    pub dir: PathBuf,
    /// Root files of its library, executables and build script, relative to the root.
    pub roots: Vec<PathBuf>,
    /// Packages of the workspace that it depends on, except packages that only its tests use.
    pub uses: Vec<String>,
    /// Packages of the workspace that only its tests use.
    pub tests_use: Vec<String>,
}

/// Asks cargo for the packages of the workspace at `root`, sorted by name.
///
/// # Errors
/// When cargo cannot be run, or finds no workspace there.
pub fn packages(root: &Path) -> Result<Vec<Package>> {
    let output = cargo(root)
        .args(["metadata", "--no-deps", "--offline", "--quiet", "--format-version", "1"])
        .output()
        .context("failed to run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let root = fs::canonicalize(root)?;
    let mut packages: Vec<Package> =
        entries(&metadata["packages"]).iter().map(|package| read_package(package, &root)).collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn read_package(package: &Value, root: &Path) -> Package {
    let relative = |path: &Value| {
        let path = Path::new(path.as_str().unwrap_or_default());
        path.strip_prefix(root).unwrap_or(path).to_owned()
    };
    let is_built = |target: &&Value| {
        let kinds = ["lib", "bin", "custom-build", "proc-macro"];
        entries(&target["kind"])
            .iter()
            .any(|kind| kind.as_str().is_some_and(|kind| kinds.contains(&kind)))
    };
    let targets = entries(&package["targets"]).iter();
    let roots = targets.filter(is_built).map(|target| relative(&target["src_path"])).collect();
    let local = entries(&package["dependencies"]).iter().filter(|d| d["path"].is_string());
    let (tests_use, uses): (Vec<&Value>, Vec<&Value>) = local.partition(|d| d["kind"] == "dev");
    let names = |dependencies: Vec<&Value>| {
        let mut names: Vec<String> = (dependencies.iter())
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        names
    };
    Package {
        name: package["name"].as_str().unwrap_or_default().to_owned(),
        dir: relative(&package["manifest_path"]).parent().unwrap_or(Path::new("")).to_owned(),
        roots,
        uses: names(uses),
        tests_use: names(tests_use),
    }
}

/// Returns the elements of an array, and an empty slice for any other value.
fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_output_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["target/debug", "a/target", "a/b", ".ci"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        for file in ["target/debug/x.rs", "a/target/x.rs", "a/b/x.rs", ".ci/run", ".git"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        assert_eq!(files(root.path()).unwrap(), [Path::new(".ci/run"), Path::new("a/b/x.rs")]);
    }

    #[test]
    fn packages_have_their_roots_and_dependencies() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        let head = |name: &str| format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n");
        write("Cargo.toml", "[workspace]\nmembers = [\"a\", \"b\", \"c\"]\nresolver = \"3\"\n");
        let uses = "[dependencies]\nb.path = \"../b\"\n[dev-dependencies]\nc.path = \"../c\"\n";
        write("a/Cargo.toml", &(head("a") + uses));
        write("b/Cargo.toml", &head("b"));
        write("c/Cargo.toml", &head("c"));
        for file in ["a/src/lib.rs", "a/tests/t.rs", "b/src/lib.rs", "c/src/lib.rs", "c/build.rs"] {
            write(file, "");
        }
        let found = packages(root).unwrap();
        let expected = Package {
            name: "a".to_owned(),
            dir: "a".into(),
            roots: vec!["a/src/lib.rs".into()],
            uses: vec!["b".to_owned()],
            tests_use: vec!["c".to_owned()],
        };
        assert_eq!(found[0], expected);
        assert_eq!(found[2].roots, [Path::new("c/src/lib.rs"), Path::new("c/build.rs")]);
    }
}
