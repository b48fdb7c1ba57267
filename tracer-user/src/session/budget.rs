//! What seeing memory accesses may cost: groups of probes are detached when they have cost more than is allowed, the most
//! costly first, and attached again when there is room. What a hit costs is known from measurements, not measured here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// What may be spent before the program has done much, in nanoseconds.
const START: u64 = 10_000_000;

/// What each group may cost where it is only to be learned what it touches, in nanoseconds.
const LESSON: u64 = 2_000_000;

/// How full the budget may be, in percent, when something is attached again.
const ROOM: u64 = 70;

/// What costs are to be kept within, and what they have been so far. All times are in nanoseconds.
#[derive(Debug)]
pub(super) struct Budget {
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

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Groups to detach.
    pub(super) detach: BTreeSet<u16>,
    /// Groups to attach again.
    pub(super) attach: BTreeSet<u16>,
    /// Whether more was spent than is allowed.
    pub(super) is_over: bool,
}

impl Budget {
    /// Of so many percent.
    pub(super) fn new(percent: u32) -> Self {
        Self {
            percent: percent.into(),
            learns: false,
            costs: Vec::new(),
            groups: BTreeMap::new(),
            started: Instant::now(),
        }
    }

    /// Of so many percent, with groups that are attached only until it is known what they touch.
    pub(super) fn to_learn(percent: u32) -> Self {
        Self { learns: true, ..Self::new(percent) }
    }

    /// Decides by the time that processors have worked for the program, what of that each group has cost so far, and what
    /// else has. To take costs for twice too small is as bad as never to look at them.
    pub(super) fn change(&mut self, worked: u64, costs: &[u64], others: u64) -> Change {
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
        let spent = costs.iter().sum::<u64>() + others;
        let allowed = START + worked / (100 + self.percent) * self.percent;
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
                group.detached.is_none() && costs[usize::from(**number)] >= LESSON
            });
            change.detach.extend(taught.map(|(&number, _)| number));
        } else if spent < allowed / 100 * ROOM {
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
    pub(super) fn unseen(&self) -> Vec<(u16, f64)> {
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

    #[test]
    fn the_most_costly_group_goes_first_and_comes_back_when_there_is_room() {
        let mut budget = Budget::new(100);
        assert_eq!(budget.change(SECOND, &[SECOND / 10, SECOND / 10], 0), Change::default());
        let change = budget.change(2 * SECOND, &[SECOND, SECOND / 10 + 1], SECOND / 2);
        assert_eq!(change.detach, BTreeSet::from([0]), "1.6 s of 2 s were spent");
        assert_eq!(change.attach, BTreeSet::new());
        let change = budget.change(3 * SECOND, &[SECOND, SECOND / 10 + 1], SECOND / 2);
        assert!(change.is_over && change.detach.is_empty(), "there is nothing more to gain");
        let change = budget.change(10 * SECOND, &[SECOND, SECOND / 10 + 1], SECOND / 2);
        assert_eq!(change.attach, BTreeSet::from([0]));
        assert_eq!(budget.unseen().len(), 1);
    }

    #[test]
    fn what_costs_nothing_stays() {
        let mut budget = Budget::new(10);
        let change = budget.change(SECOND, &[0, SECOND / 2, 0], 0);
        assert_eq!(change.detach, BTreeSet::from([1]));
    }
}
