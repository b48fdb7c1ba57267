//! Lists in sentences.

/// Objects and places that a sentence lists before it stops with "and N more".
pub(super) const MAX_LISTED: usize = 3;

/// `one`, `one and two`, `one, two and three`, `one, two, three and 4 more`; empty without items.
#[must_use]
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] if items.len() <= MAX_LISTED => format!("{} and {last}", head.join(", ")),
        _ => format!("{} and {} more", items[..MAX_LISTED].join(", "), items.len() - MAX_LISTED),
    }
}

pub(super) fn distinct(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut out = Vec::new();
    for item in items {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}
