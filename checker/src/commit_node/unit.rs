//! Units of a trace: transactions, and single events outside of all regions. Each stores its accesses, and the
//! intervals in which it held a lock: the nodes of its access tree.

use crate::event::{EventNumber, ThreadId};
use crate::hb::EventStamp;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Accesses to a variable with one parent that are stored, of each kind (section 7.2).
const TRIMMED: u8 = 2;

/// Limit of accesses that are stored, in all units.
const MAX_ACCESSES: usize = 1 << 24;

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Read,
    Write,
    Update,
    Commuting,
}

impl Kind {
    pub(super) const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }

    pub(super) const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// Returns whether accesses of these kinds to one variable conflict.
    pub(super) const fn conflicts(self, other: Self) -> bool {
        !matches!((self, other), (Self::Read, Self::Read) | (Self::Commuting, Self::Commuting))
    }
}

/// Lock, in one life of its memory, and the mode in which it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) lock: u32,
    pub(super) is_shared: bool,
}

impl Held {
    /// Returns whether two threads cannot hold a lock in these modes at a time.
    pub(super) fn excludes(self, other: Self) -> bool {
        self.lock == other.lock && !(self.is_shared && other.is_shared)
    }
}

/// Interval of a unit's positions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Node {
    pub(super) from: u32,
    pub(super) to: u32,
}

impl Node {
    /// Returns whether the other node is within this one, or is the same.
    pub(super) const fn contains(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

/// Access of a unit: a leaf of its tree.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) variable: u32,
    pub(super) kind: Kind,
    pub(super) at: u32,
    /// Holds around it, in the order of acquisition: the synchronisation nodes that contain it.
    pub(super) holds: Arc<[u16]>,
    pub(super) stamp: EventStamp,
}

#[derive(Clone)]
pub(super) struct Unit {
    pub(super) thread: ThreadId,
    pub(super) period: u32,
    /// Set if it is a transaction, or a part of one.
    pub(super) is_transaction: bool,
    pub(super) holds: Vec<(Held, Node)>,
    pub(super) accesses: Vec<Access>,
    /// First event of the first copy, and of the last one.
    pub(super) first: EventNumber,
    pub(super) last: EventNumber,
    pub(super) copies: u64,
}

impl Unit {
    /// Returns the locks held at an access, in the order of acquisition.
    pub(super) fn held(&self, access: &Access) -> impl Iterator<Item = Held> {
        access.holds.iter().map(|&hold| self.holds[usize::from(hold)].0)
    }

    /// Returns the node of an access at which it meets others: the hold of that index, or the access itself.
    pub(super) fn node(&self, access: &Access, hold: Option<usize>) -> Node {
        match hold.and_then(|hold| access.holds.get(hold)) {
            Some(&hold) => self.holds[usize::from(hold)].1,
            None => Node { from: access.at, to: access.at },
        }
    }

    /// Returns for each access the write before it that it would read from if no other unit came in between, and
    /// whether it is the last write of the unit to its variable.
    pub(super) fn own_writes(&self) -> Vec<(Option<usize>, bool)> {
        let mut last: FxHashMap<u32, usize> = FxHashMap::default();
        let mut found: Vec<(Option<usize>, bool)> = Vec::with_capacity(self.accesses.len());
        for (index, access) in self.accesses.iter().enumerate() {
            found.push((last.get(&access.variable).copied(), false));
            if access.kind.writes() {
                last.insert(access.variable, index);
            }
        }
        last.values().for_each(|&index| found[index].1 = true);
        found
    }
}

/// A unit that goes on.
pub(super) struct Building {
    unit: Unit,
    position: u32,
    /// Holds that go on, in the order of acquisition.
    active: Vec<u16>,
    active_shared: Option<Arc<[u16]>>,
    /// Accesses with one parent, by variable and kind.
    counts: FxHashMap<(u32, Kind, Arc<[u16]>), u8>,
}

impl Building {
    /// Starts a unit of a thread that holds these locks.
    pub(super) fn new(
        thread: ThreadId,
        period: u32,
        first: EventNumber,
        held: &[Held],
        is_transaction: bool,
    ) -> Self {
        let unit = Unit {
            thread,
            period,
            is_transaction,
            holds: Vec::new(),
            accesses: Vec::new(),
            first,
            last: first,
            copies: 1,
        };
        let counts = FxHashMap::default();
        let mut building =
            Self { unit, position: 0, active: Vec::new(), active_shared: None, counts };
        held.iter().for_each(|&held| building.acquire(held));
        building
    }

