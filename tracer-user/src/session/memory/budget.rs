//! What seeing memory accesses may cost: groups of probes are detached when they have cost more than is allowed, the most
//! costly first, and attached again when there is room. What a hit costs is known from measurements, not measured here.
//!
//! All of it is processors' time: how long a program takes by the clock depends on what else runs there. Spent is what the
//! program has worked for seeing memory, and what avtrace has for what came of that. Allowed is a share of what else the
//! program has worked, for itself and for what `--accesses sync` sees.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// What may be spent before the program has done much, in nanoseconds.
const START_ALLOWANCE_NS: u64 = 10_000_000;

/// What each group may cost where it is only to be learned what it touches, in nanoseconds.
const LEARNING_COST_NS: u64 = 2_000_000;

/// How much of what is allowed may be spent, in percent. What is spent is an estimate, is looked at now and then, and
/// leaves out what threads wait while probes come and go.
const TARGET_PERCENT: u64 = 80;

/// How full the budget may be, in percent, when something is attached again.
const REATTACH_PERCENT: u64 = 70;

/// What costs are to be kept within, and what they have been so far. All times are in nanoseconds.
#[derive(Debug)]
pub(crate) struct Budget {
    /// What may be spent, in percent of the time that the program would take without.
    percent: u64,
    /// Groups are detached for good once it is known what they touch.
    learns: bool,
    /// What each group has cost, when it was looked at last.
    costs: Vec<u64>,
    groups: BTreeMap<u16, Group>,
    started: Instant,
}

/// A group of probes.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// What it cost in the latest tick in which it was attached.
    latest: u64,
    /// Since when it is detached.
    detached: Option<Instant>,
    /// For how long it was detached before.
    unseen: Duration,
}

/// What has been spent besides what groups of probes have cost, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherCosts {
    /// Of the program's time: hits of watchpoints, calls of allocators.
    pub(crate) in_target: u64,
    /// Of avtrace's.
    pub(crate) in_tracer: u64,
}

/// How long avtrace itself works, to tell the records' share of that. The time of those that are of memory cannot be
/// told from that of others; they count alike.
#[derive(Debug, Default)]
pub(crate) struct TracerCost {
    worked: u64,
    records: u64,
}

impl TracerCost {
    /// avtrace has worked for so long since it began, and had so many records.
    pub(crate) fn note(&mut self, worked: u64, records: u64) {
        (self.worked, self.records) = (worked, records);
    }

    /// What so many of the records have taken.
    pub(crate) fn of_records(&self, some: u64) -> u64 {
        let share = u128::from(self.worked) * u128::from(some.min(self.records));
        // Not more than all.
        share.checked_div(self.records.into()).map_or(0, |share| share as u64)
    }
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Groups to detach.
    pub(crate) detach: BTreeSet<u16>,
    /// Groups to attach again.
    pub(crate) attach: BTreeSet<u16>,
    /// Whether more was spent than is allowed.
    pub(crate) is_over: bool,
}

impl Budget {
    /// Of so many percent.
    pub(crate) fn new(percent: u32) -> Self {
        Self {
            percent: percent.into(),
            learns: false,
            costs: Vec::new(),
            groups: BTreeMap::new(),
            started: Instant::now(),
        }
    }

    /// Of so many percent, with groups that are attached only until it is known what they touch.
    pub(crate) fn to_learn(percent: u32) -> Self {
        Self { learns: true, ..Self::new(percent) }
    }

    /// Decides by the time that processors have worked for the program, what of that each group has cost so far, and what
    /// else was spent. To take costs for twice too small is as bad as never to look at them.
    pub(crate) fn change(&mut self, worked: u64, costs: &[u64], others: OtherCosts) -> Change {
        let now = Instant::now();
        self.costs.resize(costs.len(), 0);
        for (number, (&cost, before)) in costs.iter().zip(&mut self.costs).enumerate() {
            let Ok(number) = u16::try_from(number) else { break };
            let latest = cost.saturating_sub(std::mem::replace(before, cost));
            let group = self.groups.entry(number).or_insert(Group {
                latest: 0,
                detached: None,
                unseen: Duration::ZERO,
            });
            if group.detached.is_none() {
                group.latest = latest;
            }
        }
        let in_target = costs.iter().sum::<u64>() + others.in_target;
        let spent = in_target + others.in_tracer;
        let allowed = START_ALLOWANCE_NS
            + worked.saturating_sub(in_target) / 100 * self.percent / 100 * TARGET_PERCENT;
        let mut change = Change { is_over: spent > allowed, ..Change::default() };
        if change.is_over {
            let attached = self.groups.iter().filter(|(_, group)| group.detached.is_none());
            let mut attached: Vec<(u16, u64)> =
                attached.map(|(&number, group)| (number, group.latest)).collect();
            attached.sort_unstable_by_key(|&(_, latest)| std::cmp::Reverse(latest));
            // What cost least may stay.
            let mut rest: u64 = attached.iter().map(|(_, latest)| latest).sum();
            let bearable = rest / 10;
            for (number, latest) in attached {
                if rest <= bearable || latest == 0 {
                    break;
                }
                rest -= latest;
                change.detach.insert(number);
            }
        } else if self.learns {
            let taught = self.groups.iter().filter(|(number, group)| {
                group.detached.is_none() && costs[usize::from(**number)] >= LEARNING_COST_NS
            });
            change.detach.extend(taught.map(|(&number, _)| number));
        } else if spent < allowed / 100 * REATTACH_PERCENT {
            let detached = self.groups.iter().filter(|(_, group)| group.detached.is_some());
            // The cheapest first: others may never fit.
            let cheapest = detached.min_by_key(|(_, group)| group.latest);
            change.attach.extend(cheapest.map(|(&number, _)| number));
        }
        for number in &change.detach {
            self.groups.entry(*number).and_modify(|group| group.detached = Some(now));
        }
        for number in &change.attach {
            self.groups.entry(*number).and_modify(|group| {
                group.unseen += group.detached.take().map_or(Duration::ZERO, |since| now - since);
            });
        }
        change
    }

