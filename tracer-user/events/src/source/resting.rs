//! Access probes that rest for a time: which regions they are in, as far as accesses have shown, and the events that
//! say when the accesses of a region are not all seen.

use checker::{
    event::{Op, RegionId, ThreadId},
    format::NO_LOCATION,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::stream::Stream;

/// Groups of access probes that rest, and the regions in whose executions they have recorded.
#[derive(Debug, Default)]
pub(super) struct RestingAccesses {
    /// State of each group that has ever rested: set while it does.
    groups: FxHashMap<usize, bool>,
    /// By group.
    regions: FxHashMap<usize, FxHashSet<RegionId>>,
    /// Number of the groups of each region that rest.
    resting: FxHashMap<RegionId, usize>,
}

impl RestingAccesses {
    /// Notes an access by a probe of the group in an execution of the region, before the access's own event.
    pub(super) fn accessed(
        &mut self,
        region: RegionId,
        group: usize,
        thread: ThreadId,
        stream: &mut Stream,
    ) {
        if !self.regions.entry(group).or_default().insert(region) {
            return;
        }
        // It may have rested since the region began.
        match self.groups.get(&group) {
            Some(true) => self.rest(region, thread, stream),
            Some(false) => {
                self.rest(region, thread, stream);
                self.resume(region, thread, stream);
            }
            None => {}
        }
    }

    /// Notes that the probes of a group rest from now on, or record again.
    pub(super) fn switch(&mut self, group: usize, is_off: bool, stream: &mut Stream) {
        if self.groups.insert(group, is_off).unwrap_or(false) == is_off {
            return;
        }
        tracing::debug!(group, is_off, at = stream.events(), "access probes were switched");
        let mut regions: Vec<RegionId> =
            self.regions.get(&group).into_iter().flatten().copied().collect();
        regions.sort_unstable();
        for region in regions {
            // It is no act of a thread; the first one is always known.
            if is_off {
                self.rest(region, ThreadId(0), stream);
            } else {
                self.resume(region, ThreadId(0), stream);
            }
        }
    }

    fn rest(&mut self, region: RegionId, thread: ThreadId, stream: &mut Stream) {
        let count = self.resting.entry(region).or_default();
        *count += 1;
        if *count == 1 {
            stream.emit(thread, Op::Rest(region), NO_LOCATION);
        }
    }

    fn resume(&mut self, region: RegionId, thread: ThreadId, stream: &mut Stream) {
        let count = self.resting.entry(region).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            stream.emit(thread, Op::Resume(region), NO_LOCATION);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RegionId = RegionId(1);
    const TWO: RegionId = RegionId(2);

    fn ops(act: impl FnOnce(&mut Stream)) -> Vec<Op> {
        let mut stream = Stream::default();
        act(&mut stream);
        stream.ops().into_iter().map(|(_, op)| op).collect()
    }

    #[test]
    fn a_region_rests_while_any_of_its_groups_does() {
        let mut resting = RestingAccesses::default();
        for (region, group) in [(ONE, 7), (ONE, 8), (TWO, 8)] {
            assert_eq!(ops(|to| resting.accessed(region, group, ThreadId(3), to)), []);
        }
        assert_eq!(ops(|to| resting.switch(7, true, to)), [Op::Rest(ONE)]);
        assert_eq!(ops(|to| resting.switch(8, true, to)), [Op::Rest(TWO)], "one rests already");
        assert_eq!(ops(|to| resting.switch(8, true, to)), [], "it rests already");
        assert_eq!(ops(|to| resting.switch(7, false, to)), [], "the other group rests still");
        assert_eq!(ops(|to| resting.switch(8, false, to)), [Op::Resume(ONE), Op::Resume(TWO)]);
        assert_eq!(ops(|to| resting.switch(9, false, to)), [], "it has never rested");
    }

    /// That a group is in a region may show only after it has rested.
    #[test]
    fn an_access_that_shows_a_group_late_says_that_it_has_rested() {
        let mut resting = RestingAccesses::default();
        assert_eq!(ops(|to| resting.switch(7, true, to)), []);
        assert_eq!(ops(|to| resting.accessed(ONE, 7, ThreadId(0), to)), [Op::Rest(ONE)]);
        assert_eq!(ops(|to| resting.accessed(ONE, 7, ThreadId(0), to)), [], "it is known");
        assert_eq!(ops(|to| resting.switch(7, false, to)), [Op::Resume(ONE)]);
        let both = ops(|to| resting.accessed(TWO, 7, ThreadId(0), to));
        assert_eq!(both, [Op::Rest(TWO), Op::Resume(TWO)], "it has rested");
    }
}
