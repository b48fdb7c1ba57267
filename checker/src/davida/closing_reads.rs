//! Reads that have just closed a cycle: whether the next event of their thread writes the same variable, as the two
//! halves of an update do. At most one of each thread, until that event.

use super::cuts::Key;
use crate::event::{Event, Op, ThreadId, VarId};

/// Reads whose next event is still to come.
#[derive(Default)]
pub(super) struct ClosingReads(Vec<(ThreadId, VarId, Key)>);

impl ClosingReads {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes a read that belongs to the cut with that key.
    pub(super) fn closed(&mut self, thread: ThreadId, variable: VarId, key: Key) {
        self.0.retain(|&(other, ..)| other != thread);
        self.0.push((thread, variable, key));
    }

    /// Returns the key of the cut whose closing read the event makes an update, if it does.
    #[cold]
    #[inline(never)]
    pub(super) fn followed_by(&mut self, event: &Event) -> Option<Key> {
        // It is no action of the thread.
        if matches!(event.op, Op::Follow(_)) {
            return None;
        }
        let index = self.0.iter().position(|&(thread, ..)| thread == event.thread)?;
        let (_, variable, key) = self.0.swap_remove(index);
        (event.op == Op::Write(variable)).then_some(key)
    }
}
