//! Use that a region makes after a gap of the values that it read before, by the program's code.

use super::dependence::{Certainty, Dependence};
use super::pattern::{Accesses, writes};
use crate::event::{LocationId, RegionId};
use crate::finding::{Cut, GapKind, Object, Violation};
use rustc_hash::FxHashMap;

/// Second steps that write, by region, first step and variable; `None` where there are several.
pub(super) struct Writes(FxHashMap<(RegionId, LocationId, Object), Option<LocationId>>);

impl Writes {
    pub(super) fn of(found: &[(Option<&Cut>, usize, &Violation)]) -> Self {
        let mut all = FxHashMap::default();
        for (cut, _, violation) in found {
            let Some((cut, closing)) = cut.zip(violation.edges.last()) else { continue };
            if writes(closing.sink.action) {
                let known = all.entry((cut.region, cut.left, closing.object));
                let known = known.or_insert(Some(cut.returned));
                *known = known.filter(|known| *known == cut.returned);
            }
        }
        Self(all)
    }

    /// Returns a write that follows a second step which reads: in this cut, or after another look in an execution in
    /// which others came in later.
    pub(super) fn after(&self, cut: &Cut, read: Object) -> Option<LocationId> {
        cut.written_at.or_else(|| self.0.get(&(cut.region, cut.left, read)).copied().flatten())
    }
}

/// Use that a region makes, after the gap, of the value that it read before it.
#[derive(Default)]
pub(super) struct Usage {
    /// It acts on the value.
    pub(super) acts: Certainty,
    /// It writes into the same variable a value computed from this one.
    pub(super) computes: bool,
    /// A second read of the variable decides whether the region acts.
    pub(super) checked_again: bool,
    /// A branch on the first value decides whether the region acts.
    pub(super) decides: Certainty,
    /// A second read of the variable is only compared with the first one.
    pub(super) validated: bool,
    /// The second step only reads the variable, and is made whatever the first one has read.
    pub(super) reads_anew: bool,
}

impl Usage {
    pub(super) fn of(
        accesses: &Accesses<'_>,
        written: Option<LocationId>,
        of_one_time: bool,
        kind: GapKind,
        takes_out: bool,
        depends: &mut dyn FnMut(LocationId, LocationId) -> Dependence,
    ) -> Self {
        let (left, returned) = (&accesses.first.source, &accesses.closing.sink);
        let on_one = accesses.on_one;
        if !accesses.are_on_variables() || on_one && writes(left.action) {
            return Self::default();
        }
        let is_read = !writes(returned.action);
        let act = match is_read {
            true => written,
            false => Some(returned.location),
        };
        let second = depends(left.location, returned.location);
        // Another variable is chosen, or looked at, because of the value.
        let reaches = if on_one { Certainty::Unknown } else { second.acts() };
        let mut acts = match act {
            Some(act) if reaches != Certainty::Yes => depends(left.location, act).acts(),
            _ => reaches,
        };
        if !on_one && is_read && act.is_none() {
            // Values that others never change in one step need not be of one time.
            let together = second.compared.max(second.combined);
            let most = if of_one_time { Certainty::Yes } else { Certainty::Unknown };
            acts = acts.max(together.min(most));
        }
        // What an update leaves is complete: a number that was drawn, or an element that was taken, may be used later.
        if writes(left.action) || takes_out {
            acts = acts.min(Certainty::Unknown);
        }
        // An update in one instruction is no second check.
        let second_act = act.filter(|&act| on_one && is_read && act != returned.location);
        let checked_again =
            second_act.is_some_and(|act| depends(returned.location, act).control == Certainty::Yes);
        let is_compared = second.compared == Certainty::Yes && second.combined != Certainty::Yes;
        // A value that is read anew is of the present, unless something is computed from both.
        let is_alone = second.control == Certainty::No
            && second.address == Certainty::No
            && second.combined != Certainty::Yes;
        let is_same = accesses.first.object == accesses.closing.object;
        let computes =
            is_same && act.is_some_and(|act| depends(left.location, act).value == Certainty::Yes);
        let decides = act.map_or(Certainty::Unknown, |act| depends(left.location, act).control);
        Self {
            acts,
            decides,
            computes,
            checked_again,
            reads_anew: on_one && is_read && act.is_none() && is_alone,
            validated: on_one && is_read && is_compared && kind == GapKind::OneActivation,
        }
    }
}
