//! The pattern of a violation, from the accesses at its gap and in between.

use super::describe::SubjectInfo;
use super::fact::Pattern;
use crate::finding::{Action, Cut, Edge, Evidence, Object, Order, Violation};

/// Returns whether an event of that kind reads a variable.
pub(super) const fn reads(action: Action) -> bool {
    matches!(action, Action::Read | Action::Update | Action::CommutingUpdate)
}

/// Returns whether an event of that kind writes a variable.
pub(super) const fn writes(action: Action) -> bool {
    matches!(action, Action::Write | Action::Update | Action::CommutingUpdate | Action::Free)
}

/// Accesses of a violation on which its pattern depends.
#[derive(Clone, Copy)]
pub(super) struct Accesses<'a> {
    pub(super) first: &'a Edge,
    pub(super) closing: &'a Edge,
    evidence: Evidence,
    /// A single thread came in between: in one transaction, or in executions of one region or one critical section.
    pub(super) by_one: bool,
    /// Both dependencies are on one variable: one object, or parts of one object of a library.
    pub(super) on_one: bool,
    /// The closing dependency is on the set of a condition variable's waiters.
    on_waiters: bool,
}

impl<'a> Accesses<'a> {
    /// Returns the accesses of a violation with a witness, and with the cut that it belongs to. `subject` describes
    /// objects.
    pub(super) fn of(
        violation: &'a Violation,
        cut: Option<&Cut>,
        mut subject: impl FnMut(Object) -> SubjectInfo,
    ) -> Option<Self> {
        let (first, closing) = (violation.edges.first()?, violation.edges.last()?);
        let transactions = violation.witness.len().saturating_sub(1);
        let throughout = cut.and_then(|cut| cut.others.throughout.as_ref());
        let by_one = transactions == 2
            || violation.region_between().is_some()
            || throughout.is_some_and(|locks| !locks.is_empty());
        let on_one = first.object == closing.object || {
            let [one, other] =
                [first.object, closing.object].map(|object| subject(object).container);
            one.is_some() && one == other
        };
        let on_waiters = subject(closing.object).is_set_of_waiters;
        Some(Self { first, closing, evidence: violation.evidence, by_one, on_one, on_waiters })
    }

    pub(super) fn pattern(&self) -> Pattern {
        if self.evidence == Evidence::Sync || !self.are_on_variables() {
            return Pattern::SplitSection;
        }
        if self.closing.source.action == Action::Free {
            return Pattern::UseAfterFree;
        }
        // A notification that comes too late wakes a thread in vain, and no more.
        if self.on_waiters {
            return match (self.on_one, self.closing.sink.action) {
                (false, Action::CommutingUpdate) => Pattern::LostWakeUp,
                _ => Pattern::SplitSection,
            };
        }
        if !self.on_one {
            return if self.by_one { Pattern::Torn } else { Pattern::Chain };
        }
        let (left, returned) = (self.first.source.action, self.closing.sink.action);
        // A library reads other parts of its object before it writes this one.
        let returned = match returned {
            Action::Write if self.first.object != self.closing.object => Action::Update,
            other => other,
        };
        // The end of the memory overwrites nothing that anybody misses.
        match (writes(left), matches!(returned, Action::Write)) {
            (false, true) => Pattern::LostUpdate,
            (false, false) => Pattern::StaleRead,
            (true, _) if !self.remote_writes().any(|_| true) => Pattern::IntermediateState,
            // An atomic update uses the value that it found, which a plain write overwrites later.
            (true, true) if reads(left) => Pattern::LostUpdate,
            (true, _) => Pattern::Overwritten,
        }
    }

    /// Returns whether others left the region by freeing memory alone, which the region did not access again.
    pub(super) fn is_freed_unused(&self) -> bool {
        self.first.sink.action == Action::Free && self.pattern() != Pattern::UseAfterFree
    }

    /// Returns whether the second step frees the memory, and does so first.
    pub(super) fn frees(&self) -> bool {
        self.closing.sink.action == Action::Free && self.pattern() != Pattern::UseAfterFree
    }

    /// Returns the events of other threads at which the variables of both ends were written; without a number, if they
    /// were deferred.
    pub(super) fn remote_writes(&self) -> impl Iterator<Item = Option<u64>> + use<> {
        let (entered, left) = (self.first.sink, self.closing.source);
        let number = if entered == left { 1 } else { 2 };
        let written = [entered, left].into_iter().take(number).filter(|it| writes(it.action));
        written.map(|point| point.own_event())
    }

    /// Returns whether both steps are on one variable, or on two.
    pub(super) fn are_on_variables(&self) -> bool {
        let on_variable = |edge: &Edge| matches!(edge.object, Object::Variable(_));
        on_variable(self.first) && on_variable(self.closing)
    }

    /// Returns whether another thread came in between with an update of the value that it found.
    pub(super) fn is_remote_update(&self) -> bool {
        let (entered, left) = (self.first.sink.action, self.closing.source.action);
        self.by_one && writes(left) && (reads(left) || entered == Action::Read)
    }

    /// Returns whether the region updates the variable in one step at the second end: it overwrites no value that it
    /// did not see.
    pub(super) fn is_updated_atomically(&self) -> bool {
        let (left, returned) = (self.first.source.action, self.closing.sink.action);
        let on_one_object = self.first.object == self.closing.object;
        on_one_object && reads(left) && reads(returned) && writes(returned)
    }
}

/// Returns whether every dependency of a violation passes on a value that was written into the variable without
/// regard to the one before, and whose order is certain: the region's own value came back to it.
pub(super) fn flows(violation: &Violation) -> bool {
    violation.edges.iter().all(|edge| {
        matches!(edge.object, Object::Variable(_))
            && edge.order == Order::Synchronised
            && (edge.source.action, edge.sink.action) == (Action::Write, Action::Read)
    })
}
