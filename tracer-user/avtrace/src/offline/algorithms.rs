//! The algorithms that `avtrace check` offers, one entry each. They are implemented in `checker`.

use std::fmt;

use checker::{
    AeroDrome, Capabilities, Checker, CommitNode, Davida, DoubleChecker, Options, RegionTrack,
    Velodrome,
};

/// All algorithms; the first is the default.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "davida",
        about: "Violating transactions with witnesses, and whether the trace is serializable",
        capabilities: Davida::CAPABILITIES,
        start: |options| Box::new(Davida::new(options)),
    },
    Algorithm {
        name: "regiontrack",
        about: "Violating transactions by event clocks alone, without witnesses",
        capabilities: RegionTrack::CAPABILITIES,
        start: |options| Box::new(RegionTrack::new(options)),
    },
    Algorithm {
        name: "aerodrome",
        about: "Whether the trace is serializable, by vector clocks; stops at the first cycle",
        capabilities: AeroDrome::CAPABILITIES,
        start: |options| Box::new(AeroDrome::new(options)),
    },
    Algorithm {
        name: "velodrome",
        about: "Whether the trace is serializable, by a graph of transactions, with the cycle",
        capabilities: Velodrome::CAPABILITIES,
        start: |options| Box::new(Velodrome::new(options)),
    },
    Algorithm {
        name: "doublechecker",
        about: "As velodrome, by an imprecise graph first, and logs of what may be on a cycle",
        capabilities: DoubleChecker::CAPABILITIES,
        start: |options| Box::new(DoubleChecker::new(options)),
    },
    Algorithm {
        name: "commit-node",
        about: "Whether all interleavings of the trace are atomic, with patterns of those that are not",
        capabilities: CommitNode::CAPABILITIES,
        start: |options| Box::new(CommitNode::new(options)),
    },
];

/// An algorithm.
pub struct Algorithm {
    /// Name in options and reports.
    pub name: &'static str,
    /// Summary of its findings, in a few words.
    pub about: &'static str,
    /// Options that it honours.
    pub capabilities: Capabilities,
    /// Creates a checker of the algorithm.
    pub start: fn(Options) -> Box<dyn Checker>,
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns the algorithm of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
}
