//! Stream of a source: its events, numbered in their order, and what stands between them.

use checker::{
    event::{Event, EventNumber, LocationId, Op, ThreadId},
    format::NO_LOCATION,
};

use super::{
    deferred::{DeferredAccess, Epoch},
    held_locks::HeldLocks,
};

/// Part of the output of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// Consecutive events, at least one.
    Events(&'a [Event]),
    /// Something that is no event.
    Mark(&'a Mark),
}

/// Item between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Loss of events at this point.
    Gap,
    /// Begin of a thread's epoch. The thread's later actions, and deferred accesses of the epoch, belong to it.
    Epoch(Epoch),
    /// Access that the kernel side reports after the epoch in which it was made.
    Deferred(DeferredAccess),
}

/// Act of a thread by which memory changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Acting thread.
    pub thread: ThreadId,
    /// Location in the code.
    pub location: LocationId,
}

/// Items that were not consumed yet, and the number of events so far.
#[derive(Debug, Default)]
pub struct Stream {
    events: Vec<Event>,
    /// Each with the number of `events` before it.
    marks: Vec<(usize, Mark)>,
    count: EventNumber,
    held: HeldLocks,
}

impl Stream {
    /// Emits an event.
    #[inline]
    pub fn emit(&mut self, thread: ThreadId, op: Op, location: LocationId) {
        self.count += 1;
        self.held.note(thread, op);
        self.events.push(Event { thread, op, location });
    }

    /// Emits a change of variables. The split of one has no location.
    pub fn emit_change(&mut self, cause: Cause, op: Op) {
        let is_split = matches!(op, Op::SplitVariable { .. });
        self.emit(cause.thread, op, if is_split { NO_LOCATION } else { cause.location });
    }

    /// Adds a loss of events.
    pub fn gap(&mut self) {
        self.held.gap();
        self.mark(Mark::Gap);
    }

    /// Adds the begin of an epoch.
    pub fn begin_epoch(&mut self, epoch: Epoch) {
        self.mark(Mark::Epoch(epoch));
    }

    /// Adds a deferred access.
    pub fn defer(&mut self, access: DeferredAccess) {
        self.mark(Mark::Deferred(access));
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push((self.events.len(), mark));
    }

    /// Returns the number of events so far: the number of the next event.
    #[must_use]
    pub const fn events(&self) -> EventNumber {
        self.count
    }

    /// Returns the locks that threads hold.
    #[must_use]
    pub const fn held(&self) -> &HeldLocks {
        &self.held
    }

    /// Iterates over the items since the last call of [`clear`](Self::clear), in their order.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let mut from = 0;
        let marks = self.marks.iter().map(|(before, mark)| (*before, Some(Item::Mark(mark))));
        marks.chain([(self.events.len(), None)]).flat_map(move |(before, mark)| {
            let events = &self.events[std::mem::replace(&mut from, before)..before];
            (!events.is_empty()).then_some(Item::Events(events)).into_iter().chain(mark)
        })
    }

    /// Returns the threads and operations of the events since the last call of [`clear`](Self::clear).
    #[cfg(test)]
    pub(super) fn ops(&self) -> Vec<(u32, Op)> {
        self.events.iter().map(|event| (event.thread.0, event.op)).collect()
    }

    /// Drops the items, which were consumed.
    pub fn clear(&mut self) {
        self.events.clear();
        self.marks.clear();
    }
}

#[cfg(test)]
mod tests {
    use checker::event::{RegionId, VarId};

    use super::*;

    #[test]
    fn events_are_numbered_and_nothing_else_is() {
        let mut stream = Stream::default();
        let (thread, location) = (ThreadId(1), LocationId(7));
        stream.emit(thread, Op::Read(VarId(0)), location);
        stream.gap();
        stream.begin_epoch(Epoch { thread, epoch: 3, lowest: u64::MAX });
        assert_eq!((stream.events(), stream.items().count()), (1, 3));
        stream.clear();
        stream.emit(thread, Op::Exit, location);
        assert_eq!((stream.events(), stream.items().count()), (2, 1), "the numbers go on");
    }

    #[test]
    fn items_are_in_their_order() {
        let mut stream = Stream::default();
        let event = |op| Event { thread: ThreadId(0), op, location: LocationId(7) };
        let emit = |stream: &mut Stream, op| stream.emit(ThreadId(0), op, LocationId(7));
        let epoch = Epoch { thread: ThreadId(0), epoch: 3, lowest: u64::MAX };
        stream.gap();
        emit(&mut stream, Op::Begin(RegionId(1)));
        emit(&mut stream, Op::Read(VarId(0)));
        stream.begin_epoch(epoch);
        stream.gap();
        emit(&mut stream, Op::Exit);
        let run = [event(Op::Begin(RegionId(1))), event(Op::Read(VarId(0)))];
        let (gap, epoch) = (Item::Mark(&Mark::Gap), Mark::Epoch(epoch));
        let expected =
            [gap, Item::Events(&run), Item::Mark(&epoch), gap, Item::Events(&[event(Op::Exit)])];
        assert!(stream.items().eq(expected));
    }

    #[test]
    fn only_splits_are_nowhere() {
        let mut stream = Stream::default();
        let split = Op::SplitVariable { from: VarId(0), to: VarId(1) };
        let cause = Cause { thread: ThreadId(0), location: LocationId(7) };
        stream.emit_change(cause, split);
        stream.emit_change(cause, Op::Free(VarId(1)));
        let locations: Vec<LocationId> = stream.events.iter().map(|event| event.location).collect();
        assert_eq!(locations, [NO_LOCATION, LocationId(7)]);
    }
}
