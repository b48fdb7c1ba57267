//! Result of an execution.

use std::rc::Rc;

use super::{image::Place, schedule::Schedule, thread::OperationId};
use linux::tracee::Ending;

/// Operation in an execution: times of its first and its last access that meets one of another thread. What it does
/// before and after could as well have been done at these times, so that no earlier call and no later return is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) operation: OperationId,
    pub(super) first: usize,
    pub(super) last: usize,
}

/// Result of an execution.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// End of the program; `None` for a deadlock, or an execution that was cut.
    pub(super) ending: Option<Ending>,
    pub(super) deadlock: bool,
    pub(super) output: String,
    pub(super) errors: String,
    pub(super) schedule: Schedule,
    pub(super) operations: Vec<Interval>,
    /// Accesses that meet accesses of other threads.
    pub(super) steps: Vec<(usize, Rc<Place>)>,
}
