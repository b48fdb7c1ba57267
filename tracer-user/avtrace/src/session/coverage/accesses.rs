//! Coverage of memory accesses, for the report.

use crate::session::memory::sampler::Share;
use plan::memory::{instructions::Coverage, site::AccessGroup};
use report::{LeftOut, MemorySeen, WatchedShare};

/// Sums up what probes and watchpoints see; names come later. `None` where there are neither.
pub(crate) fn memory(groups: &[AccessGroup], watched: &[Share]) -> Option<MemorySeen> {
    if groups.is_empty() && watched.is_empty() {
        return None;
    }
    let mut coverage = Coverage::default();
    groups.iter().for_each(|group| coverage.add(&group.coverage));
    let left_out = coverage.left_out.iter();
    let watched = watched.iter().map(|&Share { address, length, share, hits }| WatchedShare {
        name: None,
        address: Some(address),
        length,
        percent: share,
        hits,
    });
    Some(MemorySeen {
        functions: groups.len() as u64,
        emulated: coverage.emulated,
        single_stepped: coverage.single_stepped,
        left_out: left_out
            .map(|(reason, &count)| LeftOut { reason: reason.to_string(), count })
            .collect(),
        private: coverage.stack + coverage.thread_local,
        watched: watched.collect(),
    })
}
