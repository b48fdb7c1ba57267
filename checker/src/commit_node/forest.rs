//! Inter-edges between units (figures 3 and 5 of the paper), found once for all accesses that meet others in one way.

use super::unit::{Access, Held, Kind, Node, Unit};
use crate::event::{EventNumber, ThreadId};
use crate::finding::Property;
use crate::must_order::{Known, precedes};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Part of a thread's execution during which its order with other threads is the same.
pub(super) struct Period {
    pub(super) thread: ThreadId,
    pub(super) known: Arc<Known>,
    /// Last event of a unit in it.
    pub(super) last: EventNumber,
}

/// Accesses to one variable that have inter-edges to the same others.
pub(super) struct Group {
    pub(super) key: Key,
    /// Units with their accesses.
    pub(super) members: Vec<(u32, u32)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    variable: u32,
    pub(super) period: u32,
    pub(super) kind: Kind,
    /// Locks held, in the order of acquisition.
    locks: Box<[Held]>,
    /// Number of these, the outermost first, under which the unit has written the variable before.
    covered: u8,
    is_final: bool,
}

/// Inter-edge between all accesses of two groups. In a view-forest, `only` one access may stand for the first group: a
/// write that a read of its own unit would find.
pub(super) struct Link {
    pub(super) groups: [u32; 2],
    pub(super) only: Option<(u32, u32)>,
}

/// Units, with groups of their accesses.
pub(super) struct Forest<'a> {
    pub(super) units: &'a [Unit],
    pub(super) periods: &'a [Period],
    pub(super) property: Property,
    pub(super) groups: Vec<Group>,
    /// Groups of each variable.
    by_variable: FxHashMap<u32, Vec<u32>>,
    /// Writes that reads of a group find in their own units.
    own_writes: FxHashMap<u32, Vec<(u32, u32)>>,
    /// Group of each access.
    group_of: Vec<Box<[u32]>>,
}

/// Returns the index of the outermost hold of the first list that keeps out the second one's thread.
pub(super) fn outermost(own: &[Held], other: &[Held]) -> Option<usize> {
    own.iter().position(|held| other.iter().any(|other| held.excludes(*other)))
}

