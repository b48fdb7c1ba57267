//! The table that decides how likely a defect is a bug.

/// Likelihood of a bug, the most likely first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Class {
    /// Facts for a bug, and none against one.
    Likely,
    /// Facts of both kinds, or too few.
    Possible,
    /// The region is not meant to be atomic there.
    ByDesign,
}
