//! Verdicts by the theorems of section 4, and patterns where they do not hold.

use super::forest::{Forest, Link, Meeting, Period, commit_nodes};
use super::unit::{Node, Unit};
use crate::event::{LocationId, RegionId, ThreadId, VarId};
use crate::finding::{Atomicity, Point, Property, Theorem, Tx, Unserializable};
use rustc_hash::{FxHashMap, FxHashSet};

/// Limit of other transactions that one is compared with.
const MAX_PARTNERS: usize = 32;

/// Limit of comparisons of two transactions.
const MAX_PAIRS: u64 = 1 << 16;

/// Limit of steps in searches for cycles.
const MAX_STEPS: u64 = 1 << 26;

/// Region, and locations of the first and of the last commit node's accesses.
type Static = (RegionId, LocationId, LocationId);

/// Inter-edges of a group: the other group, and the one access of this group if it is not of all.
type Partners = FxHashMap<u32, Vec<(u32, Option<(u32, u32)>)>>;

struct Check<'a> {
    forest: Forest<'a>,
    nodes: Vec<Vec<Meeting>>,
    variables: &'a [VarId],
    links: FxHashMap<u32, Partners>,
    later: Later,
    pairs: u64,
    steps: u64,
}

/// Units of each thread, by their last event.
#[derive(Default)]
struct Later(FxHashMap<ThreadId, Vec<u32>>);

/// Checks a property; `variables` has the ids of variables in traces.
pub(super) fn check(
    units: &[Unit],
    periods: &[Period],
    property: Property,
    variables: &[VarId],
    limit: usize,
) -> Atomicity {
    let forest = Forest::new(units, periods, property);
    let nodes = forest.communication_nodes();
    let suspects: Vec<(u32, Vec<Meeting>)> = (0_u32..)
        .zip(&nodes)
        .filter(|(unit, _)| units[*unit as usize].is_transaction)
        .map(|(unit, nodes)| (unit, commit_nodes(nodes)))
        .filter(|(_, commit)| commit.len() > 1)
        .collect();
    let mut outcome = Atomicity { property, units: units.len() as u64, ..Atomicity::default() };
    if suspects.is_empty() {
        (outcome.atomic, outcome.theorem) = (Some(true), Some(Theorem::OneCommitNode));
        return outcome;
    }
    let later = Later::new(units);
    let links = FxHashMap::default();
    let mut check = Check { forest, nodes, variables, links, later, pairs: 0, steps: 0 };
    let mut known: FxHashMap<Static, usize> = FxHashMap::default();
    let mut is_excluded = true;
    for (unit, commit) in suspects {
        let of = &units[unit as usize];
        outcome.suspects += of.copies;
        let key = check.key(unit, &commit);
        if let Some(&pattern) = known.get(&key) {
            is_excluded = false;
            outcome.patterns[pattern].occurrences += of.copies;
            continue;
        }
        let found = match check.pair(unit, &commit) {
            Some(found) => found,
            None if check.is_on_cycle(unit) => check.pattern(unit, &commit),
            None => continue,
        };
        is_excluded = false;
        if outcome.patterns.len() < limit {
            known.insert(key, outcome.patterns.len());
            outcome.patterns.push(found);
        }
    }
    if is_excluded {
        (outcome.atomic, outcome.theorem) = (Some(true), Some(Theorem::NoCycle));
    } else if outcome.patterns.iter().any(|pattern| pattern.is_certain)
        // Further writes may hide the order of the writes of two transactions.
        && (property == Property::Conflict || units.len() == 2)
    {
        (outcome.atomic, outcome.theorem) = (Some(false), Some(Theorem::TwoTransactions));
    }
    outcome.patterns.sort_by_key(|pattern| !pattern.is_certain);
    outcome
}