    pub(super) fn acquire(&mut self, held: Held) {
        let Ok(index) = u16::try_from(self.unit.holds.len()) else { return };
        let from = self.advance();
        self.unit.holds.push((held, Node { from, to: u32::MAX }));
        self.active.push(index);
        self.active_shared = None;
    }

    pub(super) fn release(&mut self, held: Held) {
        let is_it = |&hold: &u16| self.unit.holds[usize::from(hold)].0 == held;
        if let Some(index) = self.active.iter().rposition(is_it) {
            let hold = self.active.remove(index);
            self.unit.holds[usize::from(hold)].1.to = self.advance();
            self.active_shared = None;
        }
    }

    pub(super) fn access(&mut self, variable: u32, kind: Kind, stamp: EventStamp, trims: bool) {
        let active = &self.active;
        let holds = self.active_shared.get_or_insert_with(|| Arc::from(&active[..])).clone();
        if trims {
            let count = self.counts.entry((variable, kind, holds.clone())).or_default();
            if *count == TRIMMED {
                return;
            }
            *count += 1;
        }
        let at = self.advance();
        self.unit.accesses.push(Access { variable, kind, at, holds, stamp });
    }

    fn advance(&mut self) -> u32 {
        self.position += 1;
        self.position - 1
    }

    /// Ends the unit; returns it if it has accesses.
    pub(super) fn end(mut self) -> Option<Unit> {
        for hold in self.active {
            self.unit.holds[usize::from(hold)].1.to = self.position;
            self.position += 1;
        }
        (!self.unit.accesses.is_empty()).then_some(self.unit)
    }
}

/// All different units of a trace, with the number of copies of each.
#[derive(Default)]
pub(super) struct Units {
    pub(super) all: Vec<Unit>,
    by_shape: FxHashMap<Box<[u32]>, u32>,
    key: Vec<u32>,
    /// Units beyond the limit.
    pub(super) left_out: u64,
    accesses: usize,
}

impl Units {
    /// Adds a unit, or counts it if there is the same one of its thread in the same period.
    pub(super) fn add(&mut self, unit: Unit) {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        shape(&unit, &mut key);
        if let Some(&known) = self.by_shape.get(&key[..]) {
            let known = &mut self.all[known as usize];
            known.last = unit.first;
            known.copies += 1;
        } else if self.accesses + unit.accesses.len() > MAX_ACCESSES {
            self.left_out += 1;
        } else {
            self.accesses += unit.accesses.len();
            self.by_shape.insert(key.clone().into_boxed_slice(), self.all.len() as u32);
            self.all.push(unit);
        }
        self.key = key;
    }

    /// Drops the state that is only needed to add units.
    pub(super) fn complete(&mut self) {
        self.by_shape = FxHashMap::default();
    }
}

/// Appends what makes two units the same.
fn shape(unit: &Unit, key: &mut Vec<u32>) {
    let region = unit.accesses.first().and_then(|access| access.stamp.tx().region);
    key.extend([unit.thread.0, unit.period, region.map_or(u32::MAX, |region| region.0)]);
    for &(Held { lock, is_shared }, Node { from, to }) in &unit.holds {
        key.extend([lock, u32::from(is_shared), from, to]);
    }
    key.push(u32::MAX);
    for access in &unit.accesses {
        key.extend([access.variable, access.kind as u32, access.at]);
    }
}