impl<'a> Forest<'a> {
    pub(super) fn new(units: &'a [Unit], periods: &'a [Period], property: Property) -> Self {
        let mut forest = Self {
            units,
            periods,
            property,
            groups: Vec::new(),
            by_variable: FxHashMap::default(),
            own_writes: FxHashMap::default(),
            group_of: Vec::with_capacity(units.len()),
        };
        let mut by_key: FxHashMap<Key, u32> = FxHashMap::default();
        for (number, unit) in (0_u32..).zip(units) {
            let own = unit.own_writes();
            let mut groups = Vec::with_capacity(unit.accesses.len());
            for (index, access) in unit.accesses.iter().enumerate() {
                let key = key(unit, access, own[index].0, own[index].1, property);
                let group = *by_key.entry(key).or_insert_with_key(|key| {
                    let new = forest.groups.len() as u32;
                    forest.groups.push(Group { key: key.clone(), members: Vec::new() });
                    forest.by_variable.entry(key.variable).or_default().push(new);
                    new
                });
                forest.groups[group as usize].members.push((number, index as u32));
                groups.push(group);
                if let (Property::View, true, Some(write)) =
                    (property, access.kind.reads(), own[index].0)
                {
                    let writes = forest.own_writes.entry(group).or_default();
                    writes.push((number, write as u32));
                }
            }
            forest.group_of.push(groups.into_boxed_slice());
        }
        forest
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = u32> {
        self.by_variable.keys().copied()
    }

    pub(super) fn group(&self, unit: u32, access: usize) -> u32 {
        self.group_of[unit as usize][access]
    }

    pub(super) fn variable(&self, group: u32) -> u32 {
        self.groups[group as usize].key.variable
    }

    /// Returns whether units of two periods can be concurrent.
    fn are_concurrent(&self, one: u32, other: u32) -> bool {
        let [one, other] = [one, other].map(|period| &self.periods[period as usize]);
        one.thread != other.thread
            && !precedes(&one.known, other.thread, other.last)
            && !precedes(&other.known, one.thread, one.last)
    }

    /// Returns the inter-edges of a variable, each in one direction.
    pub(super) fn links(&self, variable: u32) -> Vec<Link> {
        let groups = self.by_variable.get(&variable).map_or(&[][..], |groups| groups);
        match self.property {
            Property::Conflict => self.conflict_links(groups),
            Property::View => self.view_links(groups),
        }
    }

    fn conflict_links(&self, groups: &[u32]) -> Vec<Link> {
        let mut links = Vec::new();
        for (index, &one) in groups.iter().enumerate() {
            let key = &self.groups[one as usize].key;
            for &other in &groups[index + 1..] {
                let with = &self.groups[other as usize].key;
                if key.kind.conflicts(with.kind) && self.are_concurrent(key.period, with.period) {
                    links.push(Link { groups: [one, other], only: None });
                }
            }
        }
        links
    }

    fn view_links(&self, groups: &[u32]) -> Vec<Link> {
        let key = |group: u32| &self.groups[group as usize].key;
        let mut found = BTreeSet::new();
        let mut add = |one: u32, other: u32| {
            if self.are_concurrent(key(one).period, key(other).period) {
                found.insert([one.min(other), one.max(other)]);
            }
        };
        let mut own = Vec::new();
        for &read in groups.iter().filter(|&&group| key(group).kind.reads()) {
            let Key { covered, ref locks, period, .. } = *key(read);
            let can_find = |&&write: &&u32| {
                let with = key(write);
                with.kind.writes()
                    && self.are_concurrent(period, with.period)
                    && outermost(locks, &with.locks).is_none_or(|hold| hold >= covered.into())
            };
            let writes: Vec<u32> = groups.iter().filter(can_find).copied().collect();
            for (index, &write) in writes.iter().enumerate() {
                add(read, write);
                writes[index + 1..].iter().for_each(|&other| add(write, other));
                for &(unit, access) in self.own_writes.get(&read).into_iter().flatten() {
                    own.push((self.group(unit, access as usize), write, (unit, access)));
                }
            }
        }
        let finals: Vec<u32> =
            groups.iter().copied().filter(|&group| key(group).is_final).collect();
        for (index, &one) in finals.iter().enumerate() {
            finals[index + 1..].iter().for_each(|&other| add(one, other));
        }
        let all = found.iter().map(|&groups| Link { groups, only: None });
        let own = own
            .iter()
            .map(|&(group, write, only)| Link { groups: [group, write], only: Some(only) });
        all.chain(own).collect()
    }

    /// Returns the index of the holds at whose nodes the accesses of a group meet another group; `None` if they meet
    /// at the accesses themselves.
    pub(super) fn hold(&self, group: u32, with: u32) -> Option<usize> {
        let [locks, others] = [group, with].map(|group| &self.groups[group as usize].key.locks);
        outermost(locks, others)
    }

    /// Returns the node of an access at which it meets a group.
    pub(super) fn node(&self, unit: u32, access: u32, with: u32) -> Node {
        let of = &self.units[unit as usize];
        let hold = self.hold(self.group(unit, access as usize), with);
        of.node(&of.accesses[access as usize], hold)
    }

    /// Returns the communication nodes of each unit, each with an access in it and a group that this access meets.
    pub(super) fn communication_nodes(&self) -> Vec<Vec<Meeting>> {
        let mut nodes: Vec<FxHashMap<Node, Meeting>> = Vec::new();
        nodes.resize_with(self.units.len(), FxHashMap::default);
        let mut add = |own: (u32, u32), with: u32| {
            let node = self.node(own.0, own.1, with);
            let meeting = Meeting { node, access: own.1, group: with };
            nodes[own.0 as usize].entry(node).or_insert(meeting);
        };
        for variable in self.variables() {
            // All members of a group have the same node for all groups that they meet at one hold.
            let mut done = BTreeSet::new();
            for Link { groups: [one, other], only } in self.links(variable) {
                match only {
                    Some(only) => add(only, other),
                    None if done.insert((one, self.hold(one, other))) => {
                        self.groups[one as usize].members.iter().for_each(|&own| add(own, other));
                    }
                    None => {}
                }
                if done.insert((other, self.hold(other, one))) {
                    self.groups[other as usize].members.iter().for_each(|&own| add(own, one));
                }
            }
        }
        let sorted = nodes.into_iter().map(|nodes| {
            let mut nodes: Vec<Meeting> = nodes.into_values().collect();
            nodes.sort_unstable_by_key(|meeting| (meeting.node, meeting.access));
            nodes
        });
        sorted.collect()
    }
}

/// Communication node of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    pub(super) node: Node,
    pub(super) access: u32,
    /// Accesses that this one meets.
    pub(super) group: u32,
}

/// Returns the nodes that contain no other one: the commit nodes.
pub(super) fn commit_nodes(nodes: &[Meeting]) -> Vec<Meeting> {
    // Sorted by their ends, the latest begin first: a node without inner nodes has the latest begin so far.
    let mut sorted = nodes.to_vec();
    sorted.sort_unstable_by_key(|meeting| (meeting.node.to, std::cmp::Reverse(meeting.node.from)));
    let mut commit: Vec<Meeting> = Vec::new();
    for meeting in sorted {
        if commit.last().is_none_or(|last| last.node.from < meeting.node.from) {
            commit.push(meeting);
        }
    }
    commit
}

fn key(
    unit: &Unit,
    access: &Access,
    own_write: Option<usize>,
    is_final: bool,
    property: Property,
) -> Key {
    let of_view = property == Property::View;
    let written = own_write.map(|write| unit.accesses[write].at).filter(|_| access.kind.reads());
    let is_covered = |hold: &&u16| {
        written.is_some_and(|written| unit.holds[usize::from(**hold)].1.from <= written)
    };
    let covered = access.holds.iter().take_while(is_covered).count();
    Key {
        variable: access.variable,
        period: unit.period,
        kind: access.kind,
        locks: unit.held(access).collect(),
        covered: if of_view { u8::try_from(covered).unwrap_or(u8::MAX) } else { 0 },
        is_final: of_view && is_final,
    }
}
