//! Budget for the capture of memory accesses: groups of probes are detached when they have cost more than is allowed,
//! the most costly first, and attached again when there is room. Those that have cost little in all stay: bugs are more
//! likely in code that is seldom executed (Marino et al., "LiteRace", PLDI 2009). The cost of a hit is known from
//! measurements, not measured here.
//!
//! All costs are processor time: wall-clock time depends on what else runs on the machine. Spent is the time that the
//! program has worked for the capture of memory, and the time of avtrace for the resulting records. Allowed is a
//! share of the program's remaining work, for itself and for the capture of `--accesses sync`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Allowance before the program has done much, in nanoseconds: a short run is seen as a whole. It is spent once, and is
/// of the order of what the analysis of the program takes before it starts.
const START_ALLOWANCE_NS: u64 = 1_000_000_000;

/// Costs in all of the groups that stay attached whatever others cost, the cheapest ones, as a share of the
/// allowed costs, in percent: avtrace's own work for their records comes on top.
const COLD_PERCENT: u64 = 50;

/// Cost at which a group is detached where only the accessed memory is to be learned, in nanoseconds.
const LEARNING_COST_NS: u64 = 2_000_000;

/// Share of the allowance that may be spent, in percent. The spent time is an estimate, is checked periodically, and
/// leaves out the time that threads wait while probes are attached and detached.
const TARGET_PERCENT: u64 = 80;

/// Use of the budget below which a group is attached again, in percent.
const REATTACH_PERCENT: u64 = 70;

/// Bound on costs, and the costs so far. All times are in nanoseconds.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Allowed overhead, in percent of the program's own time.
    percent: u64,
    /// Allowance before the program has done much.
    start_allowance: u64,
    /// Groups are detached for good once it is known what they access.
    learns: bool,
    /// Groups change their state at no cost: those that come back fill the room, and all have their turns.
    rotates: bool,
    /// Cost of each group at the latest check.
    costs: Vec<u64>,
    groups: BTreeMap<u16, Group>,
    started: Instant,
}

/// A group of probes.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Cost in the latest tick in which it was attached.
    latest: u64,
    /// Since when it is detached.
    detached: Option<Instant>,
    /// For how long it was detached before.
    unseen: Duration,
    /// Number of times that it was attached again.
    returns: u64,
}

/// Costs besides those of groups of probes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherCosts {
    /// Costs on the program's time: hits of watchpoints, calls of allocators.
    pub(crate) in_target: u64,
    /// Costs on avtrace's time.
    pub(crate) in_tracer: u64,
}

/// Work of avtrace itself, to attribute a share of it to records of memory. The time for these cannot be separated
/// from that for others: all records weigh alike.
#[derive(Debug, Default)]
pub(crate) struct TracerCost {
    worked: u64,
    records: u64,
}

impl TracerCost {
    /// Records the work and the number of records since avtrace began.
    pub(crate) fn note(&mut self, worked: u64, records: u64) {
        (self.worked, self.records) = (worked, records);
    }

    /// Returns the time that `some` of the records have taken.
    pub(crate) fn of_records(&self, some: u64) -> u64 {
        let share = u128::from(self.worked) * u128::from(some.min(self.records));
        // Not more than all.
        share.checked_div(self.records.into()).map_or(0, |share| share as u64)
    }
}

/// Groups to change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) detach: BTreeSet<u16>,
    pub(crate) attach: BTreeSet<u16>,
    /// Set if more was spent than is allowed.
    pub(crate) is_over: bool,
}

impl Budget {
    /// Creates a budget of `percent` percent.
    pub(crate) fn new(percent: u32) -> Self {
        Self {
            percent: percent.into(),
            start_allowance: START_ALLOWANCE_NS,
            learns: false,
            rotates: false,
            costs: Vec::new(),
            groups: BTreeMap::new(),
            started: Instant::now(),
        }
    }

    /// Creates a budget of `percent` percent with groups that stay attached only until it is known what they access.
    pub(crate) fn to_learn(percent: u32) -> Self {
        Self { learns: true, ..Self::new(percent) }
    }

    /// Creates a budget of `percent` percent with groups that come back in rotation, as it costs nothing to attach and
    /// detach them.
    pub(crate) fn in_rotation(percent: u32) -> Self {
        Self { rotates: true, ..Self::new(percent) }
    }