impl Check<'_> {
    fn unit(&self, unit: u32) -> &Unit {
        &self.forest.units[unit as usize]
    }

    fn key(&self, unit: u32, commit: &[Meeting]) -> Static {
        let of = self.unit(unit);
        let location = |meeting: &Meeting| {
            let access = &of.accesses[meeting.access as usize];
            access.stamp.point().location
        };
        let region = of.accesses[0].stamp.tx().region.unwrap_or(RegionId(u32::MAX));
        let [first, last] = [commit.first(), commit.last()].map(|meeting| meeting.map(location));
        (region, first.unwrap_or(LocationId(0)), last.unwrap_or(LocationId(0)))
    }

    fn pattern(&self, unit: u32, commit: &[Meeting]) -> Unserializable {
        let ends = [commit[0], commit[commit.len() - 1]];
        let remotes = ends.map(|meeting| {
            let (other, access) = self.forest.groups[meeting.group as usize].members[0];
            self.unit(other).accesses[access as usize].stamp
        });
        self.found(
            unit,
            ends.map(|meeting| meeting.access),
            remotes.map(|stamp| (stamp.point(), stamp.tx())),
            false,
        )
    }

    fn found(
        &self,
        unit: u32,
        accesses: [u32; 2],
        remotes: [(Point, Tx); 2],
        is_certain: bool,
    ) -> Unserializable {
        let of = self.unit(unit);
        let accesses = accesses.map(|access| &of.accesses[access as usize]);
        let tx = accesses[0].stamp.tx();
        Unserializable {
            region: tx.region.unwrap_or(RegionId(u32::MAX)),
            transaction: tx,
            accesses: accesses.map(|access| access.stamp.point()),
            variables: accesses.map(|access| self.variables[access.variable as usize]),
            others: remotes.map(|(_, tx)| tx),
            remotes: remotes.map(|(point, _)| point),
            is_certain,
            occurrences: of.copies,
        }
    }

    /// Returns the inter-edges of a variable.
    fn partners(&mut self, variable: u32) -> &Partners {
        let Self { links, forest, .. } = self;
        links.entry(variable).or_insert_with(|| {
            let mut partners = Partners::default();
            for Link { groups: [one, other], only } in forest.links(variable) {
                partners.entry(one).or_default().push((other, only));
                if one != other || only.is_some() {
                    partners.entry(other).or_default().push((one, None));
                }
            }
            partners
        })
    }

    /// Compares a transaction with others, one by one (Theorems 4.2 and 4.5).
    fn pair(&mut self, unit: u32, commit: &[Meeting]) -> Option<Unserializable> {
        let mut partners = Vec::new();
        // Those that meet the commit nodes come first: they are the likeliest.
        let groups: Vec<u32> = commit.iter().map(|meeting| meeting.group).collect();
        let all = self.nodes[unit as usize].iter().map(|meeting| meeting.group);
        for group in groups.into_iter().chain(all) {
            for &(other, _) in &self.forest.groups[group as usize].members {
                if partners.len() < MAX_PARTNERS && !partners.contains(&other) {
                    partners.push(other);
                }
            }
        }
        for other in partners {
            self.pairs += 1;
            if self.pairs > MAX_PAIRS {
                return None;
            }
            if let Some(found) = self.compare(unit, other) {
                return Some(found);
            }
        }
        None
    }

    fn compare(&self, unit: u32, other: u32) -> Option<Unserializable> {
        let pair = [self.unit(unit).clone(), self.unit(other).clone()];
        let forest = Forest::new(&pair, self.forest.periods, self.forest.property);
        let nodes = forest.communication_nodes();
        let commit = commit_nodes(&nodes[0]);
        if commit.len() < 2 {
            return None;
        }
        let ends = [commit[0], commit[commit.len() - 1]];
        let remotes = ends.map(|meeting| {
            let members = &forest.groups[meeting.group as usize].members;
            let remote = members.iter().find(|(unit, _)| *unit == 1);
            let stamp = pair[1].accesses[remote.map_or(0, |(_, access)| *access as usize)].stamp;
            (stamp.point(), stamp.tx())
        });
        Some(self.found(unit, ends.map(|meeting| meeting.access), remotes, true))
    }

    /// Returns whether a cycle leads through two nodes of the transaction that do not contain each other (Theorems 4.3
    /// and 4.6), or may, where the search is too long.
    fn is_on_cycle(&mut self, unit: u32) -> bool {
        let nodes: Vec<Node> =
            self.nodes[unit as usize].iter().map(|meeting| meeting.node).collect();
        nodes.into_iter().any(|start| {
            let reached = self.reached(unit, start);
            reached.is_none_or(|reached| {
                reached.iter().any(|&end| !start.contains(end) && !end.contains(start))
            })
        })
    }

    /// Returns the nodes of a transaction at which paths of the forest come back that left it at a node.
    fn reached(&mut self, unit: u32, start: Node) -> Option<FxHashSet<Node>> {
        let mut reached = FxHashSet::default();
        let mut pending: Vec<u32> = Vec::new();
        let mut visited: FxHashSet<u32> = FxHashSet::default();
        let mut visit_from: FxHashMap<ThreadId, usize> = FxHashMap::default();
        self.leave(unit, Some((unit, start)), &mut |_, other| {
            if visited.insert(other) {
                pending.push(other);
            }
        })?;
        while let Some(next) = pending.pop() {
            let mut returns = Vec::new();
            self.leave(next, None, &mut |(own, with), other| {
                if other == unit {
                    returns.push((own, with));
                } else if visited.insert(other) {
                    pending.push(other);
                }
            })?;
            for ((_, access), with) in returns {
                let group = self.forest.group(next, access as usize);
                reached.insert(self.forest.node(unit, with, group));
            }
            // Units that come later in any interleaving; also another copy of the transaction.
            let Self { forest, later, .. } = self;
            later.visit(forest, next, &mut visit_from, |other| {
                if visited.insert(other) {
                    pending.push(other);
                }
            });
        }
        Some(reached)
    }

    /// Follows the inter-edges of a unit: of all its nodes, or of one. Passes on the own access and the other one, with
    /// its unit.
    fn leave(
        &mut self,
        unit: u32,
        at: Option<(u32, Node)>,
        visit: &mut dyn FnMut(((u32, u32), u32), u32),
    ) -> Option<()> {
        for access in 0..self.unit(unit).accesses.len() {
            let group = self.forest.group(unit, access);
            let own = (unit, access as u32);
            let variable = self.forest.variable(group);
            let partners = self.partners(variable).get(&group).cloned().unwrap_or_default();
            for (other, only) in partners {
                let is_other = only.is_some_and(|only| only != own);
                let is_elsewhere =
                    at.is_some_and(|(_, node)| self.forest.node(unit, own.1, other) != node);
                if is_other || is_elsewhere {
                    continue;
                }
                let members = &self.forest.groups[other as usize].members;
                self.steps += members.len() as u64;
                if self.steps > MAX_STEPS {
                    return None;
                }
                members.iter().for_each(|&(member, with)| visit((own, with), member));
            }
        }
        Some(())
    }
}

