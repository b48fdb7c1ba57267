//! Patterns with `*`, `?` and `[…]` for names and paths, and the parts of names that they may match.

/// The name, and what is left of it without its outer namespaces and classes.
pub fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    let mut starts = vec![0];
    let bytes = name.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'{' => depth += 1,
            b'>' | b')' | b'}' => depth -= 1,
            b':' if depth == 0 && index > 0 && bytes[index - 1] == b':' => starts.push(index + 1),
            _ => {}
        }
    }
    starts.into_iter().map(move |start| &name[start..])
}

/// The regular expression for a name with `*`, `?` and `[…]`.
#[must_use]
pub fn glob(text: &str) -> String {
    let mut regex = String::from("(?s)^");
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            // `operator[]` is a name.
            '[' if rest.find(']').is_some_and(|end| end > 0) => {
                let end = rest.find(']').unwrap_or_default();
                let (class, after) = rest.split_at(end);
                let (negated, class) = match class.strip_prefix('!') {
                    Some(class) => ("^", class),
                    None => ("", class),
                };
                let class = class.replace('\\', "\\\\").replace('[', "\\[").replace('^', "\\^");
                regex.push_str(&format!("[{negated}{class}]"));
                rest = &after[1..];
            }
            other => regex.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push('$');
    regex
}