    /// Decides by the processor time of the program, the part of it that each group has cost so far, and the other
    /// costs. Underestimating costs by half is as bad as never checking them.
    pub(crate) fn change(&mut self, worked: u64, costs: &[u64], others: OtherCosts) -> Change {
        let in_target = costs.iter().sum::<u64>() + others.in_target;
        self.decide(worked, costs, OtherCosts { in_target, ..others })
    }

    /// Decides as [`change`](Self::change) by costs of groups, of which a part may be on avtrace's time, and all costs,
    /// which include the groups.
    pub(crate) fn decide(&mut self, worked: u64, costs: &[u64], all: OtherCosts) -> Change {
        let now = Instant::now();
        self.costs.resize(costs.len(), 0);
        for (number, (&cost, before)) in costs.iter().zip(&mut self.costs).enumerate() {
            let Ok(number) = u16::try_from(number) else { break };
            let latest = cost.saturating_sub(std::mem::replace(before, cost));
            let group = self.groups.entry(number).or_insert(Group {
                latest: 0,
                detached: None,
                unseen: Duration::ZERO,
                returns: 0,
            });
            if group.detached.is_none() {
                group.latest = latest;
            }
        }
        let spent = all.in_target + all.in_tracer;
        let allowed = self.start_allowance
            + worked.saturating_sub(all.in_target) / 100 * self.percent / 100 * TARGET_PERCENT;
        let mut change = Change { is_over: spent > allowed, ..Change::default() };
        if change.is_over {
            let bound = allowed / 100 * COLD_PERCENT;
            let cold = self.cold(bound);
            let attached = self
                .groups
                .iter()
                .filter(|(number, group)| group.detached.is_none() && !cold.contains(number));
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
            let mut cold = self.cold(bound / 100 * REATTACH_PERCENT).into_iter();
            change.attach.extend(cold.find(|number| self.groups[number].detached.is_some()));
        } else if self.learns {
            let taught = self.groups.iter().filter(|(number, group)| {
                group.detached.is_none() && costs[usize::from(**number)] >= LEARNING_COST_NS
            });
            change.detach.extend(taught.map(|(&number, _)| number));
        } else if spent < allowed / 100 * REATTACH_PERCENT {
            change.attach = self.returning(allowed / 100 * REATTACH_PERCENT - spent);
        }
        for number in &change.detach {
            self.groups.entry(*number).and_modify(|group| group.detached = Some(now));
        }
        for number in &change.attach {
            self.groups.entry(*number).and_modify(|group| {
                group.unseen += group.detached.take().map_or(Duration::ZERO, |since| now - since);
                group.returns += 1;
            });
        }
        change
    }

    /// Returns the groups to attach again where there is room.
    fn returning(&self, room: u64) -> BTreeSet<u16> {
        let detached = self.groups.iter().filter(|(_, group)| group.detached.is_some());
        if !self.rotates {
            // The cheapest first: others may never fit.
            let cheapest = detached.min_by_key(|(_, group)| group.latest);
            return cheapest.map(|(&number, _)| number).into_iter().collect();
        }
        let mut detached: Vec<(u64, u64, u16)> =
            detached.map(|(&number, group)| (group.returns, group.latest, number)).collect();
        // Those first that had fewest turns. One fits in any case: what it costs is paid back before the next one.
        detached.sort_unstable();
        let mut sum = 0;
        let fits = |&(at, &(_, latest, _)): &(usize, &(u64, u64, u16))| {
            sum += latest;
            at == 0 || sum <= room
        };
        detached.iter().enumerate().take_while(fits).map(|(_, &(.., number))| number).collect()
    }

    /// Returns the groups that have cost least, together no more than the bound.
    fn cold(&self, bound: u64) -> BTreeSet<u16> {
        let mut groups: Vec<(u64, u16)> =
            self.groups.keys().map(|&number| (self.costs[usize::from(number)], number)).collect();
        groups.sort_unstable();
        let cold = groups.iter().scan(0, |sum, &(cost, number)| {
            *sum += cost;
            (*sum <= bound).then_some(number)
        });
        cold.collect()
    }

    /// Returns the share of the run for which each group was not attached, in percent, for groups that were not
    /// always attached.
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

    /// A budget of 100 percent with this allowance at the start, in milliseconds.
    fn with_allowance(milliseconds: u64) -> Budget {
        Budget { start_allowance: milliseconds * 1_000_000, ..Budget::new(100) }
    }

