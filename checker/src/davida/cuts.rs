//! Cuts: the violations grouped by the innermost region and the gap, while they are found. Memory is bounded by the
//! limit of cuts, whatever the number of witnesses.

use super::closing_reads::Following;
use super::observed::Observed;
use super::obstacles::Obstacles;
use super::thread::Facts;
use crate::check::Options;
use crate::event::{EventNumber, LocationId, RegionId};
use crate::finding::{Counts, Cut, Evidence, Obstacle, Order, Violation};
use rustc_hash::{FxHashMap, FxHashSet};

/// Limit of outer regions stored of one cut.
const MAX_OUTER: usize = 16;

/// Innermost region of a critical section, and place of its acquire.
pub(super) type Section = (Option<RegionId>, LocationId);

/// Limit of the places stored of second sections of one cut.
const MAX_SECTIONS: usize = 4;

/// Limit of the violations stored of one cut besides its exemplar.
const MAX_FURTHER: usize = 3;

/// Region and both ends of the gap.
pub(super) type Key = (RegionId, LocationId, LocationId);

/// Clarity of a violation: the clearest is the least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Clarity {
    pub(super) evidence: Evidence,
    pub(super) partly_seen: bool,
    pub(super) read_again: bool,
    pub(super) transactions: usize,
    pub(super) order: Order,
}

#[derive(Clone)]
struct Entry {
    cut: Cut,
    /// Hashes of the distinct ways.
    ways: Vec<u64>,
    clarity: Clarity,
    exemplar: Violation,
    /// Violations in later executions, as clear as the exemplar.
    further: Vec<Violation>,
    /// Second sections that ended without a change: region, and place of the acquire.
    unchanged: Vec<Section>,
}

#[derive(Clone, Default)]
pub(super) struct Cuts {
    /// Limit of cuts of regions that are followed, and of all others.
    limit: usize,
    by_key: FxHashMap<Key, u32>,
    entries: Vec<Entry>,
    /// Number of cuts of regions that are followed.
    followed: usize,
    /// Violation instances of cuts beyond the limit.
    uncut: u64,
    /// Number of exemplars chosen so far.
    chosen: u64,
}

impl Cuts {
    pub(super) fn new(options: &Options) -> Self {
        Self { limit: options.cuts.min(u32::MAX as usize), ..Self::default() }
    }

    /// Returns whether cuts are collected.
    pub(super) fn are_collected(&self) -> bool {
        self.limit > 0
    }

    /// Returns the number of the cut with that key, in the execution with that begin. `build` makes its exemplar if the
    /// cut is new, or has been less clear so far, and a few further violations that are as clear. `None` beyond the
    /// limit. Cuts of regions that are followed take no room from others.
    pub(super) fn cut(
        &mut self,
        key: Key,
        is_followed: bool,
        clarity: Clarity,
        begin: EventNumber,
        build: impl FnOnce() -> (Violation, Facts),
    ) -> Option<u32> {
        if let Some(&number) = self.by_key.get(&key) {
            let entry = &mut self.entries[number as usize];
            if clarity < entry.clarity {
                let (exemplar, facts) = build();
                (entry.clarity, entry.exemplar) = (clarity, exemplar);
                entry.further.clear();
                entry.cut.note(facts);
                self.chosen += 1;
            } else if clarity == entry.clarity && entry.further.len() < MAX_FURTHER {
                let latest = entry.further.last().unwrap_or(&entry.exemplar).begin.event;
                if latest < begin {
                    entry.further.push(build().0);
                    self.chosen += 1;
                }
            }
            return Some(number);
        }
        let others = self.entries.len() - self.followed;
        if (if is_followed { self.followed } else { others }) >= self.limit {
            return None;
        }
        self.followed += usize::from(is_followed);
        let number = self.entries.len() as u32;
        self.by_key.insert(key, number);
        let (exemplar, facts) = build();
        let (region, left, returned) = key;
        let mut cut = Cut::new(region, left, returned);
        cut.note(facts);
        self.entries.push(Entry {
            cut,
            ways: Vec::new(),
            clarity,
            exemplar,
            further: Vec::new(),
            unchanged: Vec::new(),
        });
        self.chosen += 1;
        Some(number)
    }

    /// Counts a closing dependency with that many instances.
    pub(super) fn count(&mut self, cut: Option<u32>, instances: u64) {
        match cut.and_then(|number| self.entries.get_mut(number as usize)) {
            Some(entry) => entry.cut.occurrences += instances,
            None => self.uncut += instances,
        }
    }

    /// Counts an execution that was cut, within other regions that were violated as well, innermost first.
    pub(super) fn count_execution(&mut self, number: u32, outer: impl Iterator<Item = RegionId>) {
        let cut = &mut self.entries[number as usize].cut;
        cut.executions += 1;
        for region in outer {
            if cut.outer_regions.len() < MAX_OUTER && !cut.outer_regions.contains(&region) {
                cut.outer_regions.push(region);
            }
        }
    }

    /// Notes a write at `location` that follows a read which closes a violation of a cut.
    pub(super) fn note_write(&mut self, following: &Following, location: LocationId) {
        let Some(&number) = self.by_key.get(&following.key) else { return };
        let cut = &mut self.entries[number as usize].cut;
        if following.updates {
            cut.updated_at = cut.updated_at.or(Some(location));
        }
        if following.is_first {
            cut.written_at = cut.written_at.or(Some(location));
        }
    }

