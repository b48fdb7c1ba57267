//! Locks at the steps of a defect: those held at each, and one that would have kept the others out. Nothing is escaped
//! here.

use super::{
    explain::{lock_in_source, object},
    listing::list,
    model::{Defect, Object, ObjectKind, Violation},
    quantity::count,
};

/// Locks named by a sentence for each step.
const MAX_LOCKS: usize = 4;

/// The locks held at the four steps of a defect: where the region was left, where others came in, where they left off,
/// and where the region went on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'d> {
    pub(super) left: &'d [Object],
    pub(super) entered: &'d [Object],
    pub(super) gave_back: &'d [Object],
    pub(super) returned: &'d [Object],
    /// From where others came in to where they left off.
    throughout: &'d [Object],
}

impl<'d> Held<'d> {
    /// Returns the locks if all of them are known and the steps are accesses to data: a step that is an operation on a
    /// lock says what it does by itself.
    pub(super) fn of(defect: &'d Defect, violation: &Violation) -> Option<Self> {
        let (first, last) = violation.edges.first().zip(violation.edges.last())?;
        let is_data = |object: &Object| object.kind == ObjectKind::Variable;
        if !is_data(&first.object) || !is_data(&last.object) {
            return None;
        }
        let gap = &defect.gap;
        Some(Self {
            left: gap.left_at.held.as_deref()?,
            entered: gap.others.entered.as_deref()?,
            gave_back: gap.others.left.as_deref()?,
            returned: gap.returned_at.held.as_deref()?,
            throughout: gap.others.throughout.as_deref()?,
        })
    }

    const fn all(&self) -> [&'d [Object]; 4] {
        [self.left, self.entered, self.gave_back, self.returned]
    }

    /// Returns whether no lock was held at any of the steps.
    pub(super) fn is_free(&self) -> bool {
        self.all().iter().all(|held| held.is_empty())
    }

    /// Returns a lock that the others held in between, and the region at one of its steps at least: had the region
    /// held it from one step to the other, the others could not have come in. One that is held at most of the steps
    /// comes first; none that the region held all the time anyway.
    pub(super) fn common(&self, defect: &Defect) -> Option<&'d Object> {
        let others = self.entered.iter().chain(self.gave_back);
        let by_region = |lock: &&Object| self.left.contains(lock) || self.returned.contains(lock);
        let kept_nobody_out = |lock: &&Object| defect.gap.held.contains(lock);
        let times = |lock: &&Object| {
            let steps = self.all().iter().filter(|held| held.contains(lock)).count();
            (steps, self.throughout.contains(lock))
        };
        let mut best: Option<&Object> = None;
        for lock in others.filter(by_region).filter(|lock| !kept_nobody_out(lock)) {
            if best.is_none_or(|best| times(&lock) > times(&best)) {
                best = Some(lock);
            }
        }
        best
    }

    /// Returns the locks of the region at either step, and the locks of the others.
    pub(super) fn by_side(&self) -> [Vec<String>; 2] {
        [[self.left, self.returned], [self.entered, self.gave_back]].map(|steps| {
            let mut names = Vec::new();
            for name in steps.into_iter().flatten().map(lock_in_source) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        })
    }
}

/// Says which locks were held at the steps of a defect, by the numbers of the steps: ``mutex `account.lock` held at
/// steps 2, 5 and 7, released in between``. `None` where that is not known, or is not about data.
#[must_use]
pub fn sentence(
    defect: &Defect,
    violation: &Violation,
    number: &dyn Fn(u64) -> Option<usize>,
) -> Option<String> {
    let held = Held::of(defect, violation)?;
    let (first, last) = violation.edges.first().zip(violation.edges.last())?;
    let events = [first.source_event, first.sink_event, last.source_event, last.sink_event];
    let mut steps: Vec<(usize, &[Object])> = Vec::new();
    for (event, held) in events.into_iter().zip(held.all()) {
        let step = number(event)?;
        if !steps.iter().any(|(known, _)| *known == step) {
            steps.push((step, held));
        }
    }
    let at = |steps: &[usize]| {
        let numbers: Vec<String> = steps.iter().map(ToString::to_string).collect();
        match numbers.as_slice() {
            [one] => format!("at step {one}"),
            [head @ .., last] => format!("at steps {} and {last}", head.join(", ")),
            [] => String::new(),
        }
    };
    let of = |is_it: &dyn Fn(&[Object]) -> bool| -> Vec<usize> {
        steps.iter().filter(|(_, held)| is_it(held)).map(|(step, _)| *step).collect()
    };
    if held.is_free() {
        return Some(format!("none was held {}", at(&of(&|_| true))));
    }
    let mut locks: Vec<&Object> = Vec::new();
    for lock in steps.iter().flat_map(|(_, held)| *held) {
        if !locks.contains(&lock) {
            locks.push(lock);
        }
    }
    let mut parts = Vec::new();
    for lock in locks.iter().take(MAX_LOCKS) {
        let has_namesake = locks.iter().any(|other| other != lock && other.name == lock.name);
        let name = match lock.address.filter(|_| has_namesake && lock.name.is_some()) {
            Some(address) => format!("{} at {address:#x}", object(lock)),
            None => lock_in_source(lock),
        };
        let mut part = format!("{name} held {}", at(&of(&|held| held.contains(lock))));
        let ends = [held.left, held.returned];
        if defect.gap.held.contains(lock) {
            part.push_str(", by the region all the time");
        } else if ends.iter().all(|held| held.contains(lock)) {
            part.push_str(", released in between");
        }
        parts.push(part);
    }
    if let Some(more) = locks.len().checked_sub(MAX_LOCKS).filter(|&more| more > 0) {
        parts.push(count(more as u64, "more lock"));
    }
    let without = of(&|held| held.is_empty());
    if !without.is_empty() {
        parts.push(format!("none {}", at(&without)));
    }
    Some(parts.join("; "))
}

/// Says that the region and the others have no lock in common, and which ones they hold: the end of a sentence.
pub(super) fn without_common(held: &Held<'_>, region: &str, others: &str) -> String {
    let side = |locks: &[String], who: &str| match locks {
        [] => format!("{who} holds none"),
        _ => format!("{who} holds {}", list(locks)),
    };
    let [own, foreign] = held.by_side();
    format!(
        "no lock is common to both sides ({}, {})",
        side(&own, &format!("`{region}`")),
        side(&foreign, others)
    )
}
