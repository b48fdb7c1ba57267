//! Defects in a few words: headlines, places, and a witness without its drawing. No layout lives here, and nothing is
//! escaped.

use super::{
    closures::outer,
    escape,
    explain::{describe_step, object, place, without_generics},
    functions::function_of,
    listing::list,
    model::{Class, Defect, ObjectKind, Pattern, Report, Step, Violation},
    quantity::{count, grouped},
};
use symbolize::suffixes;

/// Longest name of a region that came between, in a headline, in columns.
const HEADLINE_COLUMNS: usize = 48;

/// Name of a class.
#[must_use]
pub const fn class(class: Class) -> &'static str {
    match class {
        Class::Likely => "likely",
        Class::Possible => "possible",
        Class::ByDesign => "by design",
    }
}

/// Pattern and subject of a defect: ``lost update of `account.balance` ``.
#[must_use]
pub fn what(defect: &Defect) -> String {
    let subject = subject(defect);
    match defect.pattern {
        Pattern::LostUpdate => format!("lost update of {subject}"),
        Pattern::StaleRead => format!("stale read of {subject}"),
        Pattern::IntermediateState => format!("intermediate state of {subject} seen"),
        Pattern::Overwritten => format!("overwritten {subject}"),
        Pattern::Torn => format!("torn access to {subject}"),
        Pattern::Chain => format!("cycle through {subject}"),
        Pattern::SplitSection => format!("split section of {subject}"),
        Pattern::UseAfterFree => format!("use of freed {subject}"),
        Pattern::LostWakeUp => format!("lost wake-up of {subject}"),
    }
}

/// A defect in one sentence: ``lost update of `account.balance` in `transfer`, by `audit` ``. `region` is the region's
/// name, as long as it may be.
#[must_use]
pub fn headline(defect: &Defect, violation: &Violation, region: &str) -> String {
    let what = what(defect);
    match others(violation) {
        Some(others) => format!("{what} in `{region}`, by {others}"),
        None => format!("{what} in `{region}`"),
    }
}

/// The code that came between, by its innermost regions, or by its functions outside every region.
fn others(violation: &Violation) -> Option<String> {
    let [_, between @ .., _] = violation.witness.as_slice() else { return None };
    let mut names: Vec<String> = Vec::new();
    for tx in between {
        let name = match function_of(violation, tx) {
            Some(function) if function == violation.region => {
                format!("another `{}`", short_name(function, HEADLINE_COLUMNS))
            }
            Some(function) => format!("`{}`", short_name(function, HEADLINE_COLUMNS)),
            None => "code outside every region".to_owned(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| list(&names))
}

/// Subject of a defect with its kind, as [`object`] does it.
fn subject(defect: &Defect) -> String {
    let Some(first) = defect.objects.first() else { return format!("`{}`", defect.subject) };
    if first.name.is_none() {
        return defect.subject.clone();
    }
    let names: Vec<&str> = defect.subject.split(" and ").collect();
    if names.len() == defect.objects.len() {
        let named = names.iter().zip(&defect.objects).map(|(name, of)| {
            object(&super::model::Object { name: Some((*name).to_owned()), ..of.clone() })
        });
        return list(&named.collect::<Vec<_>>());
    }
    let subject = without_generics(&defect.subject);
    match first.kind {
        ObjectKind::Variable => format!("`{subject}`"),
        kind => format!("{kind} `{subject}`"),
    }
}

/// Both ends of a gap: `bank.c:73 -> 80`.
#[must_use]
pub fn gap(defect: &Defect) -> String {
    let gap = &defect.gap;
    let (left, returned) = (&gap.left_at.label, &gap.returned_at.label);
    let (left, returned) = (place(gap.left.as_ref(), left), place(gap.returned.as_ref(), returned));
    match (left.rsplit_once(':'), returned.rsplit_once(':')) {
        (Some((file, _)), Some((same, line))) if file == same => format!("{left} -> {line}"),
        _ => format!("{left} -> {returned}"),
    }
}

/// Both ends of a gap in a line of many: places in code without lines as short as they can be.
#[must_use]
pub fn short_gap(defect: &Defect, columns: usize) -> String {
    let gap = &defect.gap;
    if gap.left.is_some() || gap.returned.is_some() {
        return self::gap(defect);
    }
    let [left, returned] = [&gap.left_at, &gap.returned_at].map(|end| {
        // In most cases the file is also the file of the region.
        let label = end.label.rsplit_once(" (").map_or(&*end.label, |(function, _)| function);
        match label.strip_prefix(&defect.region).filter(|offset| offset.starts_with("+0x")) {
            Some(offset) => offset.to_owned(),
            None => escape::cut_middle(label, columns).into_owned(),
        }
    });
    format!("{left} -> {returned}")
}

/// A function's name in at most so many columns, if it can be: without its outer namespaces and classes.
#[must_use]
pub fn short_name(name: &str, columns: usize) -> String {
    // It goes by where it is written.
    if outer(name).is_some() {
        return name.to_owned();
    }
    let mut shorter = name;
    while escape::width(shorter) > columns {
        let Some(inner) = suffixes(shorter).nth(1) else { break };
        shorter = inner;
    }
    escape::cut_middle(shorter, columns).into_owned()
}

/// Frequency of a defect: ``in 3 of 120,412 runs of `transfer` ``, or `twice` where no run of the region was counted.
#[must_use]
pub fn seen(defect: &Defect) -> String {
    if defect.runs > 0 {
        return format!("in {} of `{}`", runs(defect), defect.region);
    }
    match defect.occurrences {
        0 | 1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{} times", grouped(more)),
    }
}

/// Frequency of a defect: `3 of 120,412 runs`.
fn runs(defect: &Defect) -> String {
    format!("{} of {}", grouped(defect.cut_runs), count(defect.runs, "run"))
}

/// Frequency of an interference: `in 3 of 120,412 runs`.
#[must_use]
pub fn cut(defect: &Defect) -> String {
    format!("in {}", runs(defect))
}

/// A defect in a line: ``` `transfer` at bank.c:14 -> 20: lost update of `account.balance` (likely)```.
#[must_use]
pub fn in_a_line(defect: &Defect) -> String {
    format!("`{}` at {}: {} ({})", defect.region, gap(defect), what(defect), class(defect.class))
}

/// A defect and the steps of its witness, a line each.
#[must_use]
pub fn in_short(report: &Report, defect: &Defect, max_steps: usize) -> Vec<String> {
    let places = format!("left and returned to at {}; {}", gap(defect), class(defect.class));
    let Some(violation) = report.shown(defect) else {
        return vec![format!("region `{}` is not atomic: {}", defect.region, what(defect)), places];
    };
    let mut lines = vec![headline(defect, violation, &defect.region), places];
    let line = |step: &Step| {
        let at = place(step.location.as_ref(), &step.label);
        format!("  T{} {} ({at})", step.thread, describe_step(step))
    };
    lines.extend(violation.steps.iter().take(max_steps).map(line));
    if let Some(more) = violation.steps.len().checked_sub(max_steps).filter(|&more| more > 0) {
        lines.push(format!("  ... {}", count(more as u64, "step")));
    }
    lines
}
