//! The current event, with the knowledge of its thread.

use crate::hb::clocks::{Clock, Clocks};
use crate::hb::stamp::EventStamp;
use crate::hb::table::ThreadTable;

pub(crate) struct CurrentEvent<'a> {
    pub(crate) event: &'a EventStamp,
    /// Row of its thread.
    pub(crate) row: usize,
    pub(crate) table: &'a ThreadTable,
    pub(crate) clocks: &'a mut Clocks,
}

impl CurrentEvent<'_> {
    /// Sets `clock` to the knowledge of the thread.
    pub(crate) fn publish(&self, clock: &mut Clock) {
        self.clocks.publish(self.row, self.event, clock);
    }

    /// Adds the knowledge of the thread to `clock`.
    pub(crate) fn publish_into(&self, clock: &mut Clock) {
        self.clocks.publish_into(self.row, self.event, clock);
    }

    /// Adds `clock` to the knowledge of the thread.
    pub(crate) fn learn(&mut self, clock: &Clock) {
        self.clocks.learn(self.row, clock);
    }

    /// Adds `clock`, which was published at `source`, to the knowledge of the thread.
    pub(crate) fn learn_from(&mut self, source: &EventStamp, clock: &Clock) {
        let from = self.table.row(source.thread());
        self.clocks.learn_from(self.row, from, source.event(), clock);
    }
}
