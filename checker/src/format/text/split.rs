//! Splits a line of the usual shape into its parts, without a loop. Unusual lines are left to the caller;
//! ids are assigned elsewhere.

use super::scan::{Marks, WIDTH};
use crate::format::intern::{Key, SHORT};

/// Number of bytes that must follow the start of a line: two scans, and a load past the last of them.
pub(super) const ROOM: usize = 2 * WIDTH + 16;

/// A part of a line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub(super) start: u8,
    pub(super) length: u8,
}

/// The parts of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) thread: Part,
    /// Operation, its first byte the lowest.
    pub(super) word: u64,
    /// Empty if there is none.
    pub(super) object: Part,
    pub(super) label: Part,
    /// Length of the line with its end.
    pub(super) length: usize,
}

/// Masks of the lowest bytes of a word, by their number.
const WORDS: [u64; 9] = {
    let mut words = [0; 9];
    let mut length = 1;
    while length <= 8 {
        words[length] = u64::MAX >> (64 - 8 * length);
        length += 1;
    }
    words
};

/// Splits the line that starts here; `None` if it is longer than two scans or of another shape.
///
/// `long` is set if one scan was not enough. From then on two are made at once: if the lengths of lines vary around
/// the length of a scan, a mispredicted branch costs more than the second scan.
#[inline]
pub(super) fn split(text: &[u8; ROOM], long: &mut bool) -> Option<Parts> {
    let (scans, _) = text.as_chunks::<WIDTH>();
    let mut marks = Marks::scan(&scans[0]);
    if *long || marks.ends == 0 {
        *long = true;
        marks = marks.and(Marks::scan(&scans[1]));
        if marks.ends == 0 {
            return None;
        }
    }
    let end = marks.ends.trailing_zeros();
    let line = marks.ends ^ (marks.ends - 1);
    let bars = marks.bars & line;
    let later = bars & bars.wrapping_sub(1);
    // A position of 64 stands for no bar.
    let (first, second) = (bars.trailing_zeros(), later.trailing_zeros());
    if second == 64 || first == 0 || text[0] == b'#' {
        return None;
    }
    let opens = marks.opens & line & (u64::MAX << first);
    let open = opens.trailing_zeros();
    let length = (open.min(second) - first - 1) as usize;
    if length == 0 || length > 8 {
        return None;
    }
    let start = first as usize + 1;
    let word = load(text, start) & WORDS[length];
    if word & !WORDS[length - 1] == 0 {
        // A word that ends in a zero byte would be mistaken for a shorter one.
        return None;
    }
    let object = if open < second {
        // The bar after a parenthesis closes the object; mostly that is the next bar.
        let (start, end) = (open as usize + 1, second as usize - 1);
        if start >= end || text[end] != b')' {
            return None;
        }
        part(start, end)
    } else {
        Part::default()
    };
    let bar = second;
    let start = bar as usize + 1;
    let end = end as usize;
    let returned = end > start && text[end - 1] == b'\r';
    let label = part(start, end - usize::from(returned));
    Some(Parts { thread: part(0, first as usize), word, object, label, length: end + 1 })
}

#[inline]
fn part(start: usize, end: usize) -> Part {
    Part { start: start as u8, length: (end - start) as u8 }
}

/// Loads eight bytes of a line, lowest first.
#[inline]
fn load(text: &[u8; ROOM], at: usize) -> u64 {
    text.get(at..at + 8).and_then(<[u8]>::first_chunk).map_or(0, |&bytes| u64::from_le_bytes(bytes))
}

impl Part {
    #[inline]
    pub(super) fn of(self, text: &[u8; ROOM]) -> &[u8] {
        let start = usize::from(self.start);
        text.get(start..start + usize::from(self.length)).unwrap_or_default()
    }