    #[test]
    fn the_most_costly_group_goes_first_and_comes_back_when_there_is_room() {
        let mut budget = with_allowance(10);
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
    fn what_has_cost_little_in_all_stays_though_others_cost_too_much() {
        const MILLISECOND: u64 = SECOND / 1000;
        let mut budget = with_allowance(80);
        let mut detached = |costs: &[u64]| budget.change(SECOND, costs, NOTHING).detach;
        let costs = |cold: u64| [SECOND, cold, 2 * MILLISECOND];
        assert_eq!(detached(&costs(MILLISECOND)), BTreeSet::from([0]));
        assert_eq!(detached(&costs(38 * MILLISECOND)), BTreeSet::new(), "40 ms with the other one");
        assert_eq!(detached(&costs(38 * MILLISECOND + 1)), BTreeSet::from([1]));
        // Costs of detached groups count on.
        let more = [SECOND, 38 * MILLISECOND + 1, 39 * MILLISECOND];
        assert_eq!(detached(&more), BTreeSet::from([2]));
    }

    #[test]
    fn what_has_cost_little_for_what_is_allowed_comes_back_though_others_cost_too_much() {
        let mut budget = with_allowance(10);
        let mut change = |own: u64, costs: [u64; 2]| {
            let change = budget.change(own + costs.iter().sum::<u64>(), &costs, NOTHING);
            assert!(change.is_over);
            (change.detach, change.attach)
        };
        let of = |groups: &[u16]| groups.iter().copied().collect::<BTreeSet<u16>>();
        // Of seven seconds 5.6 are allowed.
        assert_eq!(change(7 * SECOND, [12 * SECOND, SECOND]), (of(&[0]), of(&[])));
        assert_eq!(change(7 * SECOND, [12 * SECOND, 3 * SECOND]), (of(&[1]), of(&[])));
        assert_eq!(
            change(8 * SECOND, [12 * SECOND, 3 * SECOND]),
            (of(&[]), of(&[])),
            "at the bound"
        );
        assert_eq!(change(16 * SECOND, [12 * SECOND, 3 * SECOND]), (of(&[]), of(&[1])));
    }

    #[test]
    fn in_rotation_each_group_has_its_turn_however_costly_it_is() {
        let mut budget = Budget { rotates: true, ..with_allowance(10) };
        let of = |groups: &[u16]| groups.iter().copied().collect::<BTreeSet<u16>>();
        let mut change = |worked: u64, costs: [u64; 3]| {
            let in_target = costs.iter().sum();
            let all = OtherCosts { in_target, in_tracer: 0 };
            let change = budget.decide(worked + in_target, &costs, all);
            (change.detach, change.attach)
        };
        assert_eq!(change(SECOND, [SECOND, 2 * SECOND, SECOND / 2]), (of(&[0, 1, 2]), of(&[])));
        // Of 10 seconds 5.6 may be used: there is room for 2.1 more.
        let (ten, costs) = (10 * SECOND, [SECOND, 2 * SECOND, SECOND / 2]);
        assert_eq!(change(ten, costs), (of(&[]), of(&[0, 2])), "the cheapest first");
        let costs = [2 * SECOND, 2 * SECOND, SECOND];
        assert_eq!(change(ten, costs), (of(&[]), of(&[1])), "the last one, as there is room");
        let costs = [6 * SECOND, 9 * SECOND, SECOND];
        assert_eq!(change(ten, costs), (of(&[0, 1]), of(&[])));
        assert_eq!(change(30 * SECOND, costs), (of(&[]), of(&[0])), "one alone is too costly");
        assert_eq!(change(30 * SECOND, [18 * SECOND, costs[1], costs[2]]).0, of(&[0]));
        assert_eq!(
            change(60 * SECOND, [18 * SECOND, costs[1], costs[2]]),
            (of(&[]), of(&[1])),
            "it had fewer turns"
        );
    }

    #[test]
    fn costs_of_groups_may_be_on_avtraces_time() {
        let mut budget = with_allowance(10);
        let all = OtherCosts { in_target: SECOND / 10, in_tracer: SECOND };
        let change = budget.decide(SECOND, &[SECOND, SECOND / 10], all);
        assert_eq!(change.detach, BTreeSet::from([0]));
        // Of the program's time only its own part is taken away.
        let worked = SECOND / 10 + all.in_tracer / TARGET_PERCENT * 100 + SECOND / 5;
        assert!(!with_allowance(10).decide(worked, &[SECOND, SECOND / 10], all).is_over);
    }

    #[test]
    fn what_costs_nothing_stays() {
        let mut budget = Budget { percent: 10, ..with_allowance(10) };
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
