//! A gap of a region in a report: a place at which another thread could come in, whether it did or not.

pub use checker::gap::{Data as GapData, Kind as RegionGapKind};
use serde::{Deserialize, Serialize};

use super::Location;

/// Gap of a region, by its lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegionGap {
    /// Hash of the kind, the region's name, the text of both lines and the names of the objects, in 16 hexadecimal
    /// digits. It stays the same in another run, after a rebuild and when lines have moved.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub id: String,
    /// Kind of the gap.
    pub kind: RegionGapKind,
    /// Innermost region that spans the gap.
    pub region: GapRegion,
    /// Place of the step before the gap.
    pub left: Option<Location>,
    /// The place for people: `bank.c:45`, `transfer+0x1c (bank)`, or `unknown location`.
    pub left_label: String,
    /// Place of the step after the gap.
    pub returned: Option<Location>,
    /// The place for people, as for the step before.
    pub returned_label: String,
    /// Place in the code at which a delay falls into the gap; `None` where the code is not known.
    pub delay_at: Option<CodePlace>,
    /// Such places in further copies of the code, where a compiler put the function into several others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_delay_at: Vec<CodePlace>,
    /// Class of the lock or variable; of two, joined by `and`.
    pub subject: String,
    /// Number of times that a thread came from the one step to the other.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub crossed: u64,
    /// Number of times that another thread came in meanwhile.
    pub cut: u64,
    /// Data that both sides have to do with.
    pub data: GapData,
    /// Number of other threads that could come in.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub other_threads: u64,
    /// Regions of these threads, or functions where they were in no region, as far as they are known.
    pub remote_regions: Vec<String>,
    /// First instructions of these regions, where code is known: a thread that is delayed there comes later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes_at: Vec<CodePlace>,
    /// Likelihood that it is a bug which shows when a thread is delayed there, from 0 to 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub promise: f64,
}

/// Region of a gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GapRegion {
    /// Name of the region.
    pub name: String,
}

/// Instruction of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CodePlace {
    /// Path of the file, as the process has mapped it.
    pub module: String,
    /// Link-time address of the instruction: as in the file, wherever it is loaded.
    pub address: u64,
}
