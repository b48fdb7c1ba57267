//! Rates of six patterns of sentences that people hardly write and that this tree had many of: a clause or a pronoun
//! stands where a noun is expected. Rates are per 10,000 words, because a few of each are good English.

use std::collections::BTreeMap;

use super::{Measure, Tree};
use crate::text::{CommentKind, comments};

/// A pattern of words.
#[derive(Debug)]
pub struct Pattern {
    pub name: &'static str,
    /// The lowest and the highest rate in nine projects whose comments are good to read.
    pub anchors: [f64; 2],
    /// Returns whether the pattern starts at the first of these tokens, of which there is at least one.
    is_here: fn(&[Token]) -> bool,
}

/// The six patterns.
pub const PATTERNS: [Pattern; 6] = [
    Pattern { name: "\"what is\" as a noun", anchors: [0.7, 2.6], is_here: is_clause_as_noun },
    Pattern {
        name: "\"that of\", \"those of\", \"those that\"",
        anchors: [0.0, 1.8],
        is_here: is_that_of,
    },
    Pattern { name: "\"nothing\", \"none\"", anchors: [0.9, 8.0], is_here: is_nothing },
    Pattern { name: "\"one that\", \"one which\"", anchors: [0.0, 1.3], is_here: is_one_that },
    Pattern { name: "\"of its own\"", anchors: [0.0, 0.4], is_here: is_of_its_own },
    Pattern { name: "\"so many\" without \"that\"", anchors: [0.0, 0.3], is_here: is_so_many },
];

/// A piece of prose.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// In lower case.
    Word(String),
    /// Text between back-ticks.
    Code,
    /// A mark that ends a sentence or a clause.
    Mark(char),
}

impl Token {
    fn is_any(&self, words: &[&str]) -> bool {
        matches!(self, Self::Word(word) if words.contains(&word.as_str()))
    }
}

/// Numbers of words and patterns in a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prose {
    pub words: usize,
    /// For each of [`PATTERNS`].
    pub times: [usize; PATTERNS.len()],
}

impl Prose {
    fn add(&mut self, text: &str) {
        let tokens = tokens(text);
        self.words += tokens.iter().filter(|token| !matches!(token, Token::Mark(_))).count();
        for at in 0..tokens.len() {
            for (times, pattern) in self.times.iter_mut().zip(&PATTERNS) {
                *times += usize::from((pattern.is_here)(&tokens[at..]));
            }
        }
    }

    /// Times of each pattern per 10,000 words.
    pub fn rates(&self) -> [f64; PATTERNS.len()] {
        self.times.map(|times| 1e4 * times as f64 / self.words.max(1) as f64)
    }
}

pub fn measure(tree: &Tree) -> Vec<Measure> {
    let packages = of_packages(tree);
    let comments = sum(packages.values());
    let documents = of_documents(tree);
    let mut measures = vec![
        Measure::new("words in comments", comments.words),
        Measure::new("words in documents", documents.words),
    ];
    for (kind, prose) in [("comments", comments), ("documents", documents)] {
        measures.extend(PATTERNS.iter().zip(prose.rates()).map(|(pattern, number)| {
            let [low, high] = pattern.anchors;
            let name = format!("{} per 10,000 words of {kind}", pattern.name);
            Measure { name, number, note: format!("anchors {low} to {high}") }
        }));
    }
    measures.extend(packages.into_iter().map(|(package, prose)| {
        let rates: Vec<String> = prose.rates().iter().map(|rate| format!("{rate:.0}")).collect();
        let note = format!("rates {}", rates.join(", "));
        Measure::with_note(format!("words in comments of {package}"), prose.words, note)
    }));
    measures
}

/// Comments of the Rust files of each package, including programs that tests compile.
pub fn of_packages(tree: &Tree) -> BTreeMap<&str, Prose> {
    let mut packages = BTreeMap::<&str, Prose>::new();
    for file in &tree.rust {
        let package = tree.package_of(&file.path);
        add_comments(packages.entry(package).or_default(), &file.text);
    }
    packages
}

/// Adds up the prose of packages.
pub fn sum<'a>(parts: impl Iterator<Item = &'a Prose>) -> Prose {
    parts.fold(Prose::default(), |sum, part| Prose {
        words: sum.words + part.words,
        times: std::array::from_fn(|pattern| sum.times[pattern] + part.times[pattern]),
    })
}

/// Markdown files.
pub fn of_documents(tree: &Tree) -> Prose {
    let mut prose = Prose::default();
    for file in &tree.markdown {
        prose.add(&without_blocks(file.text.lines()));
    }
    prose
}

/// Adds comments; those in lines that follow each other belong together.
fn add_comments(prose: &mut Prose, text: &str) {
    let mut block = Vec::new();
    let mut before: Option<(usize, CommentKind)> = None;
    for comment in comments(text) {
        if before.is_some_and(|(line, kind)| (line + 1, kind) != (comment.line, comment.kind)) {
            prose.add(&without_blocks(block.iter().map(String::as_str)));
            block.clear();
        }
        before = Some((comment.line, comment.kind));
        block.push(comment.text);
    }
    prose.add(&without_blocks(block.iter().map(String::as_str)));
}

