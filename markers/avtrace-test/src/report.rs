//! Parts of avtrace's report in JSON that tests assert on. `docs/report.schema.json` of avtrace describes all of it,
//! and a test holds these types to it.

use std::path::PathBuf;

use serde::Deserialize;

/// Report on one program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// `avtrace-report/1`.
    pub schema: String,
    /// Traced program.
    pub subject: Subject,
    /// Counts over the run.
    pub counts: Counts,
    /// Set if the run was serializable; `None` where that was not decided.
    pub serializable: Option<bool>,
    /// Defects, the likeliest bug first, those by design and those that were set aside among them.
    pub defects: Vec<Defect>,
    /// Witnesses of defects.
    pub violations: Vec<Witness>,
    /// Further witnesses that defects show.
    pub exemplars: Vec<Witness>,
    /// Regions that were seen.
    regions: Vec<serde_json::Value>,
}

impl Report {
    /// Returns whether any region ran, so that there was something to check.
    #[must_use]
    pub fn has_checked(&self) -> bool {
        self.counts.transactions > self.counts.unary_transactions || !self.regions.is_empty()
    }
}

/// Traced program, and its end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Subject {
    /// Arguments, the program first.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Exit status; `None` when a signal ended it.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Set if the process became another program (`execve`), which has a report of its own.
    #[serde(default)]
    pub replaced: bool,
}

/// Counts over a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Threads.
    pub threads: u64,
    /// Transactions: executions of regions, and steps outside of all.
    pub transactions: u64,
    /// Steps outside of all regions.
    pub unary_transactions: u64,
    /// Events that were lost, and may hide defects.
    pub lost_events: u64,
}

/// Likelihood of a bug, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Facts speak for a bug.
    Likely,
    /// Facts speak neither for nor against one.
    Possible,
    /// Facts speak against one.
    ByDesign,
}

/// Strength of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Threads were seen to meet on a variable.
    Data,
    /// Another thread's critical section got in between.
    Sync,
}

/// Region that was not atomic, across one gap.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Defect {
    /// `d1`, `d2`, … in the order of the report.
    pub id: String,
    /// Stays the same in other runs, after a rebuild and when lines have moved.
    pub fingerprint: String,
    /// Likelihood of a bug.
    pub class: Class,
    /// Region.
    pub region: String,
    /// Pattern of the accesses: `lost-update`, `stale-read`, `torn` and others, as the schema lists them.
    pub pattern: String,
    /// Subject: `account.balance`.
    pub subject: String,
    /// Evidence.
    pub evidence: Evidence,
    /// Places between which others came in.
    pub gap: Gap,
    /// Instances.
    pub occurrences: u64,
    /// Suggested change.
    pub help: String,
    /// Reason for which it does not count.
    pub set_aside: Option<SetAside>,
    /// Ids of its witnesses; the first is the one to show.
    pub violations: Vec<String>,
}

/// Decision of the user that a defect does not count.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SetAside {
    /// `suppression`, `ignore` or `baseline`.
    pub by: String,
    /// Reason that the user gives.
    pub reason: String,
}

/// Ends of a gap.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Gap {
    /// Place of the region's last step before others came in.
    pub left: Option<Location>,
    /// Place of its step that closed the cycle.
    pub returned: Option<Location>,
}

/// Place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[non_exhaustive]
pub struct Location {
    /// Path of the file, as the compiler has written it.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// Function.
    pub function: Option<String>,
}

/// Cycle that shows a defect, step by step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Witness {
    /// `v1`, `v2`, … in the order of the report.
    pub id: String,
    /// Region.
    pub region: String,
    /// Steps of all threads, in their order.
    pub steps: Vec<Step>,
}

/// Step of a witness.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// Number of the event, in the order of the run.
    pub event: u64,
    /// Thread.
    pub thread: u32,
    /// Region that the thread is in; `None` outside of all.
    pub region: Option<String>,
    /// Action, as the schema lists them: `read`, `write`, `acquire`, `release` and others.
    pub action: String,
    /// Object.
    pub object: Option<Object>,
    /// Place.
    pub location: Option<Location>,
    /// Place for people: `bank.c:45`.
    pub label: String,
    /// Source line, without indentation.
    pub source_text: Option<String>,
    /// Value of the variable, where known.
    pub value: Option<Value>,
}

/// Variable, lock or other object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Object {
    /// `variable`, `mutex` and others, as the schema lists them.
    pub kind: String,
    /// Name, where known.
    pub name: Option<String>,
}

/// Values around an access.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Value {
    /// Before a write, or read.
    pub before: Option<String>,
    /// After a write.
    pub after: Option<String>,
}
