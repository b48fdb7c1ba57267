//! Quantities in words: numbers with separators, and nouns in the plural.

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