    /// Returns the key of a part that is not empty.
    #[inline(always)]
    pub(super) fn key(self, text: &[u8; ROOM]) -> Key {
        let length = usize::from(self.length);
        let start = usize::from(self.start);
        match text.get(start..).and_then(<[u8]>::first_chunk) {
            Some(bytes) if length <= SHORT => Key::short(bytes, length),
            _ => Key::new(self.of(text)),
        }
    }

    /// Returns the number that the part is, if it has at most eight digits and no leading zero.
    #[inline]
    pub(super) fn number(self, text: &[u8; ROOM]) -> Option<u32> {
        number(load(text, usize::from(self.start)), usize::from(self.length))
    }
}

#[inline]
fn number(word: u64, length: usize) -> Option<u32> {
    const ONES: u64 = u64::MAX / 255;
    if length == 0 || length > 8 {
        return None;
    }
    // The digits are shifted up, so that zeros stand before them. Each step combines neighbours.
    let digits = (word ^ (ONES * 0x30)) << (64 - 8 * length);
    if (digits | digits.wrapping_add(ONES * 6)) & (ONES * 0xf0) != 0 {
        return None;
    }
    if length > 1 && word as u8 == b'0' {
        return None;
    }
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000 << 32 | 1) >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> [u8; ROOM] {
        let mut text = [b'|'; ROOM];
        text[..line.len()].copy_from_slice(line.as_bytes());
        text[line.len()] = b'\n';
        text
    }

    /// Returns the parts as text.
    fn parts(line: &str) -> Option<(String, String, Option<String>, String)> {
        let text = text(line);
        let parts = split(&text, &mut false)?;
        assert_eq!(split(&text, &mut true).unwrap().length, parts.length);
        assert_eq!(parts.length, line.len() + 1);
        let string = |part: Part| String::from_utf8(part.of(&text).to_vec()).unwrap();
        let word = parts.word.to_le_bytes();
        let word = String::from_utf8(word.into_iter().take_while(|&byte| byte > 0).collect());
        let object = Some(parts.object).filter(|object| object.length > 0);
        Some((string(parts.thread), word.unwrap(), object.map(string), string(parts.label)))
    }

    #[test]
    fn lines_fall_into_their_parts() {
        for (line, thread, word, object, label) in [
            ("T1|r(x)|1", "T1", "r", Some("x"), "1"),
            ("T1|w(f())|a.c:1", "T1", "w", Some("f()"), "a.c:1"),
            ("T1|w(a b)|", "T1", "w", Some("a b"), ""),
            ("T1|end|a|b(c)|d\r", "T1", "end", None, "a|b(c)|d"),
            ("T(1)|begin(m)|\r", "T(1)", "begin", Some("m"), ""),
            (
                "T|racq(0123456789012345678901234567890123456789)|0123456789",
                "T",
                "racq",
                Some("0123456789012345678901234567890123456789"),
                "0123456789",
            ),
        ] {
            let expected = (thread.into(), word.into(), object.map(String::from), label.into());
            assert_eq!(parts(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn other_lines_are_left_alone() {
        let long = "x".repeat(64);
        for line in [
            "",
            "# a|b|c",
            "hello",
            "T1|r(x)",
            "T1|r(x|1",
            "|r(x)|1",
            "T1|r()|1",
            "T1||1",
            "T1|(x)|1",
            "T1|r\0(x)|1",
            "T1|r\0\0\0\0\0\0\0(x)|1",
            "T1|w(a|b)|1",
            "T1|acquireall(x)|1",
            "T1|r(|1",
            &long[..63],
        ] {
            assert_eq!(parts(line), None, "{line}");
        }
    }

    #[test]
    fn numbers_are_those_that_would_be_printed() {
        let number = |line: &str| Part { start: 0, length: line.len() as u8 }.number(&text(line));
        for value in [0_u32, 1, 9, 10, 99, 345, 65_536, 9_999_999, 12_345_678, 99_999_999] {
            assert_eq!(number(&value.to_string()), Some(value));
        }
        for text in ["", "01", "00", "1a", "a1", "-1", "1:2", "/", ":", "123456789", "1 "] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
