//! Writes entries for files of suppressions, with the observed defects as comments.

use super::Glob;
use crate::{Defect, Report, gap, in_short, printable};

/// Steps of a witness that an entry shows.
const MAX_STEPS: usize = 16;

/// Writes an entry that suppresses a defect of a report, ending in a newline. What was seen stands above it.
#[must_use]
pub fn entry(report: &Report, defect: &Defect, reason: &str) -> String {
    let mut text = String::new();
    for line in in_short(report, defect, MAX_STEPS) {
        text.push_str(&format!("# {}\n", printable(&line)));
    }
    text.push_str("[[suppress]]\n");
    for (key, value) in [
        ("fingerprint", defect.fingerprint.as_str()),
        ("region", &Glob::exactly(&defect.region)),
        ("gap", &gap(defect)),
        ("reason", reason),
    ] {
        text.push_str(&format!("{key} = {}\n", toml::Value::String(value.to_owned())));
    }
    text
}
