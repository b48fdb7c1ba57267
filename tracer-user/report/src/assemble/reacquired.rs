//! Locks that regions gave up for a time in which nobody came in.

use checker::{
    defect::Origin,
    finding::{Findings, Object as Found},
};

use super::{super::model::ReacquiredLock, resolver::Resolver};

/// Limit of the locks that are listed.
const MAX_LOCKS: usize = 100;

/// Returns the locks that no other thread held in between, in any region of that name and for any lock of that name.
pub(super) fn locks(findings: &Findings, resolver: &mut Resolver<'_>) -> Vec<ReacquiredLock> {
    let mut all: Vec<(ReacquiredLock, u64)> = Vec::new();
    for found in &findings.reacquired {
        let known = resolver.known_region(found.region);
        if known.origin == Origin::Library {
            continue;
        }
        let region = known.name.clone();
        let lock = resolver.object(Found::Lock(found.lock));
        let is_same = |(one, _): &&mut (ReacquiredLock, u64)| {
            one.region == region && one.lock.name.is_some() && one.lock.name == lock.name
        };
        match all.iter_mut().find(is_same) {
            Some((one, held_between)) => {
                one.times += found.times;
                *held_between += found.held_between;
            }
            None => {
                let one = ReacquiredLock { region, lock, times: found.times };
                all.push((one, found.held_between));
            }
        }
    }
    let mut untouched: Vec<ReacquiredLock> = all
        .into_iter()
        .filter(|(_, held_between)| *held_between == 0)
        .map(|(one, _)| one)
        .collect();
    untouched.sort_by(|one, other| {
        other.times.cmp(&one.times).then_with(|| one.region.cmp(&other.region))
    });
    untouched.truncate(MAX_LOCKS);
    untouched
}
