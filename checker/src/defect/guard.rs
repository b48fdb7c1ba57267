//! Decides whether one lock guards both steps of a gap, by the locks of the region and of others.

use crate::event::{LockId, RegionId};
use crate::finding::{Cut, Findings, Violation};
use rustc_hash::FxHashSet;

/// Protection of both steps by locks. Two variables belong together where one lock guards both; where each has its own,
/// their sections are complete in themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Guard {
    /// Lock of both steps, for the region as for others.
    Common(LockId),
    /// Each step has its own lock, which the region and others hold, and nobody holds one for both.
    Separate,
    /// Locks were held, but at one of the steps the region and others have no lock in common.
    Partial,
    /// No lock was held.
    Absent,
    /// Not known.
    #[default]
    Unknown,
}

impl Guard {
    /// Returns the protection of the steps of a cut, by its exemplar. Of several locks, the name decides.
    pub(super) fn of(
        cut: &Cut,
        exemplar: &Violation,
        released: &Released,
        mut name: impl FnMut(LockId) -> String,
    ) -> Self {
        let ends = [&cut.left_end.held, &cut.returned_end.held];
        let [Some(left), Some(returned)] = ends else { return Self::Unknown };
        let others = &cut.others;
        let (Some(entered), Some(gave_back)) = (&others.entered, &others.left) else {
            return Self::Unknown;
        };
        // A lock that the region held all the time kept nobody out.
        let guards = |lock: &&LockId| !cut.held_throughout.contains(lock);
        let by_both = |one: &[LockId], other: &[LockId]| {
            let both = one.iter().filter(guards).copied().filter(|lock| other.contains(lock));
            both.collect::<Vec<LockId>>()
        };
        let (first, second) = (by_both(left, entered), by_both(returned, gave_back));
        let Some(throughout) = released.held_over_both(cut, exemplar) else { return Self::Unknown };
        if first.is_empty() || second.is_empty() {
            let locks = [left, returned, entered, gave_back];
            let is_free = locks.iter().all(|held| held.is_empty());
            return if is_free { Self::Absent } else { Self::Partial };
        }
        // Others touched both under one lock, which the region takes for one of them; or both sides take it for each.
        let of_all =
            |lock: &LockId| [returned, entered, gave_back].iter().all(|held| held.contains(lock));
        let in_each = || left.iter().filter(guards).copied().filter(of_all).collect();
        let in_one_hold = [by_both(left, &throughout), by_both(returned, &throughout)];
        let common =
            in_one_hold.into_iter().find(|locks| !locks.is_empty()).unwrap_or_else(in_each);
        common.into_iter().min_by_key(|&lock| name(lock)).map_or(Self::Separate, Self::Common)
    }
}

/// Locks that regions were seen to give up between two of their steps.
pub(super) struct Released(FxHashSet<(RegionId, LockId)>);

impl Released {
    pub(super) fn of(findings: &Findings) -> Self {
        let of_cut = |cut: &Cut| {
            let exemplar = findings.violation(cut.exemplar)?;
            let locks = exemplar.released_locks.iter().map(|released| released.lock);
            Some(Vec::from_iter(locks.map(|lock| (cut.region, lock))))
        };
        Self(findings.cuts.iter().filter_map(of_cut).flatten().collect())
    }

    /// Returns the locks that others held over their accesses to both variables. A thread that makes them in executions
    /// of one region, under the same locks, looks at both in each: of a repeated read, only the first is in the cycle.
    /// It does not if the region was seen to give up the lock.
    pub(super) fn held_over_both(&self, cut: &Cut, exemplar: &Violation) -> Option<Vec<LockId>> {
        let others = &cut.others;
        let throughout = others.throughout.clone()?;
        let in_one_transaction = exemplar.witness.len() == 3;
        let Some(region) = exemplar.region_between().filter(|_| !in_one_transaction) else {
            return Some(throughout);
        };
        if !throughout.is_empty() {
            return Some(throughout);
        }
        let (entered, left) = (others.entered.as_ref()?, others.left.as_ref()?);
        let is_kept = |lock: &LockId| left.contains(lock) && !self.0.contains(&(region, *lock));
        Some(entered.iter().copied().filter(is_kept).collect())
    }
}
