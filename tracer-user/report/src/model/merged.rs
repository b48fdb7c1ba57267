//! Reports that a merged report was made of: their number, machines, programs and times.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Report;

/// Summary of several reports: of all reports that were merged, or of the reports that have a defect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Merged {
    /// Number of reports.
    pub reports: u64,
    /// Names of the machines, as far as the reports have them.
    pub hosts: BTreeSet<String>,
    /// Names of the programs, or of the traces.
    pub programs: BTreeSet<String>,
    /// Time of the first report; `None` if no report has a time.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub first_time: Option<String>,
    /// Time of the last report; `None` if no report has a time.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub last_time: Option<String>,
}

impl Merged {
    /// Returns the summary of a report: of itself, or of the reports that it was made of.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        report.merged.clone().unwrap_or_else(|| Self {
            reports: 1,
            hosts: report.host.clone().into_iter().collect(),
            programs: BTreeSet::from([report.subject.program()]),
            first_time: report.time.clone(),
            last_time: report.time.clone(),
        })
    }

    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.reports += other.reports;
        self.hosts.extend(other.hosts);
        self.programs.extend(other.programs);
        // In UTC and of one form, times are in the order of their text.
        self.first_time = self.first_time.take().into_iter().chain(other.first_time).min();
        self.last_time = self.last_time.take().into_iter().chain(other.last_time).max();
    }
}
