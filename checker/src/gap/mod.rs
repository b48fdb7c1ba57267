//! Gaps: places of a region at which its thread can be interrupted between two steps that belong together, whether
//! another thread came in or not (`docs/semantics.md#gaps-of-regions`). A bug that one run does not show, and another
//! one may, is behind one of them: a thread that is delayed there gives the others time to get in.
//!
//! An [`Observer`] consumes the events that a checker does. It is independent of the checkers, and gives no verdict.
//!
//! ```
//! use checker::event::{Event, LocationId, LockId, Op, RegionId, ThreadId};
//! use checker::gap::{Kind, Observer};
//!
//! let (l, mut observer) = (LockId(0), Observer::default());
//! let check_then_act = [Op::Begin(RegionId(0)), Op::Acquire(l), Op::Release(l), Op::Acquire(l), Op::Release(l)];
//! let other = [Op::Begin(RegionId(1)), Op::Acquire(l), Op::Release(l)];
//! let steps = check_then_act.map(|op| (0, op)).into_iter().chain(other.map(|op| (1, op)));
//! for (line, (thread, op)) in (0..).zip(steps) {
//!     observer.event(&Event { thread: ThreadId(thread), op, location: LocationId(line) });
//! }
//! let gaps = observer.gaps();
//! assert_eq!((gaps.len(), gaps[0].kind, gaps[0].crossed, gaps[0].cut), (1, Kind::Lock, 1, 0));
//! ```

mod code;
mod list;
mod named;
mod object;
mod observer;
mod order;
mod promise;
mod thread;

use crate::event::{LocationId, RegionId};
use crate::finding::Object;

pub use named::{NamedGap, named};
pub use observer::Observer;

/// Kind of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "RegionGapKind"))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Kind {
    /// A lock is released, and acquired again.
    Lock,
    /// A lock is released, and another one acquired next.
    Section,
    /// Two accesses follow one another, and no lock is held from the one to the other.
    Access,
}

/// Data that both sides of a gap have to do with, and that another thread changes in between if it gets in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "GapData"))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Data {
    /// No access was seen.
    #[default]
    Unseen,
    /// A variable before the gap, and another one after it.
    Different,
    /// Variable that is on both sides.
    Same,
    /// A variable that is only read before the gap, and written after it.
    Checked,
}

/// Step of another thread that could come into a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Remote {
    /// Innermost region of the step, or the region that its thread follows.
    pub region: Option<RegionId>,
    /// Location of one such step.
    pub location: LocationId,
}

/// A gap into which another thread could get.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// Kind.
    pub kind: Kind,
    /// Innermost region that spans it.
    pub region: RegionId,
    /// Set if the thread only follows the region: the gap is in one iteration of it.
    pub is_followed: bool,
    /// Location of the step before the gap: the release of a lock, or an access.
    pub left: LocationId,
    /// Location of the step after it: the acquisition of a lock, or an access.
    pub returned: LocationId,
    /// The lock or the variable, in one execution; of a section gap and of accesses to two variables, both.
    pub objects: Vec<Object>,
    /// Times that a thread came from the one step to the other.
    pub crossed: u64,
    /// Crossings in which a step of another thread that conflicts with both came in between.
    pub cut: u64,
    /// Crossings with a second step that was made before in the same execution of the region: a loop came round.
    pub repeated: u64,
    /// Crossings with a wait of the thread in between.
    pub waited: u64,
    /// Data that both sides have to do with.
    pub data: Data,
    /// Locations of a read of it before a gap of locks, and of an access after the gap that changes it, if one does.
    pub data_at: Option<[LocationId; 2]>,
    /// Set if another thread takes both locks of a section gap in one execution of a region.
    pub together: bool,
    /// Number of other threads that could get in.
    pub other_threads: usize,
    /// Set if no thread with steps on these objects could get in, and one with such steps on other objects of the same
    /// class could.
    pub is_by_code: bool,
    /// Their steps with which they could, one of each region, in the order of regions.
    pub remotes: Vec<Remote>,
}
