//! The outcome of the commit-node algorithm: atomicity over all interleavings, and patterns that speak against it.

use super::dependency::{Point, Tx};
use crate::deadlock::Deadlock;
use crate::event::{RegionId, VarId};

/// Property that is checked over all interleavings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Property {
    /// In each interleaving the order of conflicting accesses is the order in some serial interleaving.
    #[default]
    Conflict,
    /// In each interleaving all reads and the final values are the same as in some serial interleaving.
    View,
}

/// Theorem of the paper on which a verdict rests; numbers in brackets are for view-atomicity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Theorem {
    /// Theorem 4.1 (4.4): no transaction has more than one commit node.
    OneCommitNode,
    /// Theorem 4.2 (4.5): a transaction has two commit nodes for one other transaction.
    TwoTransactions,
    /// Theorem 4.3 (4.6): no cycle leads through two nodes of a transaction.
    NoCycle,
}

/// Atomicity of a trace over all its interleavings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Atomicity {
    /// Property that was checked.
    pub property: Property,
    /// `None` if it is not decided: the theorems that apply are sufficient only, or do not apply.
    pub atomic: Option<bool>,
    /// Theorem on which the verdict rests.
    pub theorem: Option<Theorem>,
    /// Different transactions and unary transactions that were compared.
    pub units: u64,
    /// Executions of regions that were split, since they start or join threads, signal, wait or meet at a barrier.
    pub split_transactions: u64,
    /// Different units left out beyond the limit of memory.
    pub left_out: u64,
    /// Executions with several commit nodes.
    pub suspects: u64,
    /// Patterns of these.
    pub patterns: Vec<Unserializable>,
    /// Potential deadlocks, which the theorems presume not to exist.
    pub deadlocks: Vec<Deadlock>,
}

/// A transaction that others can interrupt: two of its accesses, and the accesses that each of them meets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Unserializable {
    /// Region.
    pub region: RegionId,
    /// Execution that shows it.
    pub transaction: Tx,
    /// Access of its first commit node, and of its last.
    pub accesses: [Point; 2],
    /// Variables of both accesses.
    pub variables: [VarId; 2],
    /// Transactions that they meet; the same one, if one transaction is enough.
    pub others: [Tx; 2],
    /// Accesses that they meet.
    pub remotes: [Point; 2],
    /// Set if these two transactions alone have an interleaving that is equal to no serial one (Theorem 4.2 or 4.5).
    /// Otherwise others have to be on a cycle, and may be ordered in a way that excludes it.
    pub is_certain: bool,
    /// Executions with this pattern.
    pub occurrences: u64,
}
