//! Capture in a report: by which back end, in which order, and at whose cost.

use serde::{Deserialize, Serialize};

/// Way in which the events of a run were captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capture {
    /// Back end that captured the events.
    pub backend: CaptureBackend,
    /// Reason for the back end, as a clause.
    pub reason: String,
    /// Kind of the reason, such as `no_privileges`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["requested", "preferred", "no_privileges", "option", "refused"])))]
    pub reason_kind: String,
    /// Source of the order of events.
    pub order: CaptureOrder,
    /// Reason why the order is not the time stamp counter's; absent for other back ends than inline probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_reason: Option<String>,
    /// Set if threads wait where avtrace cannot keep up; else they lose events.
    pub lossless: bool,
    /// Number of times that threads waited.
    pub waits: u64,
}

/// Back end of capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CaptureBackend {
    /// BPF programs in the kernel.
    Kernel,
    /// Probes in the program itself.
    Inline,
}

/// Source of the order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CaptureOrder {
    /// Places in the kernel's one ring buffer.
    RingBuffer,
    /// The processors' time stamp counters.
    TimeStampCounter,
    /// A counter common to all threads.
    SharedCounter,
}
