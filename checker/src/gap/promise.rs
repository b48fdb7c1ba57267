//! The promise of a gap: an order by how likely it is a bug that shows when a thread is delayed there. One table; the
//! rules are the rules of defects as far as a quiet run has the facts (`docs/semantics.md#gaps-of-regions`).

use super::{Data, Gap, Kind};
use crate::defect::Certainty;

/// Facts that the promise depends on.
pub(super) struct Facts<'a> {
    pub(super) gap: &'a Gap,
    /// Set if somebody has named the region: it is meant to be atomic.
    pub(super) is_named: bool,
    /// Set if the region is the body of a thread, a loop that waits for events, or a function that waits.
    pub(super) is_loop: bool,
    /// Set if the region is in a library.
    pub(super) is_library: bool,
    /// Set if a variable is the word of a lock.
    pub(super) is_lock_word: bool,
    /// Set if accesses to memory were captured.
    pub(super) sees_data: bool,
}

/// Returns the promise, from 0 to 1: the value of the kind with its data, times a factor for each fact against a bug.
pub(super) fn promise(facts: &Facts<'_>) -> f64 {
    let gap = facts.gap;
    let of_kind = match (gap.kind, gap.data) {
        (Kind::Lock, Data::Checked) => 1.0,
        (Kind::Lock, Data::Same) => 0.9,
        (Kind::Lock, Data::Different) => 0.7,
        (Kind::Lock, Data::Unseen) if facts.sees_data => 0.4,
        (Kind::Lock, Data::Unseen) => 0.7,
        (Kind::Section, _) if gap.together && gap.has_data() => 0.65,
        (Kind::Section, _) if gap.together => 0.5,
        (Kind::Section, _) if gap.has_data() => 0.35,
        (Kind::Section, _) => 0.2,
        (Kind::Access, Data::Checked) => 0.6,
        (Kind::Access, Data::Same) => 0.5,
        (Kind::Access, _) => 0.25,
    };
    let against = [
        (facts.is_loop, 0.3),
        (facts.is_library, 0.4),
        (facts.is_lock_word, 0.2),
        // Iterations are no more than neighbours.
        (2 * gap.repeated > gap.crossed, 0.3),
        (2 * gap.waited > gap.crossed, 0.3),
        (!facts.is_named, 0.9),
        (gap.is_by_code, 0.8),
    ];
    let against: f64 =
        against.iter().filter(|(holds, _)| *holds).map(|(_, factor)| factor).product();
    of_kind * against * by_rate(gap.crossed, gap.cut) * by_threads(gap.other_threads)
}

/// Returns the promise of a gap with the answer of the code: whether what comes after it acts on a value that was read
/// before.
pub(super) fn by_dependence(promise: f64, acts: Certainty) -> f64 {
    match acts {
        Certainty::Yes => promise.midpoint(1.0),
        Certainty::Unknown => promise,
        Certainty::No => promise * 0.5,
    }
}

/// Returns the factor for how often the gap was crossed and cut. A gap that is cut in most of its executions is not
/// meant to be atomic; a gap that was crossed often and cut seldom is the rarest to be seen otherwise.
fn by_rate(crossed: u64, cut: u64) -> f64 {
    let crossed = crossed.max(1) as f64;
    let rate = (cut as f64 / crossed).min(1.0);
    let often = 1.0 - 0.1 / crossed.sqrt();
    often * (1.0 - 0.7 * rate)
}

/// Returns the factor for the number of other threads.
fn by_threads(others: usize) -> f64 {
    1.0 - 0.1 / others.max(1) as f64
}
