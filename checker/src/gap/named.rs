//! Gaps with names. Gaps that look the same to a reader become one, with a fingerprint and its promise.

use super::promise::{Facts, by_dependence, promise};
use super::{Data, Gap, Kind, Remote};
use crate::defect::{Certainty, Describe, Names, Origin, PlaceKey, RegionRole, Steps, fingerprint};
use crate::event::{LocationId, RegionId};
use crate::finding::Object;
use std::collections::BTreeMap;

/// Limit of gaps of which it is asked whether the later step depends on the earlier one: the most promising.
const MAX_ASKED: usize = 100;

/// Limit of further copies of the step before a gap.
const MAX_COPIES: usize = 7;

/// Gap, by the text of its lines.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NamedGap {
    /// Hash of the kind, the region's name, the text of both lines and the names of the objects. It stays the same in
    /// another run, after a rebuild and when lines have moved.
    pub fingerprint: u64,
    /// Facts on all gaps that it stands for; ids are the ids of the first.
    pub gap: Gap,
    /// Further copies of the step before it, where a compiler put the function into several others: threads that are
    /// delayed at one of them only may all be beyond it when the others come.
    pub copies: Vec<LocationId>,
    /// Likelihood that it is a bug which shows when a thread is delayed there, from 0 to 1.
    pub promise: f64,
}

/// Kind, region, lines and subjects.
type Key = (Kind, String, [PlaceKey; 2], Vec<String>);

/// Puts names on gaps, and orders them by promise, highest first.
pub fn named(gaps: &[Gap], names: &mut dyn Describe) -> Vec<NamedGap> {
    let mut names = Names::new(names);
    let ends = gaps.iter().flat_map(|gap| [gap.left, gap.returned]);
    names.number_places(ends);
    let mut merged: BTreeMap<Key, (Gap, Vec<LocationId>)> = BTreeMap::new();
    // What comes after a notification, or after a wait has begun, does not rely on it.
    for gap in gaps {
        let first = gap.objects.first();
        if first.is_some_and(|&object| names.subject(object).is_set_of_waiters) {
            continue;
        }
        let key = key(gap, &mut names);
        let Some((known, copies)) = merged.get_mut(&key) else {
            merged.insert(key, (gap.clone(), Vec::new()));
            continue;
        };
        known.merge(gap, &mut names);
        let is_new = known.left != gap.left && !copies.contains(&gap.left);
        if is_new && copies.len() < MAX_COPIES {
            copies.push(gap.left);
        }
    }
    let mut found: Vec<(Key, NamedGap)> = merged
        .into_iter()
        .map(|(key, (gap, copies))| with_promise(key, gap, copies, &mut names))
        .collect();
    let by_promise = |(one, first): &(Key, NamedGap), (other, second): &(Key, NamedGap)| {
        second.promise.total_cmp(&first.promise).then_with(|| one.cmp(other))
    };
    found.sort_by(by_promise);
    for (_, of) in found.iter_mut().take(MAX_ASKED) {
        of.promise = by_dependence(of.promise, acts(&of.gap, &mut names));
    }
    found.sort_by(by_promise);
    found.into_iter().map(|(_, gap)| gap).collect()
}

/// Returns whether the region acts after a gap on a value that it read before.
fn acts(gap: &Gap, names: &mut Names<'_>) -> Certainty {
    let ends = [gap.left, gap.returned];
    let at = if gap.kind == Kind::Access { Some(ends) } else { gap.data_at };
    let Some([earlier, later]) = at else { return Certainty::Unknown };
    names.dependence(Steps::of(gap.region, earlier, later)).acts()
}

fn key(gap: &Gap, names: &mut Names<'_>) -> Key {
    let region = names.region(gap.region).name.clone();
    let ends = [gap.left, gap.returned].map(|location| names.place_key(location));
    let mut subjects: Vec<String> = Vec::new();
    for &object in &gap.objects {
        let name = names.subject(object).name.clone();
        if !subjects.contains(&name) {
            subjects.push(name);
        }
    }
    (gap.kind, region, ends, subjects)
}

fn with_promise(
    key: Key,
    gap: Gap,
    copies: Vec<LocationId>,
    names: &mut Names<'_>,
) -> (Key, NamedGap) {
    let (kind, region, ends, subjects) = &key;
    let mut texts = vec![kind.text().to_owned(), region.clone()];
    for PlaceKey { function, text, ordinal } in ends {
        texts.extend([function.clone(), text.clone(), ordinal.to_string()]);
    }
    texts.extend(subjects.iter().cloned());
    let fingerprint = fingerprint::of(texts.iter().map(String::as_str));
    let info = names.region(gap.region);
    let (role, region_origin) = (info.role, info.origin);
    let is_library = region_origin == Origin::Library;
    let is_lock_word = gap.objects.iter().any(|&object| names.subject(object).is_lock_word);
    let facts = Facts {
        gap: &gap,
        is_named: role == RegionRole::Named,
        is_loop: gap.is_followed || matches!(role, RegionRole::ThreadBody | RegionRole::Waits),
        is_library,
        is_lock_word,
        sees_data: names.sees_data(),
    };
    let promise = promise(&facts);
    (key, NamedGap { fingerprint, gap, copies, promise })
}

impl Kind {
    const fn text(self) -> &'static str {
        match self {
            Self::Lock => "lock gap",
            Self::Section => "section gap",
            Self::Access => "access gap",
        }
    }
}

impl Gap {
    /// Adds the facts on a gap with the same names.
    fn merge(&mut self, other: &Self, names: &mut Names<'_>) {
        self.crossed += other.crossed;
        self.cut += other.cut;
        self.repeated += other.repeated;
        self.waited += other.waited;
        if other.data > self.data {
            (self.data, self.data_at) = (other.data, other.data_at);
        }
        self.together |= other.together;
        self.is_followed &= other.is_followed;
        self.is_by_code &= other.is_by_code;
        self.other_threads = self.other_threads.max(other.other_threads);
        let mut name = |region: Option<RegionId>, location: LocationId| match region {
            Some(region) => names.region(region).name.clone(),
            None => names.place_key(location).function,
        };
        for &Remote { region, location } in &other.remotes {
            let new = name(region, location);
            if !self.remotes.iter().any(|known| name(known.region, known.location) == new) {
                self.remotes.push(Remote { region, location });
            }
        }
    }

    /// Returns whether both objects, or the one, are locks.
    #[must_use]
    pub fn is_of_locks(&self) -> bool {
        self.objects.iter().all(|object| matches!(object, Object::Lock(_)))
    }

    /// Returns whether data was seen on both sides.
    pub(super) const fn has_data(&self) -> bool {
        !matches!(self.data, Data::Unseen)
    }
}
