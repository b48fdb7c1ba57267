//! Merged reports as text: the number of reports that have a defect, and of all.

use super::and;
use crate::{
    model::Merged,
    quantity::{count, grouped},
};

const MAX_PROGRAMS: usize = 3;

/// Remark on a defect of a report that was made of `all`.
pub(super) fn remark(of: &Merged, all: &Merged) -> String {
    let mut text = format!("in {} of {}", grouped(of.reports), count(all.reports, "report"));
    if all.hosts.len() > 1 {
        let hosts = count(all.hosts.len() as u64, "host");
        text += &format!(", on {} of {hosts}", grouped(of.hosts.len() as u64));
    }
    match (&of.first_time, &of.last_time) {
        (Some(first), Some(last)) if first != last => {
            text += &format!(", first at {first}, last at {last}");
        }
        (Some(first), _) => text += &format!(", at {first}"),
        _ => {}
    }
    text
}

/// Note on the reports that a report was made of.
pub(super) fn note(all: &Merged) -> String {
    let mut text = format!("made of {}", count(all.reports, "report"));
    if !all.hosts.is_empty() {
        text += &format!(" from {}", count(all.hosts.len() as u64, "host"));
    }
    let more = all.programs.len().saturating_sub(MAX_PROGRAMS);
    let mut programs: Vec<String> = all.programs.iter().take(MAX_PROGRAMS).cloned().collect();
    if more > 0 {
        programs.push(format!("{more} more"));
    }
    text += &format!(", on {}", and(&programs));
    if let (Some(first), Some(last)) = (&all.first_time, &all.last_time) {
        text += &format!("; the first is of {first}, the last of {last}");
    }
    text + "; counts are sums, and one finding of each defect is shown"
}
