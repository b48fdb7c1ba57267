//! Violations that belong to no defect, as text. Algorithms without witnesses report them.

use super::kinds;
use super::{
    TextOptions, and,
    paint::{Page, STRONG},
    remark, times, witness,
};
use crate::{
    escape, explain,
    model::{Evidence, Report, Violation},
    quantity::count,
};

/// Violations that are others once more and get a note of their own; more are only counted.
const MAX_ECHOES: usize = 3;
/// Regions that a note about violations that are not shown names.
const MAX_REGIONS: usize = 4;

/// Writes the violations that belong to no defect, and returns them by their kinds.
pub(super) fn write<'report>(
    page: &mut Page,
    report: &'report Report,
    options: &TextOptions,
) -> Vec<Vec<&'report Violation>> {
    let (stories, echoes): (Vec<&Violation>, Vec<&Violation>) =
        report.unclassified().partition(|violation| covered_by(report, violation).is_none());
    let kinds = kinds::kinds(&stories);
    let (full, rest) = kinds.split_at(kinds.len().min(options.max_violations));
    for (violation, others) in full.iter().filter_map(|kind| kind.split_first()) {
        witness::write(page, report, violation, others, options);
        page.end();
    }
    more_violations(page, &rest.concat());
    echo_notes(page, report, &echoes, full);
    kinds
}

/// Returns the violation with data evidence that covers this one: the data met in the very transaction whose locks
/// show that it was split.
fn covered_by<'report>(
    report: &'report Report,
    violation: &Violation,
) -> Option<&'report Violation> {
    if violation.evidence == Evidence::Data {
        return None;
    }
    report.violations.iter().find(|other| {
        other.evidence == Evidence::Data
            && other.region == violation.region
            && other.transaction == violation.transaction
            && other.witness == violation.witness
    })
}

/// A note for each violation that is one of those shown once more, if they are few, and one for all others.
fn echo_notes(page: &mut Page, report: &Report, echoes: &[&Violation], full: &[Vec<&Violation>]) {
    let is_shown = |story: &&Violation| full.iter().flatten().any(|shown| shown.id == story.id);
    let noted: Vec<(&Violation, &Violation)> = echoes
        .iter()
        .filter_map(|violation| Some((*violation, covered_by(report, violation).filter(is_shown)?)))
        .take(if echoes.len() > MAX_ECHOES { 0 } else { MAX_ECHOES })
        .collect();
    for (violation, story) in &noted {
        remark(page, STRONG, "note", &echo(violation, story));
    }
    if let Some(more) = echoes.len().checked_sub(noted.len()).filter(|&more| more > 0) {
        remark(page, STRONG, "note", &number_first(&echo_count(more)));
    }
    if !echoes.is_empty() {
        page.end();
    }
}

fn echo(violation: &Violation, story: &Violation) -> String {
    let locks: Vec<String> = violation
        .splits
        .iter()
        .filter(|split| split.holder.is_some())
        .map(|split| {
            format!(
                "{}, released at {} and taken again at {}",
                explain::object(&split.lock),
                explain::place(split.released.as_ref(), &split.released_label),
                explain::place(split.reacquired.as_ref(), &split.reacquired_label)
            )
        })
        .collect();
    let by = if locks.is_empty() { String::new() } else { format!(": {}", locks.join("; ")) };
    format!(
        "{} is {} once more, by synchronisation only{by} (seen {})",
        violation.id,
        story.id,
        times(violation.occurrences)
    )
}

fn echo_count(number: usize) -> String {
    let (are, others) = if number == 1 { ("is", "another") } else { ("are", "others") };
    format!(
        "{} more {are} {others} once more, by synchronisation only; a JSON report (`--format json`) has all",
        count(number as u64, "violation")
    )
}

/// The violations that are not shown, and those that were counted only: a note each.
fn more_violations(page: &mut Page, rest: &[&Violation]) {
    if !rest.is_empty() {
        let mut regions: Vec<(&str, usize)> = Vec::new();
        for violation in rest {
            match regions.iter_mut().find(|(region, _)| *region == violation.region) {
                Some((_, number)) => *number += 1,
                None => regions.push((&violation.region, 1)),
            }
        }
        regions.sort_by_key(|&(_, number)| std::cmp::Reverse(number));
        let named = regions.iter().take(MAX_REGIONS).map(|(region, number)| {
            let region = escape::cut_middle(region, 40);
            if *number > 1 { format!("`{region}` ({number})") } else { format!("`{region}`") }
        });
        let mut named: Vec<String> = named.collect();
        if let Some(more) = regions.len().checked_sub(MAX_REGIONS).filter(|&more| more > 0) {
            named.push(format!("{} more", count(more as u64, "region")));
        }
        let message = format!(
            "{} more {} not shown here, of {}; a JSON report (`--format json`) has all",
            count(rest.len() as u64, "violation"),
            if rest.len() == 1 { "is" } else { "are" },
            and(&named)
        );
        remark(page, STRONG, "note", &number_first(&message));
        page.end();
    }
}

/// "2 more violations" for "2 violations more", which reads worse.
fn number_first(message: &str) -> String {
    message
        .replacen(" violation more", " more violation", 1)
        .replacen(" violations more", " more violations", 1)
        .replacen(" region more", " more region", 1)
        .replacen(" regions more", " more regions", 1)
}
