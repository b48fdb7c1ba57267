//! A defect in a report: what a person would fix, with the facts for and against it.

pub use checker::defect::{Class, GapKind, Origin, Pattern, RegionRole};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Action, Evidence, Location, Object, Order, SourceFrame};

/// The violations of one region across one gap, on one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Defect {
    /// `d1`, `d2`, … in the order of the report.
    pub id: String,
    /// Hash of the region's name, the text of both lines of the gap and the subject's name, in 16 hexadecimal digits.
    /// It stays the same in another run, after a rebuild and when lines have moved.
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
    /// Those objects, in the violation that is shown.
    pub objects: Vec<Object>,
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
    /// Violation instances.
    pub occurrences: u64,
    /// Ids of the violations; the first is the one to show.
    pub violations: Vec<String>,
    /// Number of distinct cycles: who came in, and through which lines.
    pub ways: u64,
}

/// Ends of a gap: where the region was left and returned to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
}

/// Step at one end of a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapEnd {
    /// The place for people: `bank.c:45`, `transfer+0x1c (bank)`, or `unknown location`.
    pub label: String,
    /// Action.
    pub action: Action,
    /// The source line, without indentation.
    pub source_text: Option<String>,
    /// All frames of the place, innermost first.
    pub frames: Vec<SourceFrame>,
}

/// Reason for the class of a defect: a fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// Kind of the fact, such as `value-changed`.
    pub kind: String,
    /// The fact in words.
    pub text: String,
    /// Its data, by names that belong to the kind.
    #[serde(flatten)]
    pub data: Map<String, Value>,
}
