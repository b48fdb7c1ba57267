//! Makes any text safe and measurable on a terminal: control characters and direction marks are escaped, widths
//! are counted in columns, long text is cut. No layout and no colour lives here.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar as _;

/// Mark in place of text that was cut out.
const CUT: &str = "...";

/// Returns whether printing the character could act on a terminal or reorder the text around it.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    // `is_control` covers C0, DEL and C1; the others change direction, break lines, or hide.
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with every unsafe character escaped: `\n`, `\x1b`, `\u{202e}`. Tabs become one space.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if !is_unsafe(c) => out.push(c),
            c if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// The columns that a terminal gives to a character: 0 for combining marks, 2 for wide ones, 1 for control characters,
/// which are printed escaped only.
fn char_width(c: char) -> usize {
    c.width().unwrap_or(1)
}

/// The columns that printable text takes.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Returns the longest start of the text that fits into `columns` columns.
fn start_of(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += char_width(c);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// Returns the longest end of the text that fits into `columns` columns.
fn end_of(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        used += char_width(c);
        if used > columns {
            return &text[at + c.len_utf8()..];
        }
    }
    text
}

/// Cuts a text at its end to fit into `columns` columns.
#[must_use]
pub fn cut_end(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{CUT}", start_of(text, columns.saturating_sub(CUT.len())).trim_end()))
}

/// Cuts a text in its middle to fit into `columns` columns: both ends of a name matter.
#[must_use]
pub fn cut_middle(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let rest = columns.saturating_sub(CUT.len());
    let tail = rest / 2;
    Cow::Owned(format!("{}{CUT}{}", start_of(text, rest - tail), end_of(text, tail)))
}

/// The longest word of a message, in columns; longer ones are what somebody has typed or generated.
const MAX_WORD: usize = 300;

/// The longest line of a message, in columns.
const MAX_LINE: usize = 2_000;

/// Returns a message with overlong words and lines cut in their middle, since it may quote text of any length.
#[must_use]
pub fn cut_message(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_WORD {
        return Cow::Borrowed(text);
    }
    let cut_line = |line: &str| {
        let words: Vec<_> = line.split(' ').map(|word| cut_middle(word, MAX_WORD)).collect();
        cut_middle(&words.join(" "), MAX_LINE).into_owned()
    };
    Cow::Owned(text.split('\n').map(cut_line).collect::<Vec<_>>().join("\n"))
}

/// Cuts a path at its start, between components where possible, to fit into `columns` columns.
#[must_use]
pub fn cut_path(path: &str, columns: usize) -> Cow<'_, str> {
    if width(path) <= columns {
        return Cow::Borrowed(path);
    }
    let tail = end_of(path, columns.saturating_sub(CUT.len()));
    match tail.find('/') {
        Some(slash) => Cow::Owned(format!("{CUT}{}", &tail[slash..])),
        None => {
            let name = path.rsplit('/').next().unwrap_or(path);
            Cow::Owned(cut_middle(name, columns).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_sequences_are_escaped() {
        assert_eq!(printable("a\x1b[31mb"), "a\\x1b[31mb");
        assert_eq!(printable("a\u{9b}31mb"), "a\\u{9b}31mb");
        assert_eq!(printable("x\u{202e}y\u{2066}"), "x\\u{202e}y\\u{2066}");
        assert_eq!(printable("one\ntwo\rthree\tfour\x7f"), "one\\ntwo\\rthree four\\x7f");
        assert!(matches!(printable("größe 値"), Cow::Borrowed("größe 値")));
    }

    #[test]
    fn width_counts_columns() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("残高"), 4);
        assert_eq!(width("e\u{301}"), 1);
        assert_eq!(width("🚀✅⚡"), 6);
        assert_eq!(width("ก\u{e31}"), 1, "a Thai vowel above its consonant");
    }

    #[test]
    fn messages_are_cut_where_a_word_or_a_line_is_too_long() {
        let long = "x".repeat(200_000);
        let message =
            cut_message(&format!("`{long}` is no pattern: a name is missing\nhelp")).into_owned();
        assert!(
            message.starts_with("`xxx")
                && message.ends_with("x` is no pattern: a name is missing\nhelp")
        );
        assert!(message.contains("xx...xx") && message.len() < 400, "{message}");
        let words = cut_message(&"two words ".repeat(20_000)).into_owned();
        assert!(words.len() <= MAX_LINE && words.contains("..."), "{}", words.len());
        let path = format!("cannot read `/srv/{}/bank.c`", "directory/".repeat(20));
        assert_eq!(cut_message(&path), path);
    }

    #[test]
    fn cuts_fit_and_keep_what_matters() {
        assert_eq!(cut_end("abcdefgh", 8), "abcdefgh");
        assert_eq!(cut_end("abcdefghi", 8), "abcde...");
        assert_eq!(cut_middle("abcdefghij", 8), "abc...ij");
        assert_eq!(cut_path("/usr/src/bank.c", 40), "/usr/src/bank.c");
        assert_eq!(cut_path("/very/long/path/to/bank.c", 16), ".../to/bank.c");
        assert_eq!(cut_path("/very/long/path/to/bank.c", 8), "bank.c");
        for columns in 6..20 {
            for cut in [cut_end, cut_middle, cut_path] {
                assert!(width(&cut("口座/残高/とても長い名前.c", columns)) <= columns);
            }
        }
    }
}
