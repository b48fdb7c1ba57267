//! Dependence of a later step of a region on an earlier one: the fact that says whether two steps belong together. The
//! program's code decides it, which the caller knows. Xu, Bodík and Hill infer atomic units from it ("A
//! Serializability Violation Detector for Shared-Memory Server Programs", PLDI 2005, section 3).

use crate::event::{LocationId, RegionId};

/// Answer to a question about code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Certainty {
    /// It is not so.
    No,
    /// The code does not say it, or is not known.
    #[default]
    Unknown,
    /// It is so.
    Yes,
}

/// Two steps of one region, or of code outside of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Steps {
    /// Region that contains both; without one, they are in the innermost function whose activation made both.
    pub region: Option<RegionId>,
    /// Read of a variable.
    pub earlier: LocationId,
    /// Access, later in the same execution of the region.
    pub later: LocationId,
}

impl Steps {
    /// Two steps of a region.
    pub(crate) const fn of(region: RegionId, earlier: LocationId, later: LocationId) -> Self {
        Self { region: Some(region), earlier, later }
    }
}

/// Ways in which a later step depends on the value that an earlier step has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Dependence {
    /// The later step writes what it has computed from the value.
    pub value: Certainty,
    /// The address of the later access comes from the value.
    pub address: Certainty,
    /// A branch on the value decides whether the later step is made.
    pub control: Certainty,
    /// The earlier step can be made again in the same execution of the region.
    pub repeats: Certainty,
    /// The later step is always made before the earlier one as well: behind that, it is one of another iteration.
    #[cfg_attr(feature = "serde", serde(default))]
    pub goes_back: Certainty,
    /// The values that both steps read are compared with one another.
    #[cfg_attr(feature = "serde", serde(default))]
    pub compared: Certainty,
    /// The values that both steps read are used together in another way: something is computed from both, or both are
    /// returned.
    #[cfg_attr(feature = "serde", serde(default))]
    pub combined: Certainty,
    /// The region's result depends on the value that the later step has read, or it has no result.
    #[cfg_attr(feature = "serde", serde(default))]
    pub returned: Certainty,
}

impl Dependence {
    /// Returns whether the later step acts on the value. A step that only finds its object by the value may rely on it
    /// for another reason, such as a reference that was counted: the answer is then unknown.
    #[must_use]
    pub fn acts(self) -> Certainty {
        match (self.value.max(self.control), self.address) {
            (Certainty::No, Certainty::No) => Certainty::No,
            (Certainty::Yes, _) => Certainty::Yes,
            _ => Certainty::Unknown,
        }
    }
}
