//! Reads that have just closed a cycle: whether the next event of their thread writes the same variable, as the two
//! halves of an update do. At most one read of each thread, until that event.

use super::cuts::Key;
use crate::event::{Event, EventNumber, Op, ThreadId, VarId};

/// Closing read, in one of the cuts that it belongs to.
struct Closed {
    thread: ThreadId,
    event: EventNumber,
    variable: VarId,
    key: Key,
}

/// Reads whose next event is still to come.
#[derive(Default)]
pub(super) struct ClosingReads(Vec<Closed>);

impl ClosingReads {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that the read `event` of a thread belongs to the cut with that key. A read belongs to several cuts if its
    /// dependencies close different ones.
    pub(super) fn closed(
        &mut self,
        thread: ThreadId,
        event: EventNumber,
        variable: VarId,
        key: Key,
    ) {
        self.0
            .retain(|closed| closed.thread != thread || closed.event == event && closed.key != key);
        self.0.push(Closed { thread, event, variable, key });
    }

    /// Returns the keys of the cuts whose closing read the event makes an update.
    #[cold]
    #[inline(never)]
    pub(super) fn followed_by(&mut self, event: &Event) -> Vec<Key> {
        // It is no action of the thread.
        if matches!(event.op, Op::Follow(_)) {
            return Vec::new();
        }
        let of_thread = self.0.extract_if(.., |closed| closed.thread == event.thread);
        let updates = of_thread.filter(|closed| event.op == Op::Write(closed.variable));
        updates.map(|closed| closed.key).collect()
    }
}
