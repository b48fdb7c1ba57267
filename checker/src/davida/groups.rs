//! Violations grouped by static witness: the region, the location of its begin, and the regions and code
//! locations along the path. Memory grows with the number of distinct witnesses stored, not with that of
//! instances.

use super::forest::Node;
use crate::event::RegionId;
use crate::finding::{Evidence, Violation};
use crate::hb::EventStamp;
use rustc_hash::FxHashMap;

/// Value for "no region" in a key.
const NO_REGION: u32 = u32::MAX;

/// Distinct violations in the order of their first occurrence.
pub(super) struct Groups {
    limit: usize,
    by_witness: FxHashMap<Box<[u32]>, usize>,
    violations: Vec<Violation>,
    key: Vec<u32>,
    unshown: u64,
}

impl Groups {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            by_witness: FxHashMap::default(),
            violations: Vec::new(),
            key: Vec::new(),
            unshown: 0,
        }
    }

    /// Counts one instance; `build` creates the violation if its witness is new.
    pub(super) fn count<'a>(
        &mut self,
        region: RegionId,
        begin: &EventStamp,
        evidence: Evidence,
        path: impl Iterator<Item = &'a Node>,
        build: impl FnOnce() -> Violation,
    ) {
        self.key.clear();
        self.key.extend([region.0, begin.location().0, evidence as u32]);
        for step in path {
            let region = |access: &EventStamp| access.region().map_or(NO_REGION, |id| id.0);
            self.key.extend([
                step.source.location().0,
                region(&step.source),
                step.sink.location().0,
                region(&step.sink),
            ]);
        }
        if let Some(&index) = self.by_witness.get(&self.key[..]) {
            self.violations[index].occurrences += 1;
        } else if self.violations.len() < self.limit {
            self.by_witness.insert(self.key.clone().into_boxed_slice(), self.violations.len());
            self.violations.push(build());
        } else {
            self.unshown += 1;
        }
    }

    pub(super) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(super) fn unshown(&self) -> u64 {
        self.unshown
    }

    pub(super) fn into_violations(self) -> Vec<Violation> {
        self.violations
    }
}
