//! The report as data, in the shape of `avtrace-report/1` (`docs/semantics.md#trace-formats`,
//! `docs/report.schema.json`). No lookup of names and no layout lives here.
//!
//! Field order is the key order of the JSON document. Keys may be added; keys of the contract keep their meaning.

mod capture;
mod coverage;
mod defect;
mod gap;
mod hex_address;
mod hunt;
mod interleavings;
mod merged;
mod perturbation;
mod violation;

use std::{collections::HashSet, path::Path};

use checker::{Regions, Relation};
use serde::{Deserialize, Serialize};

pub use self::capture::*;
pub use self::coverage::*;
pub use self::defect::*;
pub use self::gap::*;
pub use self::hunt::*;
pub use self::interleavings::*;
pub use self::merged::*;
pub use self::perturbation::*;
pub use self::violation::*;

/// The value of [`Report::schema`].
pub const SCHEMA: &str = "avtrace-report/1";

/// Findings and limitations of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Name and version of the format: [`SCHEMA`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: String,
    /// The program that wrote the report.
    pub tool: Tool,
    /// The name of the checker, such as `davida`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub algorithm: String,
    /// The happens-before relation that the counts are of.
    pub relation: Relation,
    /// Checked levels of nested regions.
    pub nesting: Regions,
    /// Checked program or trace.
    pub subject: Subject,
    /// Counts over the whole run.
    pub counts: Counts,
    /// True if the transaction graph is free of cycles; `None` when the algorithm does not decide it.
    pub serializable: Option<bool>,
    /// A cycle of transactions that no violation shows, if the run has one.
    pub cycle: Option<Vec<Transaction>>,
    /// The dependencies of that cycle, in its order, where the algorithm keeps them. Program order has none.
    pub cycle_edges: Vec<Edge>,
    /// Defects: violations grouped into what a person would fix, the likeliest bug first. Empty for algorithms
    /// without witnesses.
    pub defects: Vec<Defect>,
    /// Violations, one for each static witness, data evidence first.
    pub violations: Vec<Violation>,
    /// Violations that defects show and that are in no count: of a region nested in those that were asked for, or a
    /// clearer instance of one above.
    pub exemplars: Vec<Violation>,
    /// Gaps of regions that other threads could get into, the most promising first; present only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Vec<RegionGap>>,
    /// First instructions of functions that threads start with, for delays there; only beside gaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thread_starts: Vec<CodePlace>,
    /// Potential deadlocks, the shortest first; present only when asked for, and with `commit-node`, which presumes
    /// that there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlocks: Option<Vec<PotentialDeadlock>>,
    /// Predicted defects, which nobody has seen; present only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predictions: Option<Vec<Prediction>>,
    /// Atomicity over all interleavings; present only with `commit-node`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomicity: Option<Atomicity>,
    /// Regions in which the program died, after other threads had depended on them by data. Each is `possible`: it may
    /// have been about to be violated. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_at_end: Vec<OpenRegion>,
    /// Locks that regions of the program's own code released and took again, and that no other thread held in between,
    /// the most frequent first. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reacquired: Vec<ReacquiredLock>,
    /// Every instance; present only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<Instance>>,
    /// The threads that were seen, by id.
    pub threads: Vec<Thread>,
    /// The regions that were seen.
    pub regions: Vec<Region>,
    /// Limitations: events, probes and accesses that avtrace could not see, with reasons.
    pub not_seen: NotSeen,
    /// Costs of the run.
    pub summary: Summary,
    /// Way in which the events were captured; absent for traces of other tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    /// Coverage of memory accesses; absent if they were not to be captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySeen>,
    /// Cause of a death by `SIGTRAP`; absent for another end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trap: Option<TrapDeath>,
    /// Delays and the like in the run, made on purpose; present only with `--perturb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perturbation: Option<Perturbation>,
    /// Files by which the user decides which defects count; absent without such files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// Runs of a hunt; absent for other reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hunt: Option<Hunt>,
    /// End of the run in UTC, as RFC 3339 has it: `2026-11-23T08:15:30.125Z`. Of several runs, of the last one. Absent
    /// for recorded traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub time: Option<String>,
    /// Name of the machine of the run; absent with `--no-host`, and where there is no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Trace context that the program was started with, as W3C has it (`TRACEPARENT` in its environment).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Reports that this one was made of (`avtrace merge`); absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
}

/// Lock that a region released and took again, and that no other thread held in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReacquiredLock {
    /// Name of the region.
    pub region: String,
    /// The lock; of several with one name, one of them.
    pub lock: Object,
    /// Number of times.
    pub times: u64,
}

