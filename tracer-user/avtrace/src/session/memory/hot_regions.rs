//! Regions by default that run so often without taking a lock that their probes cost too much: given up while the
//! program runs, the most costly first, and for good.
//!
//! An execution that takes a lock costs as much by the probes of the lock, and is slow by itself. An execution
//! without a lock may be in the innermost loop of a computation: only these count, whatever made the function a
//! candidate.

use std::collections::{BTreeMap, BTreeSet};

use abi::PlanNumber;

use capture::kernel::{Kernel, PendingDetach};
use events::source::Source;
use plan::plan::Plan;
use report::Limitation;

/// Allowance before the program has done much, in nanoseconds.
const START_ALLOWANCE_NS: u64 = 100_000_000;

/// Bound on the costs of these regions together, in percent of the allowed overhead.
const MAX_PERCENT: u64 = 5;

/// Regions of a program that may be given up.
#[derive(Debug)]
pub(crate) struct HotRegions {
    /// Allowed overhead, in percent of the program's own time.
    percent: u64,
    /// Number of functions of the plan that were looked at.
    functions: usize,
    /// Cost of one execution of each, in nanoseconds, by the function's number.
    costs: BTreeMap<u32, u64>,
    given_up: BTreeSet<u32>,
    /// Groups of probes that are detached.
    detached: BTreeSet<u32>,
    pending: Vec<PendingDetach>,
}

impl HotRegions {
    /// Creates the bound for an overhead of `percent` percent.
    pub(crate) fn new(percent: u32) -> Self {
        Self {
            percent: percent.into(),
            functions: 0,
            costs: BTreeMap::new(),
            given_up: BTreeSet::new(),
            detached: BTreeSet::new(),
            pending: Vec::new(),
        }
    }

    /// Takes in the functions that were planned since the last call.
    pub(crate) fn extend(&mut self, plan: &Plan) {
        if self.functions == plan.functions.len() {
            return;
        }
        self.functions = plan.functions.len();
        self.costs.extend(&plan.detachable);
    }

    /// Gives up what costs too much by now; `worked` is the processor time of the program, in nanoseconds. Returns the
    /// part of it that executions without a lock have cost.
    pub(crate) fn tick(
        &mut self,
        worked: u64,
        kernel: &mut Kernel,
        source: &mut Source,
        number: PlanNumber,
        plan: &Plan,
    ) -> u64 {
        self.extend(plan);
        self.pending.retain(|pending| !pending.is_done());
        let spent: BTreeMap<u32, u64> = self
            .costs
            .iter()
            .map(|(&function, cost)| (function, source.executions_without_lock(function) * cost))
            .collect();
        let all = spent.values().sum();
        let hot = too_costly(&spent, &self.given_up, worked, self.percent);
        if hot.is_empty() {
            return all;
        }
        tracing::debug!(functions = ?hot, worked, "giving up regions that cost too much");
        for &function in &hot {
            source.give_up(function);
        }
        self.given_up.extend(hot);
        let groups: BTreeSet<u32> = (0..)
            .zip(&plan.region_groups)
            .filter(|(group, functions)| {
                !self.detached.contains(group) && functions.is_subset(&self.given_up)
            })
            .map(|(group, _)| group)
            .collect();
        self.pending.push(kernel.detach_regions(number, &groups));
        self.detached.extend(groups);
        all
    }

    /// Returns the limitation for the regions that were given up.
    pub(crate) fn finish(&self, plan: &Plan) -> Option<Limitation> {
        let function = |&number: &u32| Some(plan.functions.get(number as usize)?.name.clone());
        let functions: BTreeSet<String> = self.given_up.iter().filter_map(function).collect();
        let functions: Vec<String> = functions.into_iter().collect();
        (!functions.is_empty()).then_some(Limitation::HotRegions { functions })
    }
}

/// Returns the regions to give up, the most costly first, so that the others cost no more than is allowed. What was
/// spent is no work of the program's own.
fn too_costly(
    spent: &BTreeMap<u32, u64>,
    given_up: &BTreeSet<u32>,
    worked: u64,
    percent: u64,
) -> BTreeSet<u32> {
    let own = worked.saturating_sub(spent.values().sum());
    let allowed = START_ALLOWANCE_NS + own / 100 * percent / 100 * MAX_PERCENT;
    let mut by_cost: Vec<(u64, u32)> = spent
        .iter()
        .filter(|(number, _)| !given_up.contains(number))
        .map(|(&number, &cost)| (cost, number))
        .collect();
    by_cost.sort_unstable_by(|one, other| other.cmp(one));
    let mut rest: u64 = by_cost.iter().map(|(cost, _)| cost).sum();
    let mut hot = BTreeSet::new();
    for (cost, number) in by_cost {
        if rest <= allowed {
            break;
        }
        rest -= cost;
        hot.insert(number);
    }
    hot
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_most_costly_are_given_up() {
        let none = BTreeSet::new();
        let spent = BTreeMap::from([(1, SECOND / 100), (2, SECOND / 2), (3, SECOND / 5)]);
        assert_eq!(too_costly(&spent, &none, 20 * SECOND, 100), none, "0.71 of 20 seconds");
        assert_eq!(too_costly(&spent, &none, 10 * SECOND, 100), BTreeSet::from([2]));
        assert_eq!(too_costly(&spent, &none, SECOND, 100), BTreeSet::from([2, 3]));
        assert_eq!(too_costly(&spent, &none, 10 * SECOND, 10), BTreeSet::from([2, 3]));
        let allowed = BTreeMap::from([(1, START_ALLOWANCE_NS)]);
        assert_eq!(too_costly(&allowed, &none, 0, 100), none);
    }

    #[test]
    fn what_was_given_up_counts_neither_again_nor_as_work() {
        let spent = BTreeMap::from([(1, SECOND), (2, SECOND * 3 / 20)]);
        let given_up = BTreeSet::from([1]);
        assert_eq!(too_costly(&spent, &given_up, 3 * SECOND, 100), BTreeSet::new());
        assert_eq!(too_costly(&spent, &given_up, SECOND + SECOND / 2, 100), BTreeSet::from([2]));
    }
}
