//! Comparison of the defects of two sets of reports, by fingerprint: as data, as JSON and as text.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::{
    escape::printable,
    model::{Class, Defect, Report},
    phrase::in_a_line,
    quantity::count,
};

/// The value of [`Diff::schema`].
pub const DIFF_SCHEMA: &str = "avtrace-diff/1";

/// Defects that one set of reports has and the other has not, or has otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Always [`DIFF_SCHEMA`].
    pub schema: &'static str,
    /// The earlier reports.
    pub old: Side,
    /// The later reports.
    pub new_reports: Side,
    /// Defects of the later reports alone, the likeliest bug first.
    pub new: Vec<Entry>,
    /// Defects of the earlier reports alone.
    pub gone: Vec<Entry>,
    /// Defects of both with another class, pattern, evidence or order.
    pub changed: Vec<Changed>,
    /// Number of all other defects of both.
    pub same: u64,
}

/// Set of reports that is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Number of reports.
    pub reports: u64,
    /// Number of defects that the user has set aside, which are not compared.
    pub set_aside: u64,
    /// Number of violations that belong to no defect, which are not compared.
    pub unclassified: u64,
}

/// A defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Fingerprint.
    pub fingerprint: String,
    /// Class.
    pub class: Class,
    /// Violated region.
    pub region: String,
    /// Class of the objects that it is about.
    pub subject: String,
    /// The defect in a line.
    pub line: String,
    /// Set if it counts for the exit status.
    pub counts: bool,
    /// Number of reports that have it.
    pub reports: u64,
}

/// A defect that is another one now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// The defect as the later reports have it.
    #[serde(flatten)]
    pub entry: Entry,
    /// Set if it did not count before, and does now.
    pub counts_newly: bool,
    /// Differences.
    pub changes: Vec<Change>,
}

/// A property of a defect that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Property: `class`, `pattern`, `evidence` or `order`.
    pub property: &'static str,
    /// Value in the earlier reports.
    pub old: String,
    /// Value in the later ones.
    pub new: String,
}

/// Defect of some reports: the likeliest of those with its fingerprint.
struct Known<'a> {
    defect: &'a Defect,
    reports: u64,
}

impl Diff {
    /// Compares reports. Defects of the class `least` and likelier ones count.
    #[must_use]
    pub fn new(old: &[Report], new: &[Report], least: Class) -> Self {
        let ((old_side, before), (new_side, after)) = (known(old), known(new));
        let entry = |known: &Known<'_>| Entry {
            fingerprint: known.defect.fingerprint.clone(),
            class: known.defect.class,
            region: known.defect.region.clone(),
            subject: known.defect.subject.clone(),
            line: in_a_line(known.defect),
            counts: known.defect.class <= least,
            reports: known.reports,
        };
        let mut diff = Self {
            schema: DIFF_SCHEMA,
            old: old_side,
            new_reports: new_side,
            new: Vec::new(),
            gone: Vec::new(),
            changed: Vec::new(),
            same: 0,
        };
        for (fingerprint, known) in &after {
            let Some(earlier) = before.get(fingerprint) else {
                diff.new.push(entry(known));
                continue;
            };
            let changes = changes(earlier.defect, known.defect);
            if changes.is_empty() {
                diff.same += 1;
                continue;
            }
            let counts_newly = known.defect.class <= least && earlier.defect.class > least;
            diff.changed.push(Changed { entry: entry(known), counts_newly, changes });
        }
        let gone = before.iter().filter(|(fingerprint, _)| !after.contains_key(*fingerprint));
        diff.gone.extend(gone.map(|(_, known)| entry(known)));
        diff.new.sort_by_key(|entry| entry.class);
        diff.gone.sort_by_key(|entry| entry.class);
        diff.changed.sort_by_key(|changed| changed.entry.class);
        diff
    }

    /// Returns whether a defect is new that counts, or counts now and did not before.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.new.iter().any(|entry| entry.counts)
            || self.changed.iter().any(|changed| changed.counts_newly)
    }

    /// Returns the comparison as text: a line for each difference, and one at the end.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let mut text = String::new();
        let mut add = |word: &str, of: AnsiColor, entry: &Entry, changes: &[Change]| {
            let style = if color { of.on_default().bold() } else { Style::new() };
            let changes: Vec<String> = (changes.iter())
                .map(|Change { property, old, new }| format!("{property} {old} -> {new}"))
                .collect();
            let changes = changes.join(", ");
            let changes = if changes.is_empty() { changes } else { format!(": {changes}") };
            let line = printable(&format!("{}{changes}", entry.line)).into_owned();
            text += &format!("{style}{word:<7}{style:#}  {}  {line}\n", entry.fingerprint);
        };
        self.new.iter().for_each(|entry| add("new", AnsiColor::Red, entry, &[]));
        for Changed { entry, changes, .. } in &self.changed {
            add("changed", AnsiColor::Yellow, entry, changes);
        }
        self.gone.iter().for_each(|entry| add("gone", AnsiColor::Green, entry, &[]));
        let counting = self.new.iter().filter(|entry| entry.counts).count();
        let new = match (self.new.len(), counting) {
            (0, _) => "no defect is new".to_owned(),
            (all, counting) => {
                let all = count(all as u64, "new defect");
                format!("{all}, of which {} for the exit status", counts(counting))
            }
        };
        let (changed, gone) = (self.changed.len(), self.gone.len());
        text += &format!("avtrace: {new}; {changed} changed, {gone} gone, {} the same", self.same);
        for (side, name) in [(&self.old, "old"), (&self.new_reports, "new")] {
            if side.set_aside > 0 {
                text += &format!("; {} of the {name} set aside", side.set_aside);
            }
            if side.unclassified > 0 {
                let violations = count(side.unclassified, "violation");
                text += &format!("; {violations} of the {name} without a defect, not compared");
            }
        }
        text + "\n"
    }
}

/// Returns how many count, as the end of a clause.
fn counts(number: usize) -> String {
    if number == 1 { "1 counts".to_owned() } else { format!("{number} count") }
}

/// Returns the defects of reports by fingerprint, except defects that were set aside.
fn known(reports: &[Report]) -> (Side, BTreeMap<&str, Known<'_>>) {
    let mut side = Side { reports: reports.len() as u64, ..Side::default() };
    let mut all: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for report in reports {
        side.unclassified += report.unclassified().count() as u64;
        let mut last: Vec<&str> = Vec::new();
        for defect in &report.defects {
            if defect.set_aside.is_some() {
                side.set_aside += 1;
                continue;
            }
            let fingerprint = defect.fingerprint.as_str();
            let known = all.entry(fingerprint).or_insert(Known { defect, reports: 0 });
            if defect.class < known.defect.class {
                known.defect = defect;
            }
            // One report may have two defects of a fingerprint.
            if !last.contains(&fingerprint) {
                known.reports += 1;
                last.push(fingerprint);
            }
        }
    }
    (side, all)
}

fn changes(old: &Defect, new: &Defect) -> Vec<Change> {
    let named = |defect: &Defect| {
        [
            ("class", serde_json::to_value(defect.class)),
            ("pattern", serde_json::to_value(defect.pattern)),
            ("evidence", serde_json::to_value(defect.evidence)),
            ("order", serde_json::to_value(defect.order)),
        ]
        .map(|(property, value)| {
            let value = value.ok().and_then(|value| value.as_str().map(str::to_owned));
            (property, value.unwrap_or_default())
        })
    };
    let pairs = named(old).into_iter().zip(named(new));
    pairs
        .filter(|((_, old), (_, new))| old != new)
        .map(|((property, old), (_, new))| Change { property, old, new })
        .collect()
}