impl Report {
    /// Returns whether the run shows that something is not atomic: a violation, or a cycle without one.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        !self.violations.is_empty() || !self.defects.is_empty() || self.has_cycle_alone()
    }

    /// Returns whether the run is not serializable though no violation shows it.
    #[must_use]
    pub fn has_cycle_alone(&self) -> bool {
        self.violations.is_empty() && (self.serializable == Some(false) || self.cycle.is_some())
    }

    /// Returns whether something counts as found: a defect of that class or a likelier one that the user has not set
    /// aside, or a finding that belongs to no defect.
    #[must_use]
    pub fn fails(&self, least: Class) -> bool {
        let counts = |defect: &Defect| defect.set_aside.is_none() && defect.class <= least;
        self.defects.iter().any(counts)
            || self.unclassified().next().is_some()
            || (self.has_cycle_alone() && least >= Class::Possible)
            || self.has_unsafe_interleavings(least)
    }

    /// Returns whether another interleaving than the one observed counts as found: a potential deadlock, or a pattern
    /// that two transactions alone show; with the least likely class also one that several transactions may show.
    fn has_unsafe_interleavings(&self, least: Class) -> bool {
        let patterns = self.atomicity.iter().flat_map(|atomicity| &atomicity.patterns);
        let mut counting = patterns.filter(|of| of.certain || least == Class::ByDesign);
        let has_deadlocks = self.deadlocks.as_ref().is_some_and(|found| !found.is_empty());
        least >= Class::Possible && (has_deadlocks || counting.next().is_some())
    }

    /// Returns the violations that belong to no defect: those without a witness.
    pub fn unclassified(&self) -> impl Iterator<Item = &Violation> {
        let classified: HashSet<&str> = (self.defects.iter())
            .flat_map(|defect| defect.violations.iter().map(String::as_str))
            .collect();
        self.violations.iter().filter(move |violation| !classified.contains(violation.id.as_str()))
    }

    /// Removes the names of machines.
    pub fn forget_hosts(&mut self) {
        self.host = None;
        let merged = self.defects.iter_mut().filter_map(|defect| defect.merged.as_mut());
        merged.chain(&mut self.merged).for_each(|merged| merged.hosts.clear());
    }

    /// Returns the violation that shows a defect.
    #[must_use]
    pub fn shown(&self, defect: &Defect) -> Option<&Violation> {
        let id = defect.violations.first()?;
        self.violations.iter().chain(&self.exemplars).find(|violation| violation.id == *id)
    }
}

/// The program that wrote a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tool {
    /// Name of the program, `avtrace`.
    #[cfg_attr(feature = "schema", schemars(extend("const" = "avtrace")))]
    pub name: String,
    /// Version of the program, such as `0.1.0`.
    pub version: String,
}

impl Tool {
    /// Returns this program.
    #[must_use]
    pub fn this() -> Self {
        Self { name: "avtrace".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Checked program or trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// A recorded trace.
    Trace {
        /// The file, as the user named it.
        path: String,
        /// Exit status of the recorded program; `None` when a signal ended it, or if the trace does not have it.
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// The number of the signal that ended that program.
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// A program that was launched or attached to.
    Process {
        /// Process id, in the PID namespace of avtrace.
        pid: u32,
        /// Arguments, the program first.
        argv: Vec<String>,
        /// Exit status; `None` when a signal ended it, or it was still running.
        exit_code: Option<i32>,
        /// The number of the signal that ended it.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        signal: Option<i32>,
        /// The process that forked it, when that was traced as well.
        parent: Option<u32>,
        /// Place among the programs that the process ran, from 1. Each program has a report.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        program: u32,
        /// Set if the process replaced it by another program (`execve`).
        replaced: bool,
        /// Name of a program whose file has one that says nothing, such as `src/lib.rs:12` of the documentation test
        /// on that line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

impl Subject {
    /// Returns the name of the program, or of the trace, without directories.
    #[must_use]
    pub fn program(&self) -> String {
        if let Self::Process { name: Some(name), .. } = self {
            return name.clone();
        }
        let path = match self {
            Self::Process { argv, .. } => argv.first().map(String::as_str).unwrap_or_default(),
            Self::Trace { path, .. } => path,
        };
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        if name.is_empty() { "program".to_owned() } else { name.into_owned() }
    }

    /// Returns whether the program died: by a signal, or with an exit status that is an error.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let (Self::Trace { exit_code, signal, .. } | Self::Process { exit_code, signal, .. }) =
            self;
        signal.is_some() || exit_code.is_some_and(|code| code != 0)
    }
}

/// Counts over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Number of events that were checked.
    pub events: u64,
    /// Threads that did something.
    pub threads: u64,
    /// Transactions, the unary ones included.
    pub transactions: u64,
    /// Transactions of one event outside every region.
    pub unary_transactions: u64,
    /// Dependencies between threads.
    pub dependencies: u64,
    /// Number of violation instances.
    pub violations: u64,
    /// Transactions with at least one violation instance.
    pub violating_transactions: u64,
    /// Groups of instances with the same regions and code locations along the witness.
    pub distinct_witnesses: u64,
    /// Events lost before they could be checked, all classes together.
    pub lost_events: u64,
}

/// A thread that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Thread {
    /// Id of the thread in the report.
    pub id: u32,
    /// Name of the thread, where known.
    pub name: Option<String>,
    /// The operating system's thread id, where known.
    pub tid: Option<u32>,
}

/// A region that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Region {
    /// Name of the region.
    pub name: String,
    /// Place in the source at which the region begins.
    pub location: Option<Location>,
}
