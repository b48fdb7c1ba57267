//! Results on interleavings other than the observed one: potential deadlocks, and atomicity over all of them.

pub use checker::{Property, Theorem};
use serde::{Deserialize, Serialize};

use super::{Action, CodePlace, Location, Object, Transaction};

/// Cycle of threads of which each could wait for a lock that the next one holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PotentialDeadlock {
    /// Number of cycles at the same places.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub occurrences: u64,
    /// Acquisitions at which the threads would wait: each for the lock that the next one holds, the last for
    /// the lock that the first one holds.
    #[cfg_attr(feature = "schema", schemars(length(min = 2)))]
    pub acquisitions: Vec<Acquisition>,
}

/// Acquisition of a lock while others are held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Acquisition {
    /// Thread that acquires the lock.
    pub thread: u32,
    /// Innermost region of the acquisition; `None` outside every region.
    pub region: Option<String>,
    /// Event at which the thread acquired the lock.
    pub event: u64,
    /// Lock that the thread would wait for.
    pub lock: Object,
    /// Set for a shared acquisition of a reader-writer lock.
    pub shared: bool,
    /// Place of the acquisition.
    pub location: Option<Location>,
    /// The place for people, also without line information.
    pub label: String,
    /// Lock of the cycle that the thread holds meanwhile.
    pub holds: HeldLock,
    /// Other locks that the thread holds meanwhile.
    pub others: Vec<HeldLock>,
}

/// Lock that is held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldLock {
    /// Lock that is held.
    pub lock: Object,
    /// Set for a shared hold of a reader-writer lock.
    pub shared: bool,
    /// Place at which it was acquired.
    pub location: Option<Location>,
    /// The place for people, also without line information.
    pub label: String,
}

/// Atomicity over all interleavings of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Atomicity {
    /// Property that was checked.
    pub property: Property,
    /// True if every interleaving is atomic; `None` if that is not decided.
    pub atomic: Option<bool>,
    /// Theorem on which the verdict rests; `None` without a verdict.
    pub theorem: Option<Theorem>,
    /// Different transactions and unary transactions that were compared.
    pub units: u64,
    /// Executions of regions that were split, as they order threads.
    pub split_transactions: u64,
    /// Different transactions left out for want of memory.
    pub left_out: u64,
    /// Executions of regions with several commit nodes.
    pub suspects: u64,
    /// Patterns of accesses in the suspects, the certain ones first.
    pub patterns: Vec<UnserializablePattern>,
}

/// Two accesses of a region between which others could come in, and what each of them meets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnserializablePattern {
    /// Region of both accesses.
    pub region: String,
    /// Execution of the region that shows the pattern.
    pub transaction: Transaction,
    /// Number of executions with this pattern.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub occurrences: u64,
    /// Set if the two transactions alone have an interleaving that is equal to no serial one.
    pub certain: bool,
    /// Both accesses, in program order.
    pub accesses: [MetAccess; 2],
}

/// Access of a region, and one of another transaction that it meets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetAccess {
    /// Variable of both accesses.
    pub variable: Object,
    /// Access of the region.
    pub own: AccessStep,
    /// Transaction of the other access.
    pub other: Transaction,
    /// Access of the other transaction.
    pub remote: AccessStep,
}

/// Predicted defect: an access of another thread could have fallen into a gap of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Hash of the region's name, the text of both lines of the gap and the name of the variable, in 16 hexadecimal
    /// digits.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub fingerprint: String,
    /// Class of the prediction.
    pub class: PredictedClass,
    /// Region with the gap.
    pub region: String,
    /// Class of the variable.
    pub subject: String,
    /// Thread of the region.
    pub thread: u32,
    /// Step before the gap.
    pub left: AccessStep,
    /// Step after the gap.
    pub returned: AccessStep,
    /// Place in the code at which a delay falls into the gap; `None` where the code is not known.
    pub delay_at: Option<CodePlace>,
    /// Thread whose access would fall into the gap.
    pub remote_thread: u32,
    /// Region of that access; `None` outside every region.
    pub remote_region: Option<String>,
    /// Access that would fall into the gap.
    pub remote: AccessStep,
    /// Predictions with other remote accesses at the same gap, this one included.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub ways: u64,
    /// The first reads that would find the value of another write in that order.
    pub depends_on: Vec<DependingRead>,
    /// Number of all reads that would find the value of another write.
    pub dependencies: u64,
}

/// Class of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PredictedClass {
    /// Predicted, and not seen.
    Predicted,
}

/// Read that would find another write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DependingRead {
    /// Thread that reads.
    pub thread: u32,
    /// Class of the variable that it reads.
    pub subject: String,
    /// Place of the read.
    pub step: AccessStep,
}

/// Access at its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessStep {
    /// Number of the event, from 0.
    pub event: u64,
    /// Operation of the access.
    pub action: Action,
    /// Place of the access in the source.
    pub location: Option<Location>,
    /// The place for people, also without line information.
    pub label: String,
}
