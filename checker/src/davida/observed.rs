//! Variables that some thread has read after another one wrote them. If no thread ever does, overwriting the variable
//! has no effect: it is padding that is copied with a structure, or a note for debuggers.

use crate::event::{Event, EventNumber, Op, ThreadId, VarId};
use crate::finding::{Action, Edge, Object, Violation};

/// Last writer of a variable, and its readers so far.
#[derive(Clone, Copy, Default)]
struct History {
    /// Event since which the variable is the same one.
    born: EventNumber,
    writer: Option<ThreadId>,
    is_observed: bool,
}

/// History of each variable.
#[derive(Clone, Default)]
pub(super) struct Observed(Vec<History>);

impl Observed {
    /// Notes an access, or the division of a variable, of which both parts keep the past.
    ///
    /// Deferred accesses need not be noted: the thread itself wrote the value, or its read of it came as an event.
    #[inline]
    pub(super) fn note(&mut self, event: &Event, number: EventNumber) {
        match event.op {
            Op::Read(variable) => self.of(variable).read_by(event.thread),
            Op::Write(variable) => self.of(variable).writer = Some(event.thread),
            Op::Update(variable) => {
                let history = self.of(variable);
                history.read_by(event.thread);
                history.writer = Some(event.thread);
            }
            Op::SplitVariable { from, to } if from != to => {
                *self.of(to) = History { born: number, ..*self.of(from) };
            }
            // Findings may be about the life that ends here, so the reads in it still count.
            Op::Alloc(variable) => {
                let history = self.of(variable);
                (history.writer, history.born) = (None, number);
            }
            _ => {}
        }
    }

    #[inline]
    fn of(&mut self, variable: VarId) -> &mut History {
        let index = variable.index();
        if index >= self.0.len() {
            self.0.resize(index + 1, History::default());
        }
        &mut self.0[index]
    }

    /// Returns the event since which a variable is the same one.
    pub(super) fn born(&self, variable: VarId) -> EventNumber {
        self.0.get(variable.index()).map_or(0, |history| history.born)
    }

    /// Returns whether the first or the last dependency of a witness is from one write to another, of a variable that
    /// no thread has read after another one wrote it.
    pub(super) fn is_unread(&self, violation: &Violation) -> bool {
        let is_unread = |edge: &Edge| {
            // An update that may be deferred comes as a write: it has read its thread's own value.
            let overwrites = matches!(edge.source.action, Action::Write | Action::Update)
                && edge.sink.action == Action::Write;
            let variable = match edge.object {
                Object::Variable(variable) if overwrites => variable,
                _ => return false,
            };
            self.0.get(variable.index()).is_some_and(|history| !history.is_observed)
        };
        [violation.edges.first(), violation.edges.last()].into_iter().flatten().any(is_unread)
    }
}

impl History {
    #[inline]
    fn read_by(&mut self, thread: ThreadId) {
        self.is_observed |= self.writer != Some(thread);
    }
}
