//! The rules for the language of comments: documentation opens with a noun or a verb, some words have better ones,
//! and lines end before column 120.
//!
//! Text from before these rules is in [`LIST`]: for each file the numbers of places that break a rule. They only
//! go down: a file with more places than its entry is a problem, and so is one with fewer, until the entry is
//! lowered (`cargo xtask tidy --update`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::{Problem, Source};

/// Path of the list, relative to the workspace.
pub const LIST: &str = "xtask/tidy/src/conventions/language.txt";

/// Head of the list.
const HEAD: &str = "\
# Places in comments that break a rule of language.rs, for each file: openers, words, wide lines.
# Entries are only lowered: cargo xtask tidy --update
";

/// Words that documentation does not open with, each followed by a clause that stands for a noun.
const OPENERS: [&str; 12] = [
    "What", "Where", "Whether", "How", "Who", "Which", "Why", "When", "Of", "One", "As", "The same",
];

/// Words that stand for a more exact one: report, emit, record, distinguish, know; release.
const WORDS: [&str; 9] = [
    "tell",
    "tells",
    "told",
    "telling",
    "let go",
    "lets go",
    "letting go",
    "lets it go",
    "lets them go",
];

/// The most columns of a comment, and of a line of prose in Markdown.
const COLUMNS: usize = 120;

/// Programs and snippets that tests compile and look at: data, whose line numbers count.
const FIXTURES: &str = "tests/data";

/// Lines of one file that break a rule, for each rule, from 1.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    openers: Vec<usize>,
    words: Vec<usize>,
    wide: Vec<usize>,
}

/// Numbers of places, for each rule.
type Counts = [usize; 3];

/// Names of the rules, in the order of [`Counts`].
const RULES: [&str; 3] = [
    "documentation opens with a question word or the like",
    "\"tell\" or \"let go\" stands for a more exact word",
    "a comment or line of prose has more than 120 columns",
];

impl Places {
    fn of_rules(&self) -> [&[usize]; 3] {
        [&self.openers, &self.words, &self.wide]
    }

    fn counts(&self) -> Counts {
        self.of_rules().map(<[usize]>::len)
    }
}

/// Finds the places of one file.
pub fn find(source: &Source<'_>) -> Places {
    let mut places = Places::default();
    let fixture = source.path.parent().is_some_and(|dir| dir.ends_with(FIXTURES));
    if source.is(&["rs"]) && !fixture {
        find_in_rust(source.text, &mut places);
    } else if source.is(&["md"]) {
        find_in_markdown(source.text, &mut places);
    }
    places
}

fn find_in_rust(text: &str, places: &mut Places) {
    let mut kind_before = "";
    for (number, line) in (1..).zip(text.lines()) {
        let Some((kind, text)) = comment(line) else {
            kind_before = "";
            continue;
        };
        if kind != "//" && kind != kind_before && opens_badly(text) {
            places.openers.push(number);
        }
        kind_before = kind;
        places.words.extend((0..count_words(text)).map(|_| number));
        if line.chars().count() > COLUMNS {
            places.wide.push(number);
        }
    }
}

fn find_in_markdown(text: &str, places: &mut Places) {
    let mut in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            places.words.extend((0..count_words(line)).map(|_| number));
            // A row of a table is one line however long it is.
            if line.chars().count() > COLUMNS && !line.trim_start().starts_with('|') {
                places.wide.push(number);
            }
        }
    }
}

/// Kind and text of a line that is a comment.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let kind = ["////", "///", "//!", "//"].into_iter().find(|kind| line.starts_with(kind))?;
    let text = &line[kind.len()..];
    Some((if kind == "////" { "//" } else { kind }, text.strip_prefix(' ').unwrap_or(text)))
}

