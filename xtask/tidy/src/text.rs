//! Separates code from comments and literals in Rust text, as far as the rules need it; no parser.

/// A piece of Rust text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Code,
    Comment,
    Literal,
}

/// A line of a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentLine {
    /// Its number in the file, from 1.
    pub line: usize,
    pub kind: CommentKind,
    /// Without the slashes and the space after them.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentKind {
    /// `///`
    Outer,
    /// `//!`
    Inner,
    /// `//`, and comments between `/*` and `*/`
    Plain,
}

/// `text` with the contents of comments, strings and character literals blanked out. Lines and
/// columns (in characters) stay where they are.
pub fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for_each_piece(text, |piece, chars| match piece {
        Piece::Code => out.extend(chars),
        _ => out.extend(chars.iter().map(|&c| if c == '\n' { '\n' } else { ' ' })),
    });
    out
}

/// Lines of the comments in `text`, in order.
pub fn comments(text: &str) -> Vec<CommentLine> {
    let mut comments = Vec::new();
    let mut line = 1;
    for_each_piece(text, |piece, chars| {
        if piece == Piece::Comment {
            let text: String = chars.iter().collect();
            let inside =
                text.strip_prefix("/*").map(|text| text.strip_suffix("*/").unwrap_or(text));
            let kinds = [("////", CommentKind::Plain), ("///", CommentKind::Outer)];
            let others = [("//!", CommentKind::Inner), ("//", CommentKind::Plain)];
            let slashes =
                kinds.iter().chain(&others).find(|(slashes, _)| text.starts_with(slashes));
            let (kind, inside) = match (inside, slashes) {
                (None, Some((slashes, kind))) => (*kind, &text[slashes.len()..]),
                (inside, _) => (CommentKind::Plain, inside.unwrap_or(&text)),
            };
            comments.extend((line..).zip(inside.split('\n')).map(|(line, text)| {
                let text = text.strip_prefix(' ').unwrap_or(text).trim_end().to_owned();
                CommentLine { line, kind, text }
            }));
        }
        line += chars.iter().filter(|&&c| c == '\n').count();
    });
    comments
}

/// Passes the pieces of `text` to `consume`, in order.
fn for_each_piece(text: &str, mut consume: impl FnMut(Piece, &[char])) {
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let (piece, end) = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => (Piece::Comment, line_comment(&chars, at)),
            '/' if chars.get(at + 1) == Some(&'*') => (Piece::Comment, block_comment(&chars, at)),
            '"' => (Piece::Literal, string(&chars, at)),
            '\'' => (Piece::Literal, character(&chars, at)),
            c if is_word(c) => {
                let end = word_end(&chars, at);
                let is_prefix = matches!(chars[at..end], ['r'] | ['b' | 'c', 'r']);
                match raw_string(&chars, end).filter(|_| is_prefix) {
                    Some(end) => (Piece::Literal, end),
                    None => (Piece::Code, end),
                }
            }
            _ => (Piece::Code, at + 1),
        };
        // A quote before a lifetime is code.
        let (piece, end) = if end == at { (Piece::Code, at + 1) } else { (piece, end) };
        consume(piece, &chars[at..end]);
        at = end;
    }
}

/// The words of a line of code: names, keywords, numbers.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Past the word that `at` starts.
fn word_end(chars: &[char], at: usize) -> usize {
    at + chars[at..].iter().take_while(|&&c| is_word(c)).count()
}

/// Past the comment, at its newline.
fn line_comment(chars: &[char], at: usize) -> usize {
    at + chars[at..].iter().take_while(|&&c| c != '\n').count()
}

/// Past the comment and those nested in it.
fn block_comment(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => at += 1,
        }
    }
    at.min(chars.len())
}

/// Past the string whose opening quote is at `at`.
fn string(chars: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// Past the raw string whose hashes or opening quote are at `at`; `None` when that is something
/// else, such as a raw identifier.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + hashes) != Some(&'"') {
        return None;
    }
    let mut at = at + hashes + 1;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take_while(|&&c| c == '#').count() >= hashes {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(chars.len())
}

/// Past the character literal at `at`; `at` itself when it is a lifetime.
fn character(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), Some(_)) => {
            let rest = chars[at + 3..].iter().take_while(|&&c| c != '\'').count();
            (at + 3 + rest + 1).min(chars.len())
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str) -> Vec<String> {
        code_only(text).lines().flat_map(words).map(str::to_owned).collect()
    }

    #[test]
    fn comments_are_blanked() {
        assert_eq!(left("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(left("//! a\n/// b\nc"), ["c"]);
    }

    #[test]
    fn comments_have_lines_and_kinds() {
        let text = "//! a\nb(\"// c\"); // d\n/// e\n/* f\n g */\n//// h\n";
        let found: Vec<_> = comments(text).into_iter().map(|c| (c.line, c.kind, c.text)).collect();
        let expected = [
            (1, CommentKind::Inner, "a"),
            (2, CommentKind::Plain, "d"),
            (3, CommentKind::Outer, "e"),
            (4, CommentKind::Plain, "f"),
            (5, CommentKind::Plain, "g"),
            (6, CommentKind::Plain, "h"),
        ];
        assert_eq!(found, expected.map(|(line, kind, text)| (line, kind, text.to_owned())));
    }

    #[test]
    fn literals_are_blanked() {
        assert_eq!(left(r#"a("b \" c", 'd', '\'', b"e") f"#), ["a", "b", "f"]);
        assert_eq!(left("x(r\"a\\\", r#\"b \" c\"#, br\"d\") y"), ["x", "y"]);
        assert_eq!(left(r"a('\u{1F600}') b"), ["a", "b"]);
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(left("fn f<'a>(x: &'a str) {}"), ["fn", "f", "a", "x", "a", "str"]);
        assert_eq!(left("r#type + r"), ["r", "type", "r"]);
    }

    #[test]
    fn lines_and_columns_stay() {
        let text = "let a = \"x\ny\"; // z\nb";
        let code = code_only(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(code.lines().nth(2), Some("b"));
        assert_eq!(code.chars().count(), text.chars().count());
    }

    #[test]
    fn what_is_cut_short_ends_at_the_end() {
        for text in ["\"a", "/* a", "r#\"a", "'", "'\\", "\"\\"] {
            assert_eq!(code_only(text).chars().count(), text.chars().count(), "{text}");
        }
    }
}
