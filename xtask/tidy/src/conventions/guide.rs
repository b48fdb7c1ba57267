//! The rule for the guide's table of contents: it has each document of `docs/` once, but for itself. That its links
//! lead somewhere is checked in `links`.

use std::path::{Path, PathBuf};

use super::{Problem, Source};

/// The table of contents of mdBook.
const SUMMARY: &str = "docs/SUMMARY.md";

pub fn check(source: &Source<'_>, files: &[PathBuf]) -> Vec<Problem> {
    if source.path != Path::new(SUMMARY) {
        return Vec::new();
    }
    let is_document =
        |path: &&PathBuf| path.starts_with("docs") && path.extension().is_some_and(|e| e == "md");
    let times = |path: &Path| {
        let name = path.strip_prefix("docs").unwrap_or(path).display();
        source.text.matches(&format!("]({name})")).count()
    };
    files
        .iter()
        .filter(is_document)
        .filter(|path| **path != Path::new(SUMMARY))
        .filter_map(|path| match times(path) {
            1 => None,
            0 => Some(source.whole(format!("{} is missing", path.display()))),
            _ => Some(source.whole(format!("{} is listed more than once", path.display()))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_is_listed_once() {
        let files = ["docs/a.md", "docs/guide/b.md", "docs/SUMMARY.md", "README.md", "docs/c.json"];
        let files: Vec<PathBuf> = files.map(PathBuf::from).to_vec();
        let problems = |text| -> Vec<String> {
            let source = Source { path: Path::new(SUMMARY), text };
            check(&source, &files).iter().map(ToString::to_string).collect()
        };
        assert!(problems("- [A](a.md)\n- [B](guide/b.md)\n").is_empty());
        assert_eq!(
            problems("- [A](a.md)\n- [A](a.md)\n"),
            [
                "docs/SUMMARY.md: docs/a.md is listed more than once",
                "docs/SUMMARY.md: docs/guide/b.md is missing"
            ]
        );
    }
}
