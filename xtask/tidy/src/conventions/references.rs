//! The rule for files that text names in `code`: a document exists, and has the heading after a `#`. In Markdown a
//! source file exists, in whichever folder, and so do modules such as `probes::plan` and their items. Links in
//! Markdown are checked in `links`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Problem, Source};
use crate::text::words;

/// The crate whose modules documents name by their paths in it.
const CRATE: &str = "tracer-user/avtrace/src";

/// Folder of the crates whose modules documents name with the crate's name before them.
const CRATES: &str = "tracer-user";

/// Checks the references of one file against all `files` of the workspace.
pub fn check(source: &Source<'_>, root: &Path, files: &[PathBuf]) -> Vec<Problem> {
    let is_markdown = source.is(&["md"]);
    if !is_markdown && !source.is(&["rs"]) {
        return Vec::new();
    }
    let dir = source.path.parent().unwrap_or(Path::new(""));
    let mut problems = Vec::new();
    let mut in_block = false;
    for (number, line) in (1..).zip(source.text.lines()) {
        let text = line.trim_start();
        if is_markdown && text.starts_with("```") {
            in_block = !in_block;
        } else if in_block || !is_markdown && !text.starts_with("//") {
            continue;
        }
        // Every other piece between back-ticks is code.
        for name in text.split('`').skip(1).step_by(2) {
            if is_markdown && name.contains("::") && !is_item(name, root, files) {
                problems.push(source.at(number, format!("there is no item {name}")));
            }
            let (path, part) = name.split_once('#').map_or((name, None), |(p, h)| (p, Some(h)));
            if !is_path(path) {
                continue;
            }
            if path.ends_with(".rs") {
                // Named below a folder of the source, as in `probes/b.rs`.
                if is_markdown && path.contains('/') && !files.iter().any(|f| f.ends_with(path)) {
                    problems.push(source.at(number, format!("there is no file {path}")));
                }
            } else if path.ends_with(".md") {
                let found = [root.join(path), root.join(dir).join(path)];
                match found.iter().find(|path| path.is_file()) {
                    None => problems.push(source.at(number, format!("there is no file {path}"))),
                    Some(file) if part.is_some_and(|part| !has_heading(file, part)) => {
                        problems.push(source.at(number, format!("there is no heading {name}")));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    problems
}

/// Returns whether `a::b::c` is a module, or named in the file of the module `a::b`. True for paths that start
/// neither at a module at the root of [`CRATE`] nor at a crate in [`CRATES`].
fn is_item(name: &str, root: &Path, files: &[PathBuf]) -> bool {
    let segments: Vec<&str> = name.split("::").collect();
    let file = |segments: &[&str]| {
        let path = Path::new(CRATE).join(segments.join("/"));
        let (name, inner) = segments.split_first()?;
        let in_crate = Path::new(CRATES).join(name).join("src");
        let inner = in_crate.join(inner.join("/"));
        let places = [
            path.with_extension("rs"),
            path.join("mod.rs"),
            inner.with_extension("rs"),
            inner.join("mod.rs"),
            inner.join("lib.rs"),
        ];
        files.iter().find(|file| places.contains(file))
    };
    let Some((last, module)) = segments.split_last() else { return true };
    if file(&segments[..1]).is_none() || file(&segments).is_some() {
        return true;
    }
    let text = file(module).and_then(|file| fs::read_to_string(root.join(file)).ok());
    text.is_some_and(|text| words(&text).any(|word| word == *last))
}

/// Returns whether the code can be a path of this repository, and is not a pattern.
fn is_path(code: &str) -> bool {
    !code.starts_with('/') && code.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c))
}

/// Returns whether the document has a heading that `#part` leads to. A file that cannot be read has no headings.
pub fn has_heading(file: &Path, part: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut in_block = false;
    text.lines().any(|line| {
        in_block ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        !in_block && heading.len() < line.len() && anchor(heading) == part
    })
}

/// Anchor of a heading, as GitHub forms it: lower case, hyphens for spaces, no punctuation.
fn anchor(heading: &str) -> String {
    let lower = heading.trim().to_lowercase();
    let kept = lower.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("docs")).unwrap();
        fs::write(root.path().join("docs/a.md"), "# A\n\n## The first part, `b`\n").unwrap();
        let files =
            ["tracer-user/avtrace/src/probes/mod.rs", "tracer-user/avtrace/src/probes/b.rs"]
                .map(PathBuf::from);
        fs::create_dir_all(root.path().join("tracer-user/avtrace/src/probes")).unwrap();
        fs::write(root.path().join(&files[1]), "pub fn plan() {}\n").unwrap();
        let source = Source { path: Path::new(path), text };
        check(&source, root.path(), &files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn documents_that_exist_pass() {
        let text =
            "//! See `docs/a.md`, `docs/a.md#the-first-part-b`, `*.md` and `/else/where.md`.\n";
        assert!(problems("user/src/lib.rs", text).is_empty());
        assert!(
            problems("docs/c.md", "`a.md#a`, `probes/b.rs`, `c.rs`, `probes/*.rs`\n").is_empty()
        );
    }

    #[test]
    fn documents_that_do_not_exist_are_found() {
        assert_eq!(
            problems("src/lib.rs", "//! A.\n/// As `GONE.md` §2 has it.\nfn f() {}\n"),
            ["src/lib.rs:2: there is no file GONE.md"]
        );
        assert_eq!(
            problems("README.md", "`probes/gone.rs`\n"),
            ["README.md:1: there is no file probes/gone.rs"]
        );
    }

    #[test]
    fn headings_that_do_not_exist_are_found() {
        assert_eq!(
            problems("src/lib.rs", "// `docs/a.md#second`\n"),
            ["src/lib.rs:1: there is no heading docs/a.md#second"]
        );
    }

    #[test]
    fn modules_and_items_that_do_not_exist_are_found() {
        assert!(
            problems("README.md", "`probes::b`, `probes::b::plan`, `std::sync`, `Plan::new`\n")
                .is_empty()
        );
        for gone in ["probes::c", "probes::b::gone", "probes::c::plan"] {
            let found = problems("README.md", &format!("`{gone}`\n"));
            assert_eq!(found, [format!("README.md:1: there is no item {gone}")]);
        }
    }

    #[test]
    fn code_refers_to_nothing() {
        assert!(problems("src/lib.rs", "const A: &str = \"`gone.md`\";\n").is_empty());
        assert!(problems("README.md", "```\n`gone.md`\n```\n").is_empty());
    }
}
