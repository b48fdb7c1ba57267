//! Perturbation of a run, as its report has it.

use serde::{Deserialize, Serialize};

/// Delays, starvation and sets of processors of a run with `--perturb`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Perturbation {
    /// Seed of the plan.
    pub seed: u64,
    /// Delays, in the order of the plan.
    pub delays: Vec<PerturbationDelay>,
    /// Starvation of threads, in all programs of the run so far.
    pub starved: Starved,
    /// Number of changes of threads' sets of processors, in all programs of the run so far.
    pub affinity_changes: u64,
    /// Duration of the program's run, in nanoseconds.
    pub wall_ns: u64,
    /// Time in delays, of all threads together, as a share of that.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub share: f64,
}

/// Delays at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PerturbationDelay {
    /// Identifier in the plan.
    pub id: String,
    /// Number of delays.
    pub hits: u64,
    /// Time in them, in nanoseconds. With probes in the process without those in which threads have ended.
    pub delayed_ns: u64,
    /// Set if the place had a probe.
    pub attached: bool,
    /// Reason why the place had no probe.
    pub reason: Option<String>,
}

/// Starvation of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Starved {
    /// Number of times that a thread was starved.
    pub times: u64,
    /// Time in which one was, in nanoseconds.
    pub ns: u64,
    /// Reason why no thread could be starved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<StarvedReason>,
}

/// Reason why no thread was starved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StarvedReason {
    /// Only probes in the process come with a tracer that can hold a thread.
    NeedsInlineCapture,
}
