//! The latest dependencies that lead out of one thread's active regions, to each other thread and on each object:
//! bounded. The tree of a region has the first dependencies; the latest ones show the tightest gaps.

use super::forest::Node;
use crate::event::EventNumber;
use crate::finding::{Action, Object};

/// Limit of dependencies stored; the least recent one is replaced.
const MAX_DEPARTURES: usize = 32;

/// Dependencies whose source is in an active region of the thread.
#[derive(Default)]
pub(super) struct Departures(Vec<Node>);

impl Departures {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn put(&mut self, node: &Node) {
        let is_same = |old: &Node| old.row() == node.row() && old.object == node.object;
        if let Some(old) = self.0.iter_mut().find(|old| is_same(old)) {
            // A dependency on an earlier event of the region shows a wider gap.
            if old.source.position() <= node.source.position() {
                *old = *node;
            }
        } else if self.0.len() < MAX_DEPARTURES {
            self.0.push(*node);
        } else if let Some(oldest) = self.0.iter_mut().min_by_key(|old| old.sink.event()) {
            *oldest = *node;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter()
    }

    /// Returns a dependency that leads from an event of the thread at or after `begin` to an event of the thread in
    /// `row` not after `until`: the latest on `object`, otherwise the latest on any, frees last; of variables only if
    /// `data`.
    pub(super) fn latest(
        &self,
        row: usize,
        begin: EventNumber,
        until: EventNumber,
        object: Object,
        data: bool,
    ) -> Option<&Node> {
        let fits = |node: &&Node| {
            node.row() == row
                && node.source.event() >= begin
                && node.sink.event() <= until
                && (!data || node.is_variable())
        };
        let fitting = self.0.iter().filter(fits);
        // That memory was freed which the region had accessed says little about anything else.
        let order = |node: &&Node| {
            let is_free = node.sink.action() == Action::Free;
            (node.object == object, !is_free, node.source.position(), node.sink.event())
        };
        fitting.max_by_key(order)
    }
}
