//! Regions that were open when their thread ended, and that other threads had depended on by then: a program that dies
//! in a region may have been about to close a cycle.

use super::forest::Column;
use super::regions::ActiveRegions;
use crate::finding::OpenRegion;

/// Limit of regions that are listed.
const MAX_OPEN: usize = 16;

impl ActiveRegions {
    /// Notes the innermost region of a thread, which ends, on whose data another thread depends. Of its dependencies
    /// the one whose source is the latest counts.
    pub(super) fn note_open(&mut self, row: usize) {
        if self.found.open_at_end.len() >= MAX_OPEN {
            return;
        }
        let column = if self.is_full_relation() { Column::Data } else { Column::Full };
        let levels = self.threads[row].levels.iter().rev();
        let open = levels.filter_map(|level| {
            let slot = level.slot? as usize;
            let departures = self.forest.departures(column, slot, row);
            let variables = departures.filter(|node| node.is_variable());
            let last = variables.max_by_key(|node| node.source.event())?;
            Some(OpenRegion { region: level.region, begin: level.begin.point(), edge: last.edge() })
        });
        let open = open.take(1).collect::<Vec<_>>();
        self.found.open_at_end.extend(open);
    }
}
