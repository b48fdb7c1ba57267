//! Escapes for bytes of names that have a meaning in a line: `\7c` for a bar, after the directive that
//! enables them. Also decides which names need escapes.

use std::borrow::Cow;

/// Field of a line that a name stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Thread,
    Object,
    Location,
}

impl Field {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Object => "object",
            Self::Location => "location",
        }
    }
}

/// Returns whether a name cannot stand in a line as it is. A backslash can, as long as escapes are not
/// enabled.
pub(super) fn needs_escapes(field: Field, name: &str) -> bool {
    // Besides line ends, other control characters may make a file look like a binary file.
    let breaks = |byte: u8| byte < b' ' && byte != b'\t';
    match field {
        Field::Thread => {
            name.starts_with(['#', '\u{feff}'])
                || name.bytes().any(|byte| breaks(byte) || byte == b'|')
        }
        Field::Object => name.bytes().any(breaks) || name.contains(")|"),
        Field::Location => name.bytes().any(breaks),
    }
}

/// Adds a name with every byte escaped that could be misread.
pub(super) fn escape(name: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (at, byte) in name.bytes().enumerate() {
        let special = matches!(byte, b'\\' | b'|' | b'(' | b')' | 0x7f) || byte < b' ';
        // The three bytes of a byte order mark are escaped one by one where a line could start with them.
        let first = at == 0 && byte == b'#' || at < 3 && name.starts_with('\u{feff}');
        if special || first {
            out.extend([b'\\', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        } else {
            out.push(byte);
        }
    }
}

/// Decodes an escaped name; `None` if a backslash is not followed by two hexadecimal digits.
pub(super) fn unescape(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(first) = memchr::memchr(b'\\', name) else { return Some(name.into()) };
    let mut plain = name[..first].to_vec();
    let mut rest = &name[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'\\' {
            let (digits, after) = rest.split_first_chunk::<2>()?;
            plain.push(hex(digits[0])? << 4 | hex(digits[1])?);
            rest = after;
        } else {
            plain.push(byte);
        }
    }
    Some(plain.into())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_escaping() {
        for name in ["plain", "a|b)|c", "#1", " x", "\u{feff}T", "a\\b", "ä\nö\r", "\x7f\0"] {
            let mut escaped = Vec::new();
            escape(name, &mut escaped);
            assert!(escaped.iter().all(|byte| !b"|()\n\r".contains(byte)), "{name:?}");
            assert_eq!(unescape(&escaped).unwrap(), name.as_bytes());
        }
    }

    #[test]
    fn broken_escapes_are_refused() {
        for name in ["\\", "\\7", "\\7g", "a\\+1"] {
            assert_eq!(unescape(name.as_bytes()), None, "{name:?}");
        }
    }

    #[test]
    fn ordinary_names_need_no_escapes() {
        for field in [Field::Thread, Field::Object, Field::Location] {
            for name in ["", "T1", "operator()", "a\\b", "V3.0[1]"] {
                assert!(!needs_escapes(field, name), "{name:?}");
            }
            assert!(needs_escapes(field, "a\nb"));
        }
        assert!(needs_escapes(Field::Thread, "a|b"));
        assert!(!needs_escapes(Field::Object, "a|b"));
        assert!(needs_escapes(Field::Object, "a)|b"));
        assert!(!needs_escapes(Field::Location, "a)|b"));
    }
}
