//! The reports of many runs as text: each defect once, and at the end in how many runs it was.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::triage;
use crate::cli::OutputArgs;
use report::{self, Class, Defect, Report};

/// Programs that a line names.
const MOST_PROGRAMS: usize = 4;

/// Defects of many reports.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Fingerprints of the defects that were shown.
    shown: HashSet<String>,
    /// Defects that count, by class and order of appearance.
    defects: BTreeMap<(Class, usize), Seen>,
    reports: u64,
    with_defects: u64,
    /// Number of reports in which no region ran.
    without_regions: u64,
    shown_any: bool,
}

/// A defect in several reports.
#[derive(Debug)]
struct Seen {
    fingerprint: String,
    line: String,
    reports: u64,
    programs: BTreeSet<String>,
}

impl Summary {
    /// Takes a report. Returns it without the defects that another one had, if something is left to be shown.
    pub(super) fn take(&mut self, arguments: &OutputArgs, mut report: Report) -> Option<Report> {
        self.reports += 1;
        self.without_regions += u64::from(!report::checked_anything(&report));
        self.with_defects += u64::from(triage::fails(arguments, &report));
        let program = report.subject.program();
        let counting = report.defects.iter().filter(|defect| triage::counts(arguments, defect));
        for defect in counting {
            self.count(defect, &program);
        }
        let is_new = |defect: &Defect| !self.shown.contains(&defect.fingerprint);
        let has_more = report.unclassified().next().is_some() || report.has_cycle_alone();
        let is_shown = has_more && triage::fails(arguments, &report)
            || (report.defects.iter())
                .any(|defect| is_new(defect) && triage::counts(arguments, defect));
        let known: HashSet<String> = violations(&report, |defect| !is_new(defect));
        let new: HashSet<String> = violations(&report, is_new);
        report.defects.retain(is_new);
        let is_left = |id: &String| new.contains(id) || !known.contains(id);
        report.violations.retain(|violation| is_left(&violation.id));
        report.exemplars.retain(|violation| is_left(&violation.id));
        if is_shown {
            let counting = report.defects.iter().filter(|defect| triage::counts(arguments, defect));
            self.shown.extend(counting.map(|defect| defect.fingerprint.clone()));
        }
        if !has_more {
            // That the run was not serializable is shown by the defects, of which some are gone.
            (report.serializable, report.cycle) = (None, None);
        }
        self.shown_any |= is_shown;
        is_shown.then_some(report)
    }

    fn count(&mut self, defect: &Defect, program: &str) {
        let place = self.defects.len();
        let known = self.defects.values_mut().find(|seen| seen.fingerprint == defect.fingerprint);
        let seen = match known {
            Some(seen) => seen,
            None => self.defects.entry((defect.class, place)).or_insert_with(|| Seen {
                fingerprint: defect.fingerprint.clone(),
                line: report::in_a_line(defect),
                reports: 0,
                programs: BTreeSet::new(),
            }),
        };
        seen.reports += 1;
        seen.programs.insert(program.to_owned());
    }

    /// Returns the lines that end the text.
    pub(super) fn render(&self) -> String {
        let reports = report::count(self.reports, "report");
        let mut text = if self.shown_any { "\n".to_owned() } else { String::new() };
        for seen in self.defects.values() {
            let mut programs: Vec<&str> = seen.programs.iter().map(String::as_str).collect();
            let more = programs.len().saturating_sub(MOST_PROGRAMS);
            programs.truncate(MOST_PROGRAMS);
            let mut programs = programs.join(", ");
            if more > 0 {
                programs += &format!(" and {more} more");
            }
            let line = format!("{}: in {} of {reports}: {programs}", seen.line, seen.reports);
            text += &report::cut_message(&report::printable(&line));
            text.push('\n');
        }
        let of_class = |class| self.defects.keys().filter(|(of, _)| *of == class).count() as u64;
        let found: Vec<String> = [Class::Likely, Class::Possible, Class::ByDesign]
            .into_iter()
            .map(|class| (class, of_class(class)))
            .filter(|(_, number)| *number > 0)
            .map(|(class, number)| match class {
                Class::Likely => report::count(number, "likely defect"),
                Class::Possible => report::count(number, "possible defect"),
                Class::ByDesign => report::count(number, "defect") + " by design",
            })
            .collect();
        let found =
            if found.is_empty() { "nothing that counts".to_owned() } else { found.join(", ") };
        let clean = self.reports - self.with_defects;
        let unchecked = match self.without_regions {
            0 => String::new(),
            unchecked => format!(", {unchecked} of which checked nothing: no region ran"),
        };
        text + &format!("avtrace: {reports}: {found}; {clean} of the reports without{unchecked}\n")
    }
}

/// Returns the violations of the defects that `wanted` selects.
fn violations(report: &Report, wanted: impl Fn(&Defect) -> bool) -> HashSet<String> {
    let defects = report.defects.iter().filter(|defect| wanted(defect));
    defects.flat_map(|defect| defect.violations.iter().cloned()).collect()
}
