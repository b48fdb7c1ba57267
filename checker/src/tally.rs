//! Violations counted by a static key, up to a limit of distinct keys. Each checker defines its key.

use crate::finding::Violation;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Distinct violations in the order of their first occurrence.
pub(crate) struct Tally<K> {
    limit: usize,
    by_key: FxHashMap<K, usize>,
    pub(crate) violations: Vec<Violation>,
    /// Instances with keys beyond the limit.
    pub(crate) unshown: u64,
}

impl<K: Eq + Hash> Tally<K> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, by_key: FxHashMap::default(), violations: Vec::new(), unshown: 0 }
    }

    /// Counts one instance; `build` creates the violation if its key is new.
    pub(crate) fn count(&mut self, key: K, build: impl FnOnce() -> Violation) {
        if let Some(&index) = self.by_key.get(&key) {
            self.violations[index].occurrences += 1;
        } else if self.violations.len() < self.limit {
            self.by_key.insert(key, self.violations.len());
            self.violations.push(build());
        } else {
            self.unshown += 1;
        }
    }

    /// Returns the violations, data evidence first.
    pub(crate) fn into_violations(mut self) -> Vec<Violation> {
        self.violations.sort_by_key(|violation| violation.evidence);
        self.violations
    }
}
