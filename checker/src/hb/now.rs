//! The event under way, with what its thread knows and can learn.

use crate::hb::clocks::{Clock, Clocks};
use crate::hb::stamp::EventStamp;
use crate::hb::table::ThreadTable;

pub(crate) struct Now<'a> {
    pub(crate) event: &'a EventStamp,
    /// The row of its thread.
    pub(crate) row: usize,
    pub(crate) table: &'a ThreadTable,
    pub(crate) clocks: &'a mut Clocks,
}

impl Now<'_> {
    /// `clock` becomes what the thread knows.
    pub(crate) fn publish(&self, clock: &mut Clock) {
        self.clocks.publish(self.row, self.event, clock);
    }

    /// `clock` also becomes what the thread knows.
    pub(crate) fn publish_more(&self, clock: &mut Clock) {
        self.clocks.publish_more(self.row, self.event, clock);
    }

    /// The thread learns what `clock` holds.
    pub(crate) fn learn(&mut self, clock: &Clock) {
        self.clocks.learn(self.row, clock);
    }

    /// The thread learns what `clock` holds, which was published at `source`.
    pub(crate) fn learn_from(&mut self, source: &EventStamp, clock: &Clock) {
        let from = self.table.row(source.thread());
        self.clocks.learn_from(self.row, from, source.event(), clock);
    }
}
