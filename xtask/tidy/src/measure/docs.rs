//! Documentation of one line that only repeats the name below it, in production code.

use crate::text::{CommentKind, CommentLine, comments, words};

use super::{Measure, Tree};

/// The most words of documentation that says little.
const FEW: usize = 5;

/// Words that add no meaning to a name.
const FILLERS: [&str; 16] = [
    "a", "an", "and", "as", "for", "from", "in", "is", "its", "of", "on", "or", "the", "this",
    "to", "with",
];

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Docs {
    /// All of one line.
    pub all: usize,
    /// Short ones, with at most [`FEW`] words.
    pub short: usize,
    /// Echoes: their words are all in the line of code below.
    pub echoes: usize,
}

pub fn measure(tree: &Tree) -> Vec<Measure> {
    let docs = find(tree);
    let note = format!("of {} docs of one line; {} have at most {FEW} words", docs.all, docs.short);
    vec![Measure::with_note("one-line echo docs", docs.echoes, note)]
}

pub fn find(tree: &Tree) -> Docs {
    let mut docs = Docs::default();
    for file in tree.production() {
        let tests = file.test_lines();
        let lines: Vec<&str> = file.text.lines().collect();
        for comment in of_one_line(&comments(&file.text)) {
            if tests.iter().any(|range| range.contains(&comment.line)) {
                continue;
            }
            let code =
                lines[comment.line..].iter().find(|line| !line.trim_start().starts_with('#'));
            docs.all += 1;
            docs.short += usize::from(comment.text.split_whitespace().count() <= FEW);
            docs.echoes += usize::from(code.is_some_and(|code| is_echo(&comment.text, code)));
        }
    }
    docs
}

/// Documentation of items that has one line.
fn of_one_line(comments: &[CommentLine]) -> Vec<&CommentLine> {
    let is_doc = |at: Option<usize>, line: usize| {
        let comment = at.and_then(|at| comments.get(at));
        comment.is_some_and(|c| c.line == line && c.kind == CommentKind::Outer)
    };
    (comments.iter().enumerate())
        .filter(|(_, comment)| comment.kind == CommentKind::Outer)
        .filter(|(at, comment)| {
            !is_doc(at.checked_sub(1), comment.line - 1) && !is_doc(Some(at + 1), comment.line + 1)
        })
        .map(|(_, comment)| comment)
        .collect()
}

/// Returns whether each word of `doc`, but for fillers, is part of a name in `code`.
fn is_echo(doc: &str, code: &str) -> bool {
    let parts: Vec<String> = words(code).flat_map(parts).map(|part| stem(&part)).collect();
    let doc: Vec<String> = words(doc).map(str::to_lowercase).collect();
    doc.iter()
        .filter(|word| !FILLERS.contains(&word.as_str()))
        .all(|word| parts.contains(&stem(word)))
}

/// Words of a name in snake case or camel case, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && !before.is_uppercase() {
            parts.push(String::new());
        }
        if c != '_'
            && let Some(last) = parts.last_mut()
        {
            last.extend(c.to_lowercase());
        }
        before = c;
    }
    parts
}

/// A word without the ending of plurals and verbs.
fn stem(word: &str) -> String {
    let stem = ["ies", "es", "s", "ed", "ing", "y"].iter().find_map(|end| word.strip_suffix(end));
    stem.filter(|stem| stem.len() > 2).unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn echoes_repeat_the_name() {
        assert!(is_echo("The process.", "    process: Pid,"));
        assert!(is_echo("Name of the thread", "pub fn thread_name(&self) -> &str {"));
        assert!(is_echo("The entries of this.", "pub struct Entry {"));
        assert!(!is_echo("Time between two samples.", "period: Duration,"));
    }

    #[test]
    fn docs_of_one_line_are_counted() {
        let text = "//! The root.\n\n/// The place.\n#[derive(Debug)]\nstruct Place {\n    \
            /// Microseconds since the start.\n    time: u64,\n    /// Two\n    /// lines.\n    a: u8,\n    \
            // The b.\n    b: u8,\n}\n\n#[cfg(test)]\nmod tests {\n    /// The a.\n    struct A;\n}\n";
        let found = find(&sample(&[("src/lib.rs", text)]));
        assert_eq!(found, Docs { all: 2, short: 2, echoes: 1 });
    }
}
