//! Events on variables whose states the caller has, instead of the engine.

use super::stamp::{self, EventStamp};
use super::thread::Threads;
use super::{Engine, Visitor};
use crate::error::{EventError, EventErrorKind};
use crate::event::{Event, EventNumber, Op};
use crate::finding::Action;

impl Engine {
    /// Consumes an event on a variable without looking at the variable: no dependency on one is found. Returns the row
    /// of its thread and the event; `None` for an event of another kind, which is not consumed, and for one that does
    /// not fit and is ignored.
    ///
    /// # Errors
    /// As [`Checker::event`](crate::Checker::event).
    #[inline]
    pub(crate) fn step_outside(
        &mut self,
        event: &Event,
        visitor: &mut impl Visitor,
    ) -> Result<Option<(usize, EventStamp)>, EventError> {
        let (action, known) = match event.op {
            Op::Read(variable) => (Action::Read, variable.0 != u32::MAX),
            Op::Write(variable) => (Action::Write, variable.0 != u32::MAX),
            Op::Update(variable) => (Action::Update, variable.0 != u32::MAX),
            Op::CommutingUpdate(variable) => (Action::CommutingUpdate, variable.0 != u32::MAX),
            Op::Alloc(_) | Op::SplitVariable { .. } => (Action::Alloc, false),
            Op::Free(variable) => (Action::Free, variable.0 != u32::MAX),
            _ => return Ok(None),
        };
        let number = self.counts.events;
        self.counts.events += 1;
        let row = self.threads.table.row(event.thread);
        let ready = |row: &usize| self.threads.rows.get(*row).is_some_and(|thread| thread.ready);
        match row.filter(ready) {
            Some(row) if known && number <= stamp::MAX_EVENTS => {
                Ok(Some(self.advance(row, number, action, event)))
            }
            _ => self.step_outside_validated(number, event, action, visitor),
        }
    }

    #[inline(never)]
    fn step_outside_validated(
        &mut self,
        number: EventNumber,
        event: &Event,
        action: Action,
        visitor: &mut impl Visitor,
    ) -> Result<Option<(usize, EventStamp)>, EventError> {
        let admitted: Result<usize, EventErrorKind> = self.admit(number, event);
        let row = match admitted {
            Ok(row) => row,
            Err(kind) => return self.reject(number, event, kind).map(|()| None),
        };
        if !std::mem::replace(&mut self.threads.rows[row].ready, true) {
            self.counts.threads += 1;
            visitor.started(row);
            self.forked(row, number, event, action, visitor);
        }
        Ok(Some(self.advance(row, number, action, event)))
    }

    #[inline]
    fn advance(
        &mut self,
        row: usize,
        number: EventNumber,
        action: Action,
        event: &Event,
    ) -> (usize, EventStamp) {
        let Self { counts, threads: Threads { rows, .. }, .. } = self;
        let (now, alone) = rows[row].advance(number, action, event);
        counts.transactions += u64::from(alone);
        counts.unary_transactions += u64::from(alone);
        (row, now)
    }
}
