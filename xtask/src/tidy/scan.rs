//! Separates code from comments and literals in Rust text, as far as the rules need it; no parser.

/// `text` with the contents of comments, strings and character literals blanked out. Lines and
/// columns (in characters) stay where they are.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_comment(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment(&chars, at),
            '"' => string(&chars, at),
            '\'' => character(&chars, at),
            c if is_word(c) => {
                let end = word_end(&chars, at);
                let prefix: String = chars[at..end].iter().collect();
                match prefix.as_str() {
                    "r" | "br" | "cr" => raw_string(&chars, end).unwrap_or(at),
                    _ => {
                        out.push_str(&prefix);
                        at = end;
                        continue;
                    }
                }
            }
            _ => at,
        };
        if end <= at {
            // Ordinary code, or a prefix that turned out to be a name.
            let end = if is_word(chars[at]) { word_end(&chars, at) } else { at + 1 };
            out.extend(&chars[at..end]);
            at = end;
        } else {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
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
