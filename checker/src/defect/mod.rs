//! Defects: findings grouped into what a person would fix, classed and ordered (`docs/semantics.md#defects`). Names
//! come from the caller; the table of classes is in `class`.
//!
//! ```
//! use checker::defect::{Class, Describe, PlaceInfo, RegionInfo, SubjectInfo, defects};
//! use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
//! use checker::finding::Object;
//! use checker::{Checker, Davida, Options};
//!
//! struct Names;
//!
//! impl Describe for Names {
//!     fn region(&mut self, _: RegionId) -> RegionInfo {
//!         RegionInfo { name: "add".to_owned(), ..RegionInfo::default() }
//!     }
//!     fn place(&mut self, location: LocationId) -> PlaceInfo {
//!         PlaceInfo { text: format!("step {}", location.0), ..PlaceInfo::default() }
//!     }
//!     fn subject(&mut self, _: Object) -> SubjectInfo {
//!         SubjectInfo { name: "balance".to_owned(), ..SubjectInfo::default() }
//!     }
//! }
//!
//! let mut checker = Davida::new(Options::default());
//! let x = VarId(0);
//! let trace = [(0, Op::Begin(RegionId(0))), (0, Op::Read(x)), (1, Op::Write(x)), (0, Op::Write(x))];
//! for (line, (thread, op)) in (0..).zip(trace) {
//!     checker.event(&Event { thread: ThreadId(thread), op, location: LocationId(line) })?;
//! }
//! let found = defects(&checker.finish(), &mut Names);
//! assert_eq!(found[0].class, Class::Likely);
//! for reason in &found[0].reasons {
//!     println!("{reason}");
//! }
//! # Ok::<(), checker::EventError>(())
//! ```

mod candidate;
mod class;
mod dependence;
mod describe;
mod fact;
pub mod fingerprint;
mod group;
mod guard;
mod model;
mod pattern;
mod usage;

use crate::finding::Findings;
pub(crate) use candidate::{Names, PlaceKey};

pub use crate::finding::{GapKind, Obstacle};
pub use class::Class;
pub use dependence::{Certainty, Dependence, Steps};
pub use describe::{Describe, PlaceInfo, RegionInfo, SubjectInfo};
pub use fact::{Origin, Pattern, Reason, RegionRole};
pub use model::{Defect, Gap};

/// Groups findings into defects, in the order of the report: by class, then by the weight of the reasons, then by the
/// clarity of the violation that is shown and by names.
///
/// Findings of [`Davida`](crate::Davida) are grouped by their cuts. Those of other checkers with witnesses are
/// grouped by the region and both ends of the witness; checkers without witnesses have no defects.
pub fn defects(findings: &Findings, names: &mut dyn Describe) -> Vec<Defect> {
    let mut names = Names::new(names);
    let candidates = candidate::all(findings, &mut names);
    group::defects(candidates, findings, &mut names)
}
