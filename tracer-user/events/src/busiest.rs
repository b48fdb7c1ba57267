//! Region with the most events: a function that runs all the time slows a program down, and may be one that nobody
//! meant. Counts only; `report` decides what to say of it.

use checker::event::{Event, Op, RegionId};

/// Fewer events slow no program down.
const MANY: u64 = 1_000_000;

/// Counts of events by regions.
#[derive(Debug, Default)]
pub struct Busiest {
    /// Open regions of each thread, the innermost last.
    open: Vec<Vec<RegionId>>,
    /// Number of events of each region: its begins and ends, and the events in it and in no other region inside.
    counts: Vec<u64>,
    all: u64,
}

impl Busiest {
    /// Counts an event for the innermost open region of its thread.
    #[inline]
    pub fn count(&mut self, event: &Event) {
        self.all += 1;
        let thread = event.thread.index();
        if self.open.len() <= thread {
            self.open.resize_with(thread + 1, Vec::new);
        }
        let open = &mut self.open[thread];
        let region = match event.op {
            Op::Begin(region) => {
                open.push(region);
                Some(region)
            }
            Op::End(None) => open.pop(),
            Op::End(Some(named)) => {
                if let Some(at) = open.iter().rposition(|&region| region == named) {
                    open.truncate(at);
                }
                Some(named)
            }
            Op::Exit => {
                open.clear();
                None
            }
            _ => open.last().copied(),
        };
        if let Some(region) = region.map(RegionId::index) {
            if self.counts.len() <= region {
                self.counts.resize(region + 1, 0);
            }
            self.counts[region] += 1;
        }
    }

    /// Events were lost: which regions are open is not known any more.
    pub fn gap(&mut self) {
        self.open.iter_mut().for_each(Vec::clear);
    }

    /// Returns the region that makes more than half of all events, and their number, where these are many.
    #[must_use]
    pub fn found(&self) -> Option<(RegionId, u64)> {
        self.most_of(MANY)
    }

    fn most_of(&self, many: u64) -> Option<(RegionId, u64)> {
        let (region, &count) = (0..).zip(&self.counts).max_by_key(|(_, count)| **count)?;
        (self.all > many && count > self.all / 2).then_some((RegionId(region), count))
    }
}

#[cfg(test)]
mod tests {
    use checker::event::{LocationId, LockId, ThreadId};

    use super::*;

    fn counted(ops: &[Op]) -> Busiest {
        let mut busiest = Busiest::default();
        for &op in ops {
            busiest.count(&Event { thread: ThreadId(0), op, location: LocationId(0) });
        }
        busiest
    }

    #[test]
    fn the_region_with_more_than_half_is_named() {
        let (lock, inner, outer) = (LockId(0), RegionId(0), RegionId(1));
        let pair = [Op::Begin(inner), Op::Acquire(lock), Op::Release(lock), Op::End(None)];
        let ops = [&[Op::Begin(outer)][..], &pair, &pair, &[Op::End(Some(outer))]].concat();
        let busiest = counted(&ops);
        assert_eq!(busiest.most_of(9), Some((inner, 8)));
        assert_eq!(busiest.most_of(10), None, "they are not so many");
        let outside = [Op::Acquire(lock), Op::Release(lock)];
        assert_eq!(counted(&[&pair[..], &outside, &outside].concat()).most_of(1), None, "half");
        assert_eq!(counted(&[]).most_of(0), None);
    }

    #[test]
    fn after_a_gap_nothing_is_open() {
        let mut busiest = counted(&[Op::Begin(RegionId(3))]);
        busiest.gap();
        let event =
            Event { thread: ThreadId(0), op: Op::Acquire(LockId(0)), location: LocationId(0) };
        busiest.count(&event);
        assert_eq!(busiest.most_of(0), None);
    }
}
