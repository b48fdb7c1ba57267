//! Identity of a probe point: its number within the plan of a process, and the number of that plan.

/// Probe point: its number within a plan (the low `SITE_BITS` bits), and the number of the plan.
///
/// Programs that replace one another, or run side by side, have different plans and common files.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "decode", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
pub struct SiteId(pub u32);

/// Number of the plan of a process, below [`PLANS`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanNumber(pub u32);

/// Number of bits of a site's number within its plan.
const SITE_BITS: u32 = 20;

/// Number of plans that a site can distinguish.
pub const PLANS: u32 = 1 << (32 - SITE_BITS);

impl SiteId {
    /// Stands in records that no probe point made.
    pub const NONE: Self = Self(0);

    /// Site of a plan with this number.
    #[must_use]
    pub const fn new(plan: PlanNumber, number: u32) -> Self {
        Self((plan.0 % PLANS) << SITE_BITS | number)
    }

    /// Number of the plan.
    #[must_use]
    pub const fn plan(self) -> PlanNumber {
        PlanNumber(self.0 >> SITE_BITS)
    }

    /// Number within the plan.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 & ((1 << SITE_BITS) - 1)
    }
}
