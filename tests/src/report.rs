//! Reading a JSON report: the keys that the suites look at. Every document is checked against the schema that the
//! repository keeps.

#![expect(missing_docs, reason = "the schema describes the keys")]

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;

use crate::schema::{assert_follows, validator};

/// A report of the schema `avtrace-report/1`.
#[derive(Debug, Deserialize)]
pub struct Report {
    pub schema: String,
    pub algorithm: String,
    pub relation: String,
    pub subject: Subject,
    pub counts: Counts,
    pub serializable: Option<bool>,
    pub violations: Vec<Violation>,
    #[serde(default)]
    pub exemplars: Vec<Violation>,
    #[serde(default)]
    pub defects: Vec<Value>,
    pub not_seen: Value,
    pub summary: Value,
    #[serde(default)]
    pub capture: Option<Value>,
    #[serde(default)]
    pub memory: Option<Value>,
    #[serde(default)]
    pub trap: Option<Value>,
}

/// The process that was traced.
#[derive(Debug, Deserialize)]
pub struct Subject {
    pub kind: String,
    pub pid: u32,
    pub argv: Vec<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub parent: Option<u32>,
    pub program: u32,
    pub replaced: bool,
}

/// Counts over the whole run.
#[derive(Debug, Deserialize)]
pub struct Counts {
    pub events: u64,
    pub threads: u64,
    pub transactions: u64,
    pub unary_transactions: u64,
    pub dependencies: u64,
    pub violations: u64,
    pub violating_transactions: u64,
    pub distinct_witnesses: u64,
    pub lost_events: u64,
}

/// An atomicity violation.
#[derive(Debug, Deserialize)]
pub struct Violation {
    pub region: String,
    pub occurrences: u64,
    pub evidence: String,
    pub order: String,
    pub transaction: Transaction,
    pub witness: Vec<Transaction>,
    pub edges: Vec<Edge>,
    pub begin: Option<Location>,
    pub splits: Vec<Split>,
}

/// An execution of a region.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct Transaction {
    pub thread: u32,
    pub ordinal: u64,
    pub region: Option<String>,
    pub begin_event: u64,
}

/// A dependency.
#[derive(Debug, Deserialize)]
pub struct Edge {
    pub object: Object,
    pub source: Option<Location>,
    pub sink: Option<Location>,
    pub source_label: String,
    pub sink_label: String,
    pub source_action: String,
    pub sink_action: String,
    pub order: String,
}

/// Object of a dependency.
#[derive(Debug, Deserialize)]
pub struct Object {
    pub kind: String,
    pub name: Option<String>,
    pub address: Option<String>,
}

/// A place in the source.
#[derive(Debug, Deserialize)]
pub struct Location {
    pub file: String,
    pub line: Option<u32>,
    pub function: Option<String>,
}

/// Lock that the violating transaction released and acquired again.
#[derive(Debug, Deserialize)]
pub struct Split {
    pub lock: Object,
    pub released: Option<Location>,
    pub reacquired: Option<Location>,
}

impl Report {
    /// Reads a report.
    ///
    /// # Panics
    /// When it is not a JSON document of the schema in `docs/report.schema.json`.
    #[must_use]
    pub fn parse(document: &str) -> Self {
        let value: Value = serde_json::from_str(document)
            .unwrap_or_else(|error| panic!("the report is not JSON: {error}\n{document}"));
        Self::check(&value);
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}\n{document}"))
    }

    /// Checks a report against the schema.
    ///
    /// # Panics
    /// When it does not follow the one in `docs/report.schema.json`.
    pub fn check(report: &Value) {
        assert_follows(report, schema());
    }

    /// The only violation of the report. A second one of the same transaction by its locks, after one by its data, does
    /// not count.
    ///
    /// # Panics
    /// When the report has no violation, or several.
    #[must_use]
    pub fn only_violation(&self) -> &Violation {
        let by_data = |one: &Violation| one.evidence == "data";
        match &self.violations[..] {
            [violation] => violation,
            [first, others @ ..]
                if by_data(first)
                    && others
                        .iter()
                        .all(|other| !by_data(other) && other.transaction == first.transaction) =>
            {
                first
            }
            others => panic!("one violation expected, {} found: {others:#?}", others.len()),
        }
    }
}

impl Violation {
    /// The regions around the cycle.
    #[must_use]
    pub fn cycle(&self) -> Vec<&str> {
        self.witness.iter().map(|tx| tx.region.as_deref().unwrap_or("")).collect()
    }

    /// Everything about the violation that is the same in each run.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let edges: Vec<String> = self
            .edges
            .iter()
            .map(|edge| {
                let name = edge.object.name.as_deref();
                format!(
                    "{} {name:?} {} -> {}",
                    edge.object.kind, edge.source_label, edge.sink_label
                )
            })
            .collect();
        format!("{} {} {} {:?} {edges:?}", self.region, self.evidence, self.order, self.cycle())
    }
}

impl Edge {
    /// The object's name.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.object.name.as_deref().unwrap_or_else(|| panic!("an object with a name: {self:?}"))
    }
}

fn schema() -> &'static jsonschema::Validator {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    SCHEMA.get_or_init(|| validator("docs/report.schema.json"))
}