    /// For what share of the run each group was not attached, in percent, when it was not always.
    pub(crate) fn unseen(&self) -> Vec<(u16, f64)> {
        let whole = self.started.elapsed().as_secs_f64();
        let share = |group: &Group| {
            let now = group.detached.map_or(Duration::ZERO, |since| since.elapsed());
            100.0 * (group.unseen + now).as_secs_f64() / whole
        };
        self.groups
            .iter()
            .map(|(&number, group)| (number, share(group)))
            .filter(|&(_, share)| share > 0.0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOTHING: OtherCosts = OtherCosts { in_target: 0, in_tracer: 0 };

    #[test]
    fn the_most_costly_group_goes_first_and_comes_back_when_there_is_room() {
        let mut budget = Budget::new(100);
        assert_eq!(budget.change(SECOND, &[SECOND / 10, SECOND / 10], NOTHING), Change::default());
        let half = OtherCosts { in_target: SECOND / 2, in_tracer: 0 };
        let change = budget.change(2 * SECOND, &[SECOND, SECOND / 10 + 1], half);
        assert_eq!(change.detach, BTreeSet::from([0]), "1.6 s of 2 s were spent");
        assert_eq!(change.attach, BTreeSet::new());
        let change = budget.change(3 * SECOND, &[SECOND, SECOND / 10 + 1], half);
        assert!(change.is_over && change.detach.is_empty(), "there is nothing more to gain");
        let change = budget.change(10 * SECOND, &[SECOND, SECOND / 10 + 1], half);
        assert_eq!(change.attach, BTreeSet::from([0]));
        assert_eq!(budget.unseen().len(), 1);
    }

    #[test]
    fn what_costs_nothing_stays() {
        let mut budget = Budget::new(10);
        let change = budget.change(SECOND, &[0, SECOND / 2, 0], NOTHING);
        assert_eq!(change.detach, BTreeSet::from([1]));
    }

    #[test]
    fn the_bound_is_of_what_the_program_works_without_what_is_spent() {
        for percent in [20, 100, 300] {
            let spent =
                SECOND / 100 * u64::from(percent) / 100 * TARGET_PERCENT + START_ALLOWANCE_NS;
            let is_over = |spent| Budget::new(percent).change(SECOND + spent, &[spent], NOTHING);
            assert!(!is_over(spent).is_over, "{percent}");
            assert!(is_over(spent + 1000).is_over, "{percent}");
        }
    }

    #[test]
    fn what_avtrace_works_beside_the_program_is_spent() {
        let in_tracer = OtherCosts {
            in_target: 0,
            in_tracer: SECOND / 100 * TARGET_PERCENT + START_ALLOWANCE_NS,
        };
        assert!(!Budget::new(100).change(SECOND, &[0], in_tracer).is_over);
        let in_tracer = OtherCosts {
            in_target: 0,
            in_tracer: SECOND / 100 * TARGET_PERCENT + START_ALLOWANCE_NS + 1,
        };
        assert!(Budget::new(100).change(SECOND, &[0], in_tracer).is_over);
        // Of the program's time it takes nothing away.
        let both = OtherCosts { in_target: SECOND / 2, in_tracer: SECOND / 2 };
        let worked = both.in_target + SECOND * 100 / TARGET_PERCENT;
        assert!(!Budget::new(100).change(worked, &[0], both).is_over);
        assert!(Budget::new(100).change(worked, &[START_ALLOWANCE_NS + 2], both).is_over);
    }

    #[test]
    fn what_costs_more_than_all_time_is_too_much() {
        assert!(Budget::new(300).change(SECOND, &[2 * SECOND], NOTHING).is_over);
    }

    #[test]
    fn records_have_their_share_of_what_avtrace_works() {
        let mut tracer_cost = TracerCost::default();
        assert_eq!(tracer_cost.of_records(7), 0, "there were none");
        tracer_cost.note(10 * SECOND, 40);
        assert_eq!(tracer_cost.of_records(10), 10 * SECOND / 4);
        assert_eq!(tracer_cost.of_records(41), 10 * SECOND, "no more than all");
        tracer_cost.note(u64::MAX, u64::MAX);
        assert_eq!(tracer_cost.of_records(3), 3);
    }
}
