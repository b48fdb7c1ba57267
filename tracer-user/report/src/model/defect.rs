//! A defect in a report: violations that one repair would fix, with the facts for and against a bug.

pub use checker::defect::{Class, GapKind, Obstacle, Origin, Pattern, RegionRole};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Action, Evidence, HuntedDefect, Location, Merged, Object, Order, Split};

/// The violations of one region across one gap, on one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Defect {
    /// `d1`, `d2`, … in the order of the report.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^d[1-9][0-9]*$")))]
    pub id: String,
    /// Hash of the region's name, the text of both lines of the gap and the subject's name, in 16 hexadecimal digits.
    /// It stays the same in another run, after a rebuild and when lines have moved.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub fingerprint: String,
    /// Likelihood of a bug.
    pub class: Class,
    /// Innermost violated region that spans the gap.
    pub region: String,
    /// Regions around it that span the gap as well, innermost first.
    pub outer_regions: Vec<String>,
    /// Role of the region in the program.
    pub role: RegionRole,
    /// Author of the region's code.
    pub origin: Origin,
    /// Pattern of the accesses at the gap and in between.
    pub pattern: Pattern,
    /// Class of the objects of the first and of the closing dependency: `account.balance`, or two, joined by `and`.
    pub subject: String,
    /// Objects of the first and of the closing dependency, in the violation that is shown.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub objects: Vec<Object>,
    /// Classes of the objects at the ends of the other violations, at most a handful.
    pub other_subjects: Vec<String>,
    /// Strongest evidence of the violations.
    pub evidence: Evidence,
    /// Order of the violation that is shown.
    pub order: Order,
    /// Places between which others came in.
    pub gap: Gap,
    /// Facts for and against a bug, the weightiest first.
    pub reasons: Vec<Reason>,
    /// Executions of the region.
    pub runs: u64,
    /// Executions in which others came in at this gap.
    pub cut_runs: u64,
    /// Number of violation instances.
    pub occurrences: u64,
    /// Ids of the violations, the one to show first: of [`Report::violations`](super::Report::violations) or
    /// [`Report::exemplars`](super::Report::exemplars).
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1), inner(regex(pattern = "^v[1-9][0-9]*$")))
    )]
    pub violations: Vec<String>,
    /// Number of distinct cycles: who came in, and through which lines.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub ways: u64,
    /// Suggested change, in plain words.
    pub help: String,
    /// Decision of the user that the defect does not count; `None` for most.
    pub set_aside: Option<SetAside>,
    /// Runs of a hunt that showed the defect; absent in other reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunted: Option<HuntedDefect>,
    /// Reports that have the defect; absent where there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
}

/// Ends of a gap: where the region was left and returned to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Place of its last step before others came in.
    pub left: Option<Location>,
    /// Place of its step that closed the cycle.
    pub returned: Option<Location>,
    /// The first of these steps, beyond its place.
    pub left_at: GapEnd,
    /// The second of these steps, beyond its place.
    pub returned_at: GapEnd,
    /// Relation of both in the control flow of the region.
    pub kind: GapKind,
    /// Lock that the region released and acquired again in between, if one explains the gap.
    pub lock: Option<Split>,
    /// Locks that were held from one step to the other: others came in without them.
    pub held: Vec<Object>,
    /// Locks of the others that came in.
    pub others: OthersHeld,
}

/// Locks that others held where they came in and where they left off. Each is `None` if it is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OthersHeld {
    /// At the later event of the first dependency.
    pub entered: Option<Vec<Object>>,
    /// At the earlier event of the closing dependency.
    pub left: Option<Vec<Object>>,
    /// Held from the one to the other in one hold; empty if they are of different threads.
    pub throughout: Option<Vec<Object>>,
}

/// Step at one end of a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GapEnd {
    /// Number of the event, from 0.
    pub event: u64,
    /// The place for people: `bank.c:45`, `transfer+0x1c (bank)`, or `unknown location`.
    pub label: String,
    /// Operation of the step.
    pub action: Action,
    /// The source line, without indentation.
    pub source_text: Option<String>,
    /// Functions that were called from the region on, the region first; the last has the step. The region alone where
    /// the step is its own, or where the calls are not known.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub chain: Vec<String>,
    /// Place of the first of these calls, where known.
    pub called_at: Option<Location>,
    /// The file that the code was loaded from.
    pub module: Option<String>,
    /// Locks that the thread held at the step; `None` if that is not known.
    pub held: Option<Vec<Object>>,
}

/// Reason for the class of a defect: a fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    /// Kind of the fact, such as `value-changed`.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub kind: String,
    /// The fact in words.
    pub text: String,
    /// Its data, by names that belong to the kind.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(with = "checker::defect::Reason"))]
    pub data: Map<String, Value>,
}

/// Decision of the user that a defect does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetAside {
    /// Kind of the decision.
    pub by: SetAsideBy,
    /// Reason that the user gives, or the option that sets the defect aside.
    pub reason: String,
}

/// Kinds of decisions that a defect does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SetAsideBy {
    /// A suppression in a file.
    Suppression,
    /// The option `--ignore`, which names the subject of the defect.
    Ignore,
    /// The option `--baseline`, a report that has the defect.
    Baseline,
}

/// Files by which the user decides what counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settings {
    /// Configuration of the current directory, if it was read.
    pub config: Option<String>,
    /// Files of suppressions, the configuration included.
    pub suppressions: Vec<String>,
    /// Reports whose defects do not count.
    pub baselines: Vec<String>,
    /// Suppressions without a match. Of several reports of one command, the last has them.
    pub unused: Vec<UnusedSuppression>,
}

/// Suppression without a match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnusedSuppression {
    /// File and line of the suppression, such as `avtrace.toml:12`.
    pub source: String,
    /// Keys of the suppression but its reason: `region = transfer, file = bank.c`.
    pub keys: String,
    /// Reason that the suppression gives.
    pub reason: String,
}
