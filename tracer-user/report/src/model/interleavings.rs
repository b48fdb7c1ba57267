//! Results on interleavings other than the one that was observed: potential deadlocks, and atomicity over all of them.

pub use checker::{Property, Theorem};
use serde::{Deserialize, Serialize};

use super::{Action, CodePlace, Location, Object, Transaction};

/// Cycle of threads of which each could wait for a lock that the next one holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PotentialDeadlock {
    /// Number of cycles at the same places.
    pub occurrences: u64,
    /// Acquisitions at which the threads would wait: each for the lock that the next one holds, the last for that of
    /// the first.
    pub acquisitions: Vec<Acquisition>,
}

/// Acquisition of a lock while others are held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acquisition {
    /// Thread.
    pub thread: u32,
    /// Innermost region of the acquisition.
    pub region: Option<String>,
    /// Event at which the thread acquired the lock.
    pub event: u64,
    /// Lock that it would wait for.
    pub lock: Object,
    /// Set for a shared acquisition of a reader-writer lock.
    pub shared: bool,
    /// Place of the acquisition.
    pub location: Option<Location>,
    /// That place for people.
    pub label: String,
    /// Lock of the cycle that it holds meanwhile.
    pub holds: HeldLock,
    /// Other locks that it holds meanwhile.
    pub others: Vec<HeldLock>,
}

/// Lock that is held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldLock {
    /// Lock.
    pub lock: Object,
    /// Set for a shared hold of a reader-writer lock.
    pub shared: bool,
    /// Place of its acquisition.
    pub location: Option<Location>,
    /// That place for people.
    pub label: String,
}

/// Atomicity over all interleavings of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Atomicity {
    /// Property that was checked.
    pub property: Property,
    /// `None` if it is not decided.
    pub atomic: Option<bool>,
    /// Theorem on which the verdict rests.
    pub theorem: Option<Theorem>,
    /// Different transactions and unary transactions that were compared.
    pub units: u64,
    /// Executions of regions that were split, as they order threads.
    pub split_transactions: u64,
    /// Different units left out for want of memory.
    pub left_out: u64,
    /// Executions with several commit nodes.
    pub suspects: u64,
    /// Patterns of these, the certain ones first.
    pub patterns: Vec<UnserializablePattern>,
}

/// Two accesses of a region between which others could come in, and what each of them meets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnserializablePattern {
    /// Region.
    pub region: String,
    /// Execution that shows it.
    pub transaction: Transaction,
    /// Executions with this pattern.
    pub occurrences: u64,
    /// Set if the two transactions alone have an interleaving that is equal to no serial one.
    pub certain: bool,
    /// Both accesses, in program order.
    pub accesses: [MetAccess; 2],
}

/// Access of a region, and one of another transaction that it meets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetAccess {
    /// Variable.
    pub variable: Object,
    /// Access of the region.
    pub own: AccessStep,
    /// Other transaction.
    pub other: Transaction,
    /// Its access.
    pub remote: AccessStep,
}

/// Predicted defect: an access of another thread could have fallen into a gap of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Hash of the region's name, the text of both lines of the gap and the name of the variable, in 16 hexadecimal
    /// digits.
    pub fingerprint: String,
    /// Class of its own.
    pub class: PredictedClass,
    /// Region.
    pub region: String,
    /// Class of the variable.
    pub subject: String,
    /// Thread of the region.
    pub thread: u32,
    /// Step before the gap.
    pub left: AccessStep,
    /// Step after it.
    pub returned: AccessStep,
    /// Place in the code at which a delay falls into the gap; `None` where the code is not known.
    pub delay_at: Option<CodePlace>,
    /// Thread that would have to come in.
    pub remote_thread: u32,
    /// Its region, if it is in one.
    pub remote_region: Option<String>,
    /// Its access.
    pub remote: AccessStep,
    /// Predictions with other remote accesses at the same gap, this one included.
    pub ways: u64,
    /// Reads that would find another write in that order: the first ones.
    pub depends_on: Vec<DependingRead>,
    /// Number of all of them.
    pub dependencies: u64,
}

/// Class of predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PredictedClass {
    /// Predicted, and not seen.
    Predicted,
}

/// Read that would find another write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DependingRead {
    /// Thread.
    pub thread: u32,
    /// Class of the variable.
    pub subject: String,
    /// The read.
    pub step: AccessStep,
}

/// Access at its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccessStep {
    /// Event.
    pub event: u64,
    /// Operation.
    pub action: Action,
    /// Place.
    pub location: Option<Location>,
    /// That place for people.
    pub label: String,
}
