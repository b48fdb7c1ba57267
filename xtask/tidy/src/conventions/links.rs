//! The rule for links in Markdown: a link to a file leads to one, and to a heading of it.

use std::path::Path;

use super::references::has_heading;
use super::{Problem, Source};

pub fn check(source: &Source<'_>, root: &Path) -> Vec<Problem> {
    if !source.is(&["md"]) {
        return Vec::new();
    }
    let dir = root.join(source.path).parent().unwrap_or(root).to_owned();
    let mut problems = Vec::new();
    let mut in_block = false;
    for (number, line) in (1..).zip(source.text.lines()) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        if in_block {
            continue;
        }
        for target in targets(line) {
            let (file, part) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { root.join(source.path) } else { dir.join(file) };
            let leads_to_part = part.is_empty()
                || file.extension().is_none_or(|e| e != "md")
                || has_heading(&file, part);
            let leads_somewhere = file.exists() && leads_to_part;
            if !is_elsewhere(target) && !leads_somewhere {
                problems.push(source.at(number, format!("the link leads nowhere: {target}")));
            }
        }
    }
    problems
}

/// Returns whether a link leads out of the repository.
fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The targets of the links in a line: `[text](target)` and `[name]: target`, but for those in
/// `code`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    // Every other piece between back-ticks is code.
    let mut offset = 0;
    for (index, piece) in line.split('`').enumerate() {
        if index % 2 == 0 {
            inline_targets(line, offset, offset + piece.len(), &mut found);
        }
        offset += piece.len() + 1;
    }
    if let Some((name, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "))
        && !name.contains(']')
    {
        found.push(first_word(target));
    }
    found
}

/// Links whose `](` lies between two offsets of the line; their text may have been `code`.
fn inline_targets<'a>(line: &'a str, from: usize, to: usize, found: &mut Vec<&'a str>) {
    let mut at = from;
    while let Some(bracket) = line[at..to].find("](") {
        let start = at + bracket + 2;
        let Some(end) = line[start..].find(')') else { return };
        found.push(first_word(&line[start..start + end]));
        at = start.min(to);
    }
}

/// A link's target without the title that may follow it.
fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn problems(text: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("docs")).unwrap();
        fs::write(root.path().join("README.md"), "# Part\n").unwrap();
        fs::write(root.path().join("docs/there.md"), "").unwrap();
        fs::write(root.path().join("docs/a.md"), "# Below\n").unwrap();
        let source = Source { path: Path::new("docs/a.md"), text };
        check(&source, root.path()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[a](there.md), [b](../README.md#part \"title\"), [`c`](.)\n\
                    [d](https://example.org/x), [e](#below), <mailto:x@y>\n[f]: there.md\n";
        assert_eq!(problems(text), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(
            problems("\n[a](there.md) and [`b`](gone.md#part)\n"),
            ["docs/a.md:2: the link leads nowhere: gone.md#part"]
        );
        assert_eq!(problems("[f]: gone.md\n"), ["docs/a.md:1: the link leads nowhere: gone.md"]);
        assert_eq!(problems("[g](there.md#no)\n[h](#no)\n").len(), 2);
    }

    #[test]
    fn code_has_no_links() {
        assert!(problems("`a[0](gone)` b\n```\n[a](gone.md)\n```\n").is_empty());
        assert_eq!(problems("```\n```\n[a](gone.md)\n").len(), 1);
    }
}
