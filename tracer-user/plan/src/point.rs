//! Probe points, which back ends attach, and refusals, which they return.

use std::{io, path::PathBuf};

use abi::{AccessDescriptor, ProbeProgram};
use serde::{Deserialize, Serialize};

/// A probe to attach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbePoint {
    /// The program.
    pub program: ProbeProgram,
    /// The file, by a path that works in this process's mount namespace.
    #[serde(skip)]
    pub file: PathBuf,
    /// Offset in the file.
    pub offset: u64,
    /// Cookie for the program.
    pub cookie: u64,
    /// Accessed memory, for [`ProbeProgram::Access`] and [`ProbeProgram::AccessLarge`].
    pub access: Option<AccessDescriptor>,
    /// Number of the group, for a probe of regions that may be detached while the program runs.
    pub regions: Option<u32>,
}

/// Probes that are detached together, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeGroup {
    /// Those of an access group.
    Accesses(u16),
    /// Those of a group of regions.
    Regions(u32),
}

impl ProbePoint {
    /// Returns the group with which the probe is detached, if any.
    #[must_use]
    pub fn group(&self) -> Option<ProbeGroup> {
        let accesses = self.access.map(|access| ProbeGroup::Accesses(access.group));
        accesses.or_else(|| self.regions.map(ProbeGroup::Regions))
    }
}

/// A probe that could not be attached.
#[derive(Debug)]
pub struct Refusal {
    /// Index of the point among those to attach.
    pub index: usize,
    /// Reason.
    pub error: io::Error,
}
