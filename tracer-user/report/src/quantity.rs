//! Quantities in words: numbers with separators, nouns in the plural, and times.

/// `1 thread`, `2 threads`, `1,000 threads`.
#[must_use]
pub fn count(number: u64, one: &str) -> String {
    let plural = match one.strip_suffix('y') {
        _ if number == 1 => one.to_owned(),
        Some(stem) if !one.ends_with("ay") => format!("{stem}ies"),
        _ if one.ends_with('s') || one.ends_with("ch") => format!("{one}es"),
        _ => format!("{one}s"),
    };
    format!("{} {plural}", grouped(number))
}

/// A number with commas between its thousands.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time in the unit that suits it: `12 us`, `250 ms`, `61.2 s`.
pub(super) fn seconds(nanoseconds: u64) -> String {
    let tenths = nanoseconds / 100_000_000;
    match nanoseconds {
        0..1_000_000 => format!("{} us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        _ => format!("{}.{} s", grouped(tenths / 10), tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_have_units() {
        assert_eq!(seconds(12_000), "12 us");
        assert_eq!(seconds(250_000_000), "250 ms");
        assert_eq!(seconds(61_250_000_000), "61.2 s");
    }
}
