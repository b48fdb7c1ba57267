//! Facts about a defect: its pattern, its gap, and the reasons for its class. The table that weighs them is in `class`.

/// Author of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Origin {
    /// The program's own code, or not known.
    #[default]
    Own,
    /// A library or crate.
    Library,
}

/// Role of a region in the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RegionRole {
    /// Named by a marker or an option: meant to be atomic.
    Named,
    /// A function that is a candidate by default.
    #[default]
    Function,
    /// The body of a thread, the program's main function, or a loop that waits for events: seldom meant to be atomic.
    ThreadBody,
    /// A function that waits for other threads or for time to pass.
    Waits,
}

/// Pattern of the accesses at the gap and in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Pattern {
    /// Read, remote write, write of the same variable.
    LostUpdate,
    /// Read, remote write, read of the same variable.
    StaleRead,
    /// Write, remote read, write of the same variable.
    IntermediateState,
    /// Write, remote write, read of the same variable.
    Overwritten,
    /// Two variables that others saw or changed together.
    Torn,
    /// The cycle goes through a third transaction.
    Chain,
    /// No variable in common: only locks or other synchronisation.
    SplitSection,
}

/// Relation of both ends of a gap in the control flow of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum GapKind {
    /// Both in the region's function itself, in the order of its code.
    OneActivation,
    /// At least one in a function that the region calls, and both are not of the same call.
    Callees,
    /// In different iterations of a loop.
    Iterations,
    /// Not known.
    Unknown,
}

/// Reason for a defect's class: a fact, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Reason {
    /// The remote write changed the value.
    ValueChanged,
    /// The remote write stored the value that was there.
    ValueUnchanged,
    /// The same lock was released and acquired again within the gap.
    LockReacquired {
        /// Name of the lock.
        lock: String,
    },
    /// Others came in during that many of the region's executions.
    Cut {
        /// Executions with an interference.
        cut: u64,
        /// All executions.
        runs: u64,
    },
}