impl Later {
    fn new(units: &[Unit]) -> Self {
        let mut of_threads: FxHashMap<ThreadId, Vec<u32>> = FxHashMap::default();
        for (number, unit) in (0..).zip(units) {
            of_threads.entry(unit.thread).or_default().push(number);
        }
        of_threads
            .values_mut()
            .for_each(|own| own.sort_unstable_by_key(|&unit| units[unit as usize].last));
        Self(of_threads)
    }

    /// Passes on the units that come after a unit in all interleavings, but for those from `visited` on.
    fn visit(
        &self,
        forest: &Forest<'_>,
        unit: u32,
        visited: &mut FxHashMap<ThreadId, usize>,
        mut visit: impl FnMut(u32),
    ) {
        let Unit { thread, first, .. } = forest.units[unit as usize];
        for (&other, of_thread) in &self.0 {
            let is_before = |&later: &u32| {
                let unit = &forest.units[later as usize];
                if other == thread {
                    return unit.last <= first;
                }
                let known = &forest.periods[unit.period as usize].known;
                known.get(&thread).is_none_or(|&known| known <= first)
            };
            let from = of_thread.partition_point(is_before);
            let until = visited.entry(other).or_insert(of_thread.len());
            if from < *until {
                of_thread[from..*until].iter().for_each(|&later| visit(later));
                *until = from;
            }
        }
    }
}