/// Joins lines, without blocks of code. An empty line ends a sentence, as do a heading and an item of a list.
fn without_blocks<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut is_code = false;
    for line in lines {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let starts = line.is_empty() || line.starts_with(['#', '-', '*', '|']);
            text.push_str(if starts { "\n. " } else { "\n" });
            text.push_str(line);
        }
    }
    text
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 1 {
            tokens.push(Token::Code);
            continue;
        }
        let is_part = |c: char| c.is_alphanumeric() || "_'’".contains(c);
        let mut rest = part;
        while let Some(c) = rest.chars().next() {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            if end > 0 {
                tokens.push(Token::Word(rest[..end].to_lowercase()));
                rest = &rest[end..];
                continue;
            }
            if ".,;:?!()|\"".contains(c) {
                tokens.push(Token::Mark(c));
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    tokens
}

/// Tokens up to the end of the sentence.
fn sentence(tokens: &[Token]) -> &[Token] {
    let is_end = |token: &Token| matches!(token, Token::Mark('.' | '?' | '!' | ';'));
    &tokens[..tokens.iter().position(is_end).unwrap_or(tokens.len())]
}

/// Returns whether "what" opens a clause, as in "what is left" and "what they touch", that is no question.
fn is_clause_as_noun(tokens: &[Token]) -> bool {
    let [what, next, ..] = tokens else { return false };
    let follows = [
        "is", "are", "was", "were", "has", "have", "had", "it", "they", "he", "she", "we", "you",
        "one", "can", "cannot", "does", "do", "did", "may", "must", "the", "a", "an", "each",
        "this", "that", "its", "their",
    ];
    let end = tokens.get(sentence(tokens).len());
    what.is_any(&["what"]) && next.is_any(&follows) && end != Some(&Token::Mark('?'))
}

fn is_that_of(tokens: &[Token]) -> bool {
    match tokens {
        [first, second, ..] if second.is_any(&["of"]) => first.is_any(&["that", "those"]),
        [first, second, ..] => first.is_any(&["those"]) && second.is_any(&["that"]),
        _ => false,
    }
}

fn is_nothing(tokens: &[Token]) -> bool {
    tokens[0].is_any(&["nothing", "none"])
}

fn is_one_that(tokens: &[Token]) -> bool {
    matches!(tokens, [one, that, ..] if one.is_any(&["one"]) && that.is_any(&["that", "which"]))
}

fn is_of_its_own(tokens: &[Token]) -> bool {
    let owners = ["its", "their", "his", "her", "our", "one's", "whose"];
    matches!(tokens, [of, owner, own, ..]
        if of.is_any(&["of"]) && owner.is_any(&owners) && own.is_any(&["own"]))
}

/// Returns whether "so many" stands for a number named elsewhere: neither "as" nor "that" is near.
fn is_so_many(tokens: &[Token]) -> bool {
    let [so, many, rest @ ..] = tokens else { return false };
    let amounts = ["many", "much", "often", "few", "little"];
    so.is_any(&["so"])
        && many.is_any(&amounts)
        && !sentence(rest).iter().any(|token| token.is_any(&["that", "as"]))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn times(text: &str) -> [usize; PATTERNS.len()] {
        let mut prose = Prose::default();
        prose.add(text);
        prose.times
    }

    #[test]
    fn clauses_as_nouns_are_found() {
        assert_eq!(times("Keeps what is left, and what they touch."), [2, 0, 0, 0, 0, 0]);
        assert_eq!(times("What is left? Somewhat is."), [0; 6]);
    }

    #[test]
    fn pronouns_are_found() {
        assert_eq!(
            times("The time of A and that of B; those of C, those that D."),
            [0, 3, 0, 0, 0, 0]
        );
        assert_eq!(times("Nothing is left, `None` of it, none."), [0, 0, 2, 0, 0, 0]);
        assert_eq!(times("One that fits, or one which does not."), [0, 0, 0, 2, 0, 0]);
        assert_eq!(times("A file of its own. A crate of\ntheir own."), [0, 0, 0, 0, 2, 0]);
    }

    #[test]
    fn amounts_without_a_measure_are_found() {
        assert_eq!(times("Runs so many times. Reports so often."), [0, 0, 0, 0, 0, 2]);
        assert_eq!(times("Is so often run that it is kept. Runs so often as it can."), [0; 6]);
    }

    #[test]
    fn comments_and_documents_are_measured() {
        let tree = sample(&[
            (
                "src/lib.rs",
                "//! One\n//! that.\nconst A: &str = \"// one that\"; // Nothing\n/// one\n// that\nfn f() {}\n",
            ),
            ("a.md", "None.\n\n```\nnone\n```\n\n| of its | own |\n"),
        ]);
        let comments = sum(of_packages(&tree).values());
        assert_eq!(comments, Prose { words: 5, times: [0, 0, 1, 1, 0, 0] });
        assert_eq!(of_documents(&tree), Prose { words: 4, times: [0, 0, 1, 0, 0, 0] });
        assert_eq!(comments.rates()[2], 2000.0);
    }
}