/// Returns whether the first sentence of documentation opens with one of [`OPENERS`].
fn opens_badly(text: &str) -> bool {
    OPENERS.iter().any(|opener| {
        text.strip_prefix(opener)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// Number of times that one of [`WORDS`] stands in the text.
fn count_words(text: &str) -> usize {
    let words: Vec<String> =
        text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
    let phrases = WORDS.map(|phrase| phrase.split(' ').collect::<Vec<_>>());
    let starts_here = |at: usize| {
        phrases.iter().any(|phrase| {
            words.get(at..at + phrase.len()).is_some_and(|words| words.iter().eq(phrase.iter()))
        })
    };
    (0..words.len()).filter(|&at| starts_here(at)).count()
}

/// Entries of the list, by file.
type List = BTreeMap<PathBuf, Counts>;

/// Compares the places with the list in the workspace.
///
/// # Errors
/// When the list is not readable, or is no list.
pub fn check(found: &BTreeMap<PathBuf, Places>, root: &Path) -> Result<Vec<Problem>> {
    Ok(compare(found, &read(root)?.unwrap_or_default()))
}

fn compare(found: &BTreeMap<PathBuf, Places>, list: &List) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut stale: Vec<&PathBuf> = list.keys().filter(|path| !found.contains_key(*path)).collect();
    for (path, places) in found {
        let allowed = list.get(path).copied().unwrap_or_default();
        let mut is_lower = false;
        for ((lines, allowed), rule) in places.of_rules().into_iter().zip(allowed).zip(RULES) {
            is_lower |= lines.len() < allowed;
            if lines.len() > allowed {
                let at: Vec<String> = lines.iter().map(ToString::to_string).collect();
                let what = format!(
                    "{rule}: {} times, {allowed} allowed, in lines {}",
                    lines.len(),
                    at.join(", ")
                );
                problems.push(Problem { path: path.clone(), line: lines.last().copied(), what });
            }
        }
        if is_lower {
            stale.push(path);
        }
    }
    if let Some(first) = stale.first() {
        let what = format!(
            "entries are too high, that of {} and {} more: `cargo xtask tidy --update`",
            first.display(),
            stale.len() - 1
        );
        problems.push(Problem { path: PathBuf::from(LIST), line: None, what });
    }
    problems
}

/// Rewrites the list for the places that were found. Without `force` the entries of a file may only go up by as much
/// as entries of deleted files leave over: a renamed file keeps its entry.
///
/// # Errors
/// When an entry would go up, or a file cannot be read or written.
pub fn update(found: &BTreeMap<PathBuf, Places>, root: &Path, force: bool) -> Result<()> {
    let old = read(root)?;
    let new: List = (found.iter())
        .map(|(path, places)| (path.clone(), places.counts()))
        .filter(|(_, counts)| *counts != Counts::default())
        .collect();
    if let Some(old) = old.filter(|_| !force) {
        let raised = raised(&old, &new);
        if !raised.is_empty() {
            bail!("entries only go down, and these would go up: {}", raised.join(", "));
        }
    }
    let path = root.join(LIST);
    fs::write(&path, render(&new)).with_context(|| format!("failed to write {}", path.display()))
}

/// Files whose entries would go up by more than the files that are gone leave over.
fn raised(old: &List, new: &List) -> Vec<String> {
    let mut left_over = Counts::default();
    for counts in old.iter().filter(|(path, _)| !new.contains_key(*path)).map(|(_, c)| c) {
        for (sum, count) in left_over.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    let mut files = Vec::new();
    for (path, counts) in new {
        let before = old.get(path).copied().unwrap_or_default();
        let mut is_raised = false;
        for ((count, before), left_over) in counts.iter().zip(before).zip(&mut left_over) {
            let more = count.saturating_sub(before);
            is_raised |= more > *left_over;
            *left_over = left_over.saturating_sub(more);
        }
        if is_raised {
            files.push(path.display().to_string());
        }
    }
    files
}

/// Reads the list; `None` when there is no such file.
fn read(root: &Path) -> Result<Option<List>> {
    let path = root.join(LIST);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {LIST}"))?;
    parse(&text).map(Some)
}

fn parse(text: &str) -> Result<List> {
    let mut list = List::new();
    let entries = (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#'));
    for (number, line) in entries {
        let mut words = line.split(' ');
        let path = PathBuf::from(words.next().unwrap_or_default());
        let numbers = words.map(str::parse).collect::<Result<Vec<usize>, _>>().unwrap_or_default();
        let Ok(counts) = Counts::try_from(numbers) else {
            bail!("{LIST}:{number}: an entry is a path and three numbers");
        };
        if list.last_key_value().is_some_and(|(last, _)| *last >= path) {
            bail!("{LIST}:{number}: entries are sorted, one for each file");
        }
        list.insert(path, counts);
    }
    Ok(list)
}

fn render(list: &List) -> String {
    let mut text = HEAD.to_owned();
    for (path, [openers, words, wide]) in list {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} {openers} {words} {wide}", path.display());
    }
    text
}

#[cfg(test)]
mod tests;
