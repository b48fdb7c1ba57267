//! Violations counted: instances, those with a distinct static witness up to limits of their number and of their
//! dependencies together, and violating transactions.
//! Each checker defines the key of a static witness.

use crate::check::Options;
use crate::finding::{Counts, Evidence, Instance, Violation};
use rustc_hash::FxHashMap;

/// Number of words of a key for each dependency.
const WORDS: usize = 4;

/// Violations found so far. Memory grows with the number of distinct ones stored, not with that of instances, unless
/// these are to be listed.
#[derive(Clone)]
pub(crate) struct Verdicts {
    limit: usize,
    /// Number of words of keys that can still be stored. A key has some for each dependency.
    room: usize,
    lists_instances: bool,
    by_key: FxHashMap<Box<[u32]>, usize>,
    key: Vec<u32>,
    /// In the order of their first occurrence.
    distinct: Vec<Violation>,
    instances: Vec<Instance>,
    violations: u64,
    violating_transactions: u64,
    /// Instances with keys beyond the limit.
    unshown: u64,
}

impl Verdicts {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            limit: options.witnesses,
            room: options.witnesses.saturating_mul(Options::LENGTH_OF_WITNESSES * WORDS),
            lists_instances: options.instances,
            by_key: FxHashMap::default(),
            key: Vec::new(),
            distinct: Vec::new(),
            instances: Vec::new(),
            violations: 0,
            violating_transactions: 0,
            unshown: 0,
        }
    }

    /// Counts one instance, whose key `put_key` appends; `build` creates the violation if the key is new. `violating`
    /// is set once the transaction is counted as violating. Returns the number of the violation if it is new and
    /// stored.
    pub(crate) fn count(
        &mut self,
        instance: Instance,
        violating: &mut bool,
        put_key: impl FnOnce(&mut Vec<u32>),
        build: impl FnOnce() -> Violation,
    ) -> Option<usize> {
        self.violations += 1;
        self.violating_transactions += u64::from(!std::mem::replace(violating, true));
        if self.lists_instances {
            self.instances.push(instance);
        }
        self.key.clear();
        put_key(&mut self.key);
        if let Some(&index) = self.by_key.get(&self.key[..]) {
            self.distinct[index].occurrences += 1;
            return None;
        }
        let number = self.distinct.len();
        // There is room for one of any length.
        let has_room = self.key.len() <= self.room || number == 0;
        if number >= self.limit || !has_room {
            self.unshown += 1;
            return None;
        }
        self.room = self.room.saturating_sub(self.key.len());
        self.by_key.insert(self.key.clone().into_boxed_slice(), number);
        self.distinct.push(build());
        Some(number)
    }

    /// Returns whether there is no violation.
    pub(crate) fn is_empty(&self) -> bool {
        self.violations == 0
    }

    /// Returns the distinct violations, in the order of their first occurrence.
    pub(crate) fn distinct(&self) -> &[Violation] {
        &self.distinct
    }

    /// Adds the counts of violations to those of the engine.
    pub(crate) fn counts(&self, engine: Counts) -> Counts {
        Counts {
            violations: self.violations,
            violating_transactions: self.violating_transactions,
            distinct_witnesses: self.distinct.len() as u64,
            unshown_violations: self.unshown,
            ..engine
        }
    }

    /// Returns the distinct violations, data evidence first, the place of each there by the order of their first
    /// occurrence, and the instances in their order.
    pub(crate) fn into_lists(mut self) -> (Vec<Violation>, Vec<usize>, Vec<Instance>) {
        let with_data =
            self.distinct.iter().filter(|violation| violation.evidence == Evidence::Data);
        let mut next = [0, with_data.count()];
        let place = |violation: &Violation| {
            let next = &mut next[usize::from(violation.evidence != Evidence::Data)];
            *next += 1;
            *next - 1
        };
        let places = self.distinct.iter().map(place).collect();
        self.distinct.sort_by_key(|violation| violation.evidence);
        self.instances.sort_unstable();
        (self.distinct, places, self.instances)
    }
}
