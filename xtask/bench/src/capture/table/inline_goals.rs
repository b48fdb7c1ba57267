//! Goals of probes in the program itself: beside ThreadSanitizer of GCC, and beside probes in the kernel.

use super::{Goal, Section, TOLERANCE, median};
use crate::capture::tools::{Compiler, Tool};

/// Share of ThreadSanitizer's slowdown that a level of accesses may have, by program.
const BESIDE_SANITIZER: [(&str, &str, f64); 4] = [
    ("locks", "sync", 0.5),
    ("reads", "sync", 1.0),
    ("memcached", "sync", 1.0),
    ("memcached", "auto", 1.0),
];

/// Slowdown that a level of accesses may have, by program.
const AT_MOST: [(&str, &str, f64); 3] =
    [("memcached", "sync", 5.0), ("memcached", "auto", 8.0), ("compute", "probe", 5.0)];

/// Programs that may be no slower than with probes in the kernel.
const BESIDE_KERNEL: [&str; 3] = ["compute", "hot", "pbzip2"];

/// Goals of a program.
pub(super) fn of(section: &Section<'_>) -> Vec<Goal> {
    let name = section.program.name;
    let beside_sanitizer = BESIDE_SANITIZER.iter().filter(|(program, ..)| *program == name);
    let at_most = AT_MOST.iter().filter(|(program, ..)| *program == name);
    let beside_kernel = ["sync", "auto"].into_iter().filter(|_| BESIDE_KERNEL.contains(&name));
    beside_sanitizer
        .filter_map(|&(_, level, share)| sanitizer(section, level, share))
        .chain(at_most.filter_map(|&(_, level, most)| slowdown(section, level, most)))
        .chain(beside_kernel.filter_map(|level| kernel(section, level)))
        .collect()
}

fn sanitizer(section: &Section<'_>, level: &'static str, share: f64) -> Option<Goal> {
    let inline = section.row(Tool::Inline(level))?.slowdown()?;
    let sanitizer = section.row(Tool::Sanitizer(Compiler::Gcc))?.slowdown()?;
    let times = inline.times / sanitizer.times;
    Some(Goal {
        what: format!("{}: inline {level} at most {share} times tsan gcc", section.program.name),
        value: format!("{times:.2}"),
        is_met: times <= share && !inline.or_more,
    })
}

fn slowdown(section: &Section<'_>, level: &'static str, most: f64) -> Option<Goal> {
    let inline = section.row(Tool::Inline(level))?.slowdown()?;
    Some(Goal {
        what: format!("{}: slowdown by inline {level} at most {most}", section.program.name),
        value: format!("{}{:.2}", if inline.or_more { "> " } else { "" }, inline.times),
        is_met: inline.times <= most && !inline.or_more,
    })
}

/// The median of the rounds' ratios.
fn kernel(section: &Section<'_>, level: &'static str) -> Option<Goal> {
    let inline = section.row(Tool::Inline(level))?;
    let kernel = section.row(Tool::Avtrace(level))?;
    if inline.samples.is_empty() || kernel.samples.is_empty() {
        return None;
    }
    let rounds = inline.samples.iter().zip(&kernel.samples);
    let times = median(rounds.map(|(inline, kernel)| inline.run.seconds / kernel.run.seconds));
    Some(Goal {
        what: format!(
            "{}: inline {level} no slower (±20 %) than avtrace {level}",
            section.program.name
        ),
        value: format!("{times:.2}"),
        is_met: times <= 1.0 + TOLERANCE && !inline.slowdown()?.or_more,
    })
}
