//! Defects and their gaps, as reports show them.

use super::class::Class;
use super::fact::{Pattern, Reason};
use crate::event::{LockId, RegionId};
use crate::finding::{Evidence, GapKind, Object, Obstacle, Order, OtherLocks, Point, ReleasedLock};

/// Place that a person would fix: the violations of one region across one gap, on one subject.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Defect {
    /// Hash of the region's name, the text of both lines of the gap and the subject's name. It stays the same in
    /// another run, after a rebuild and when lines have moved.
    pub fingerprint: u64,
    /// Likelihood of a bug.
    pub class: Class,
    /// Innermost violated region that spans the gap.
    pub region: RegionId,
    /// Regions around it that span the gap as well, innermost first.
    pub outer_regions: Vec<RegionId>,
    /// Pattern of the accesses at the gap and in between.
    pub pattern: Pattern,
    /// Objects of the first and of the closing dependency; one if they are of the same class.
    pub objects: Vec<Object>,
    /// Objects at the ends of other violations of the defect, one of each class, at most a handful.
    pub other_objects: Vec<Object>,
    /// Strongest evidence of the violations.
    pub evidence: Evidence,
    /// Order of the violation that is shown.
    pub order: Order,
    /// Place between whose ends others came in.
    pub gap: Gap,
    /// Facts for and against a bug, in the order of the report.
    pub reasons: Vec<Reason>,
    /// Executions of the region.
    pub runs: u64,
    /// Executions in which others came in at this gap.
    pub cut_runs: u64,
    /// Violation instances.
    pub occurrences: u64,
    /// Number of distinct cycles: who came in, and through which lines; saturates for a gap at
    /// [`Cut::MAX_WAYS`](crate::finding::Cut::MAX_WAYS).
    pub ways: u64,
    /// Transactions in the cycle that is shown, the region's included.
    pub transactions: usize,
    /// Numbers of the violations, for [`Findings::violation`](crate::finding::Findings::violation); the first is the
    /// one to show, which may be one of [`Findings::exemplars`](crate::finding::Findings::exemplars). Each violation
    /// with a witness belongs to one defect.
    pub violations: Vec<usize>,
}

/// Places at which a region was left and returned to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Gap {
    /// Last step of the region before the first dependency of the cycle.
    pub left: Point,
    /// Step at the closing dependency.
    pub returned: Point,
    /// Relation of both in the control flow of the region.
    pub kind: GapKind,
    /// Regions nested in the defect's that were open at the first step, outermost first: the calls that led there.
    /// `None` if that is not known.
    pub left_chain: Option<Vec<RegionId>>,
    /// Regions nested in the defect's that were open at the second step. `None` if that is not known.
    pub returned_chain: Option<Vec<RegionId>>,
    /// Lock that the region gave up between the two, if one explains the gap: the defect stands for all cuts of the
    /// region between this release and this acquisition.
    pub lock: Option<ReleasedLock>,
    /// Locks held from one step to the other.
    pub held_throughout: Vec<LockId>,
    /// Locks of the region at the first step. `None` if that is not known any more.
    pub left_held: Option<Vec<LockId>>,
    /// Locks of the region at the second step. `None` if that is not known any more.
    pub returned_held: Option<Vec<LockId>>,
    /// Locks of others where they came in and where they left off.
    pub others: OtherLocks,
    /// Fact against holding a lock from one step to the other.
    pub obstacle: Option<Obstacle>,
}
