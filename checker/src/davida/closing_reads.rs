//! Reads that have just closed a cycle: does their thread write the same variable next, like the second half of an
//! update, and what does it write first? Accesses to other variables in between do not count, nor do reads, nor writes
//! of variables that the thread owns: they may be deferred, and are then not seen. Bounded: the latest reads, until
//! that write, any other action of their thread, or a change of the variable's identity by another thread.

use super::cuts::Key;
use crate::event::{Event, EventNumber, Op, ThreadId, VarId};

/// Closing read, in one of the cuts that it belongs to.
struct Closed {
    thread: ThreadId,
    event: EventNumber,
    variable: VarId,
    key: Key,
    /// The thread has written since, a variable that it did not own.
    has_written: bool,
}

/// Write that follows a closing read.
pub(super) struct Following {
    pub(super) key: Key,
    /// No other write came before.
    pub(super) is_first: bool,
    /// The write is the second half of an update of the variable that was read.
    pub(super) updates: bool,
}

/// Limit of reads.
const MAX_READS: usize = 64;

/// Reads whose write may be still to come.
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
        let is_other = |closed: &Closed| (closed.thread, closed.variable) != (thread, variable);
        self.0.retain(|closed| is_other(closed) || closed.event == event && closed.key != key);
        if self.0.len() >= MAX_READS {
            self.0.remove(0);
        }
        self.0.push(Closed { thread, event, variable, key, has_written: false });
    }

    /// Returns the cuts with a closing read that the event follows as a write of the same thread.
    #[cold]
    #[inline(never)]
    pub(super) fn followed_by(
        &mut self,
        event: &Event,
        is_owned: impl Fn(VarId) -> bool,
    ) -> Vec<Following> {
        let accessed = match event.op {
            // They are no action of the thread.
            Op::Follow(_) | Op::Rest(_) | Op::Resume(_) | Op::Read(_) => return Vec::new(),
            Op::Write(variable) | Op::Update(variable) | Op::CommutingUpdate(variable) => {
                Some(variable)
            }
            _ => None,
        };
        let may_be_deferred = accessed.is_some_and(is_owned);
        let mut following = Vec::new();
        for closed in self.0.iter_mut().filter(|closed| closed.thread == event.thread) {
            let updates = event.op == Op::Write(closed.variable);
            let is_first = accessed.is_some() && !may_be_deferred && !closed.has_written;
            closed.has_written |= is_first;
            if is_first || updates {
                following.push(Following { key: closed.key, is_first, updates });
            }
        }
        // From then on the variable is another one.
        let replaced = match event.op {
            Op::Alloc(variable) => [Some(variable), None],
            Op::SplitVariable { from, to } => [Some(from), Some(to)],
            _ => [None; 2],
        };
        self.0.retain(|closed| {
            let ends = closed.thread == event.thread
                && accessed.is_none_or(|variable| variable == closed.variable);
            !ends && !replaced.contains(&Some(closed.variable))
        });
        following
    }
}
