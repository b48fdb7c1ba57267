//! Regions that take no lock and run so often that their probes cost too much: given up while the program runs, the
//! most costly first, and for good.

use std::collections::{BTreeMap, BTreeSet};

use abi::PlanNumber;

use crate::{
    kernel::{Kernel, PendingDetach},
    live::source::Source,
    probes::plan::Plan,
    report::Limitation,
};

/// Allowance before the program has done much, in nanoseconds.
const START_ALLOWANCE_NS: u64 = 5_000_000;

/// Share of the program's work that these regions may cost together, in percent.
const MAX_PERCENT: u64 = 5;

/// Regions of a program that may be given up.
#[derive(Debug, Default)]
pub(crate) struct HotRegions {
    /// Number of functions of the plan that were looked at.
    functions: usize,
    /// Cost of one execution of each, in nanoseconds, by the function's number.
    costs: BTreeMap<u32, u64>,
    given_up: Vec<u32>,
    pending: Vec<PendingDetach>,
}

impl HotRegions {
    /// Takes in the functions that were planned since the last call.
    pub(crate) fn extend(&mut self, plan: &Plan) {
        if plan.detachable.is_empty() || self.functions == plan.functions.len() {
            return;
        }
        self.functions = plan.functions.len();
        let costs = plan.detachable.iter().map(|(&number, &cost)| (number, cost));
        self.costs.extend(costs.filter(|(number, _)| !self.given_up.contains(number)));
    }

    /// Gives up what costs too much by now; `worked` is the processor time of the program, in nanoseconds.
    pub(crate) fn tick(
        &mut self,
        worked: u64,
        kernel: &mut Kernel,
        source: &mut Source,
        plan: PlanNumber,
    ) {
        if self.costs.is_empty() {
            return;
        }
        self.pending.retain(|pending| !pending.is_done());
        let spent: BTreeMap<u32, u64> = self
            .costs
            .iter()
            .map(|(&number, cost)| (number, source.executions_of(number) * cost))
            .collect();
        let hot = too_costly(&spent, worked);
        if hot.is_empty() {
            return;
        }
        for &number in &hot {
            self.costs.remove(&number);
            self.given_up.push(number);
            source.give_up(number);
        }
        self.pending.push(kernel.detach_regions(plan, &hot));
    }

    /// Returns the limitation for the regions that were given up.
    pub(crate) fn finish(&self, plan: &Plan) -> Option<Limitation> {
        let function = |&number: &u32| Some(plan.functions.get(number as usize)?.name.clone());
        let functions: BTreeSet<String> = self.given_up.iter().filter_map(function).collect();
        let functions: Vec<String> = functions.into_iter().collect();
        (!functions.is_empty()).then_some(Limitation::HotRegions { functions })
    }
}

/// The regions to give up, the most costly first, so that the others cost no more than is allowed.
fn too_costly(spent: &BTreeMap<u32, u64>, worked: u64) -> BTreeSet<u32> {
    let mut rest: u64 = spent.values().sum();
    let allowed = START_ALLOWANCE_NS + worked.saturating_sub(rest) / 100 * MAX_PERCENT;
    let mut by_cost: Vec<(u64, u32)> =
        spent.iter().map(|(&number, &cost)| (cost, number)).collect();
    by_cost.sort_unstable_by(|one, other| other.cmp(one));
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

    #[test]
    fn the_most_costly_are_given_up() {
        let second = 1_000_000_000;
        let spent = BTreeMap::from([(1, second / 100), (2, second / 2), (3, second / 5)]);
        assert_eq!(too_costly(&spent, 20 * second), BTreeSet::new(), "0.71 of 20 seconds");
        assert_eq!(too_costly(&spent, 10 * second), BTreeSet::from([2]));
        assert_eq!(too_costly(&spent, second), BTreeSet::from([2, 3]));
        assert_eq!(too_costly(&BTreeMap::from([(1, START_ALLOWANCE_NS)]), 0), BTreeSet::new());
    }
}