    /// Notes the end of a cut's second critical section: the section itself, unless it has changed what others had
    /// accessed.
    pub(super) fn note_section(&mut self, key: &Key, unchanged: Option<Section>) {
        let number = self.by_key.get(key).copied();
        let Some((number, section)) = number.zip(unchanged) else { return };
        let known = &mut self.entries[number as usize].unchanged;
        if known.len() < MAX_SECTIONS && !known.contains(&section) {
            known.push(section);
        }
    }

    /// Notes that an execution made no change from the first step of a cut on.
    pub(super) fn note_inaction(&mut self, key: &Key) {
        if let Some(&number) = self.by_key.get(key) {
            self.entries[number as usize].cut.did_nothing = true;
        }
    }

    /// Notes that the second step of a cut overwrites a value that the region has not read.
    pub(super) fn note_overwrite(&mut self, number: u32) {
        self.entries[number as usize].cut.overwrites = true;
    }

    /// Notes a fact against holding a lock over the gap of a cut.
    pub(super) fn note_obstacle(&mut self, number: u32, obstacle: Obstacle) {
        let known = &mut self.entries[number as usize].cut.obstacle;
        *known = Some(known.map_or(obstacle, |known| known.min(obstacle)));
    }

    /// Adds a way, by its hash.
    pub(super) fn add_way(&mut self, number: u32, way: u64) {
        let ways = &mut self.entries[number as usize].ways;
        if (ways.len() as u64) < Cut::MAX_WAYS && !ways.contains(&way) {
            ways.push(way);
        }
    }

    /// Notes that the first instance of the violation with that number belongs to the cut.
    pub(super) fn link(&mut self, cut: Option<u32>, violation: usize) {
        if let Some(number) = cut {
            self.entries[number as usize].cut.violations.push(violation);
        }
    }

    /// Returns the number of exemplars chosen so far, replaced ones included.
    pub(super) fn chosen(&self) -> u64 {
        self.chosen
    }

    pub(super) fn counts(&self, counts: Counts) -> Counts {
        let uncut_violations = if self.are_collected() { self.uncut } else { counts.violations };
        Counts { uncut_violations, ..counts }
    }

    /// Returns the cuts, and the exemplars that are not among `violations`. The violation that was found with number
    /// `i` has the number `positions[i]` there.
    pub(super) fn into_lists(
        self,
        violations: &[Violation],
        positions: &[usize],
        obstacles: &Obstacles,
        observed: &Observed,
        changing: &FxHashSet<Section>,
    ) -> (Vec<Cut>, Vec<Violation>) {
        let mut listed: FxHashMap<(EventNumber, EventNumber, EventNumber), usize> =
            FxHashMap::default();
        let instance = |violation: &Violation| {
            (violation.begin.event, violation.trigger_event, violation.source_event)
        };
        for (number, violation) in violations.iter().enumerate() {
            listed.insert(instance(violation), number);
        }
        let mut exemplars = Vec::new();
        let mut cuts = Vec::with_capacity(self.entries.len());
        for Entry { mut cut, ways, exemplar, further, unchanged, .. } in self.entries {
            for violation in &mut cut.violations {
                *violation = positions[*violation];
            }
            cut.violations.sort_unstable();
            cut.ways = ways.len() as u64;
            cut.obstacle = obstacles.of(&cut, &exemplar);
            cut.polled = obstacles.is_polled(&exemplar);
            cut.unread = observed.is_unread(&exemplar);
            cut.backed_off = unchanged.iter().any(|section| changing.contains(section));
            cut.did_nothing &= cut.backed_off;
            let mut numbers = std::iter::once(exemplar).chain(further).map(|violation| {
                // Another cut may have the same direct cycle.
                let same = |number: &usize| {
                    violations[*number].edges == violation.edges && cut.violations.contains(number)
                };
                let shown = listed.get(&instance(&violation)).copied().filter(same);
                shown.unwrap_or_else(|| {
                    exemplars.push(violation);
                    violations.len() + exemplars.len() - 1
                })
            });
            cut.exemplar = numbers.next().unwrap_or_default();
            cut.further = numbers.collect();
            cuts.push(cut);
        }
        (cuts, exemplars)
    }
}

impl Cut {
    fn new(region: RegionId, left: LocationId, returned: LocationId) -> Self {
        Self {
            region,
            left,
            returned,
            occurrences: 0,
            executions: 0,
            ways: 0,
            outer_regions: Vec::new(),
            exemplar: 0,
            violations: Vec::new(),
            further: Vec::new(),
            kind: Default::default(),
            left_end: Default::default(),
            returned_end: Default::default(),
            held_throughout: Vec::new(),
            split_by_itself: Vec::new(),
            waited: false,
            notified: false,
            read_again: None,
            partly_seen: false,
            section_changes: false,
            section_writes: false,
            section_updates: false,
            section_writes_second: false,
            second_section: None,
            obstacle: None,
            polled: false,
            unread: false,
            acquired: Vec::new(),
            updated_at: None,
            written_at: None,
            overwrites: false,
            backed_off: false,
            did_nothing: false,
            others: Default::default(),
        }
    }

    fn note(&mut self, facts: Facts) {
        let Facts { kind, left, returned, held_throughout, split_by_itself, waited, .. } = facts;
        (self.kind, self.left_end, self.returned_end) = (kind, left, returned);
        (self.held_throughout, self.split_by_itself) = (held_throughout, split_by_itself);
        (self.waited, self.notified) = (waited, facts.notified);
        self.read_again = facts.read_again;
        self.partly_seen = facts.partly_seen;
        self.section_changes = facts.section_changes;
        self.section_writes = facts.section_writes;
        self.section_updates = facts.section_updates;
        self.section_writes_second = facts.section_writes_second;
        self.second_section = facts.second_section;
        self.others = facts.others;
        self.acquired = facts.acquired;
    }
}
