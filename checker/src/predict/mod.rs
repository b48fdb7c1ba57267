//! Predicted defects: gaps of regions into which an access of another thread did not fall, but could have, in another
//! order of the trace's events that its synchronisation allows (`docs/semantics.md#predictions`).
//!
//! A candidate is a *gap*, two accesses of one execution of a region to one variable with none of the thread between
//! them that conflicts with both, and an access of another thread to the variable that conflicts with both. It is
//! predicted if an order is found (`replay`) in which the one falls into the other: one or both threads are held back
//! at the access, in the gap, or before the outermost section around an access, as a delay would do; all others go on
//! in the order of the trace as far as locks, forks, joins, signals and barriers let them. So each prediction has a
//! witness, and is feasible under the synchronisation of the trace. What values steer is not known: the reads that
//! find another write than in the trace are listed, and a prediction depends on them.
//!
//! Orders are looked for in windows of 2¹⁵ events, one after the other; what lies in two of them is not predicted, nor
//! what only an order of another kind allows. What the trace shows by itself is no prediction.
//!
//! ```
//! use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
//! use checker::predict::Observer;
//!
//! let x = VarId(0);
//! let trace = [
//!     (0, Op::Begin(RegionId(0))),
//!     (0, Op::Read(x)),
//!     (0, Op::Write(x)),
//!     (0, Op::End(None)),
//!     (1, Op::Write(x)),
//! ];
//! let mut observer = Observer::default();
//! for (line, (thread, op)) in (0..).zip(trace) {
//!     observer.event(&Event { thread: ThreadId(thread), op, location: LocationId(line) });
//! }
//! let found = observer.predictions();
//! let gap = (found[0].left.event, found[0].remote.event, found[0].returned.event);
//! assert_eq!(gap, (1, 4, 2));
//! assert!(found[0].depends_on.is_empty());
//! ```

mod locks;
mod named;
mod observer;
mod replay;
mod window;

use crate::event::{EventNumber, LocationId, RegionId, ThreadId, VarId};
use crate::finding::Action;

pub use named::{NamedPrediction, named};
pub use observer::Observer;

/// Access of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PredictedStep {
    /// Event of the trace.
    pub event: EventNumber,
    /// Thread.
    pub thread: ThreadId,
    /// Innermost region.
    pub region: Option<RegionId>,
    /// Variable.
    pub variable: VarId,
    /// Operation.
    pub action: Action,
    /// Code location.
    pub location: LocationId,
}

/// Access of another thread that could have fallen into a gap of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Prediction {
    /// Region.
    pub region: RegionId,
    /// Step before the gap.
    pub left: PredictedStep,
    /// Step after it.
    pub returned: PredictedStep,
    /// Access that would have to fall into it.
    pub remote: PredictedStep,
    /// Reads that find another write in that order than in the trace: the first ones.
    pub depends_on: Vec<PredictedStep>,
    /// Number of all of them.
    pub dependencies: u64,
}
