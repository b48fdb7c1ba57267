//! Licences of the libraries in the executable: it holds them, so that a package has to hold their notices.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{process, workspace};

/// Name of the file in packages.
pub(super) const FILE: &str = "LIBRARIES";

/// Packages of the workspace whose dependencies are in the executable: the command, and the kernel programs in it.
const ROOTS: [&str; 2] = ["avtrace", "avtrace-ebpf"];

/// Starts of the names of files with licences and notices, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// Returns the names, versions and licences of the libraries, then each licence text with its libraries.
///
/// # Errors
/// When cargo does not know them, or a file cannot be read.
pub(super) fn collect(target: &str) -> Result<String> {
    let mut metadata = workspace::cargo();
    metadata.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", target]);
    let metadata = process::answer(&mut metadata).context("`cargo metadata` failed")?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let linked = linked(&metadata);
    let mut names = BTreeMap::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in array(&metadata["packages"]) {
        let is_own = package["source"].is_null();
        if is_own || !linked.contains(text(&package["id"])) {
            continue;
        }
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        names.insert(name.clone(), text(&package["license"]).to_owned());
        let directory = Path::new(text(&package["manifest_path"])).parent();
        for notice in notices(directory.context("a manifest in a directory")?)? {
            texts.entry(notice).or_default().insert(name.clone());
        }
    }
    let mut document = "Libraries that are linked into avtrace, with their licences. Rust's standard library (MIT or \
                        Apache-2.0) and the GNU C Library (LGPL-2.1 or later) are, too.\n\n"
        .to_owned();
    for (name, licence) in &names {
        // Writing to a string does not fail.
        let _ = writeln!(document, "{name}: {licence}");
    }
    for (notice, of) in &texts {
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        let _ = write!(document, "\n{}\nOf {}:\n\n{notice}\n", "=".repeat(79), of.join(", "));
    }
    Ok(document)
}

/// Returns the identifiers of the packages that are linked: dependencies of the roots, and theirs, but for those of
/// tests and of the build.
fn linked(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).iter().map(|node| (text(&node["id"]), node)).collect();
    let packages = array(&metadata["packages"]).iter();
    let roots = packages.filter(|package| ROOTS.contains(&text(&package["name"])));
    let mut pending: Vec<&str> = roots.map(|package| text(&package["id"])).collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = pending.pop() {
        if !linked.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).map(|node| array(&node["deps"])).unwrap_or_default();
        let normal = dependencies.iter().filter(|dependency| {
            array(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null())
        });
        pending.extend(normal.map(|dependency| text(&dependency["pkg"])));
    }
    linked
}

/// Returns the texts of the licences and notices in a directory.
fn notices(directory: &Path) -> Result<Vec<String>> {
    let mut notices = Vec::new();
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("failed to list {}", directory.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            let bytes = fs::read(&path)?;
            let lines = String::from_utf8_lossy(&bytes).replace('\r', "");
            notices.push(lines.trim_matches('\n').to_owned());
        }
    }
    notices.sort();
    Ok(notices)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_build_and_of_tests_are_not_linked() {
        let dependency =
            |id: &str, kind: Value| serde_json::json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = serde_json::json!({
            "packages": [{"id": "a", "name": "avtrace"}, {"id": "b", "name": "b"}],
            "resolve": {"nodes": [
                {"id": "a", "deps": [dependency("b", Value::Null), dependency("c", "build".into())]},
                {"id": "b", "deps": [dependency("d", Value::Null), dependency("e", "dev".into())]},
                {"id": "f", "deps": []},
            ]},
        });
        assert_eq!(linked(&metadata), ["a", "b", "d"].into());
    }

    #[test]
    fn licences_are_found_by_their_names() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("LICENSE-MIT", "b\r\n"), ("copying", "a"), ("README", "c")] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        assert_eq!(notices(directory.path()).unwrap(), ["a", "b"]);
    }
}
