//! Stream of a source: its events, numbered in their order, and what stands between them.

use checker::{
    event::{Event, EventNumber, LocationId, Op, ThreadId},
    format::NO_LOCATION,
};

use super::{
    deferred::{DeferredAccess, Epoch},
    held_locks::HeldLocks,
};

/// Output of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// Loss of events at this point.
    Gap,
    /// Begin of a thread's epoch: what the thread does from here on, and deferred accesses of the epoch, belong to
    /// it.
    Epoch(Epoch),
    /// Access that the kernel side reports after the epoch in which it was made.
    Deferred(DeferredAccess),
}

/// Items that were not consumed yet, and the number of events so far.
#[derive(Debug, Default)]
pub struct Stream {
    items: Vec<Item>,
    events: EventNumber,
    held: HeldLocks,
}

impl Stream {
    /// Emits an event.
    #[inline]
    pub fn emit(&mut self, thread: ThreadId, op: Op, location: LocationId) {
        self.events += 1;
        self.held.note(thread, op);
        self.items.push(Item::Event(Event { thread, op, location }));
    }

    /// Emits a change of variables. The split of one has no location.
    pub fn emit_change(&mut self, thread: ThreadId, op: Op, location: LocationId) {
        let is_split = matches!(op, Op::SplitVariable { .. });
        self.emit(thread, op, if is_split { NO_LOCATION } else { location });
    }

    /// Adds a loss of events.
    pub fn gap(&mut self) {
        self.held.gap();
        self.items.push(Item::Gap);
    }

    /// Adds the begin of an epoch.
    pub fn begin_epoch(&mut self, epoch: Epoch) {
        self.items.push(Item::Epoch(epoch));
    }

    /// Adds a deferred access.
    pub fn defer(&mut self, access: DeferredAccess) {
        self.items.push(Item::Deferred(access));
    }

    /// Returns the number of events so far, which is that of the next event.
    #[must_use]
    pub const fn events(&self) -> EventNumber {
        self.events
    }

    /// Returns the locks that threads hold.
    #[must_use]
    pub const fn held(&self) -> &HeldLocks {
        &self.held
    }

    /// Returns the items since the last call of [`clear`](Self::clear).
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Drops the items, which were consumed.
    pub fn clear(&mut self) {
        self.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use checker::event::VarId;

    use super::*;

    #[test]
    fn events_are_numbered_and_nothing_else_is() {
        let mut stream = Stream::default();
        let (thread, location) = (ThreadId(1), LocationId(7));
        stream.emit(thread, Op::Read(VarId(0)), location);
        stream.gap();
        stream.begin_epoch(Epoch { thread, epoch: 3, lowest: u64::MAX });
        assert_eq!((stream.events(), stream.items().len()), (1, 3));
        stream.clear();
        stream.emit(thread, Op::Exit, location);
        assert_eq!((stream.events(), stream.items().len()), (2, 1), "the numbers go on");
    }

    #[test]
    fn only_splits_are_nowhere() {
        let mut stream = Stream::default();
        let split = Op::SplitVariable { from: VarId(0), to: VarId(1) };
        stream.emit_change(ThreadId(0), split, LocationId(7));
        stream.emit_change(ThreadId(0), Op::Free(VarId(1)), LocationId(7));
        let location = |item: &Item| match item {
            Item::Event(event) => event.location,
            _ => panic!("no event"),
        };
        let locations: Vec<LocationId> = stream.items().iter().map(location).collect();
        assert_eq!(locations, [NO_LOCATION, LocationId(7)]);
    }
}
