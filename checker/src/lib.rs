//! Exact atomicity checking of event traces, with witnesses: events in by value, findings out. No I/O, no
//! printing, no operating system.
//!
//! ```
//! use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
//! use checker::{Checker, Davida, Options};
//!
//! let mut checker = Davida::new(Options::default());
//! let x = VarId(0);
//! let trace = [(0, Op::Begin(RegionId(0))), (0, Op::Read(x)), (1, Op::Write(x)), (0, Op::Write(x))];
//! for (line, (thread, op)) in (0..).zip(trace) {
//!     checker.event(&Event { thread: ThreadId(thread), op, location: LocationId(line) })?;
//! }
//! let findings = checker.finish();
//! assert_eq!(findings.counts.violations, 1);
//! assert_eq!(findings.violations[0].edges.len(), 2);
//! # Ok::<(), checker::EventError>(())
//! ```
//!
//! Traces in files are read by [`format::TraceReader`], which passes them to any checker. [`Davida`] is the
//! one to begin with; [`RegionTrack`], [`AeroDrome`], [`Velodrome`] and [`DoubleChecker`] answer a part of
//! its questions in other ways, so that all can be compared on one trace. [`CommitNode`] asks another one: whether
//! all interleavings of the trace are atomic.
//!
//! ```
//! use checker::format::{ReadOptions, TraceReader};
//! use checker::{Checker, Davida, Options};
//!
//! let file = b"T1|begin(add)|1\nT1|r(x)|2\nT2|w(x)|9\nT1|w(x)|3\nT1|end|4\n";
//! let mut reader = TraceReader::from_reader(&file[..], ReadOptions::new("add.std"))?;
//! let mut davida = Davida::new(Options::default());
//! reader.check(&mut davida)?;
//! let findings = davida.finish();
//! assert_eq!(findings.serializable, Some(false));
//! assert_eq!(reader.names().region_label(findings.violations[0].region), "add");
//! # Ok::<(), checker::format::ReadError>(())
//! ```
//!
//! [`defect::defects`] groups findings into defects: what a person would fix, with a class and reasons.
//!
//! [`deadlock::Observer`] lists potential deadlocks, whether the trace came to one or not.
//!
//! [`predict::Observer`] predicts defects that another order of the same events would have shown.
//!
//! [`gap::Observer`] lists where other threads could have come in, whether they did or not.
//!
//! [`reduction::select`] selects the events of a trace on which its verdicts depend.
//!
//! # Requirements
//!
//! The standard library, on any system: the readers and writers of traces take `std::io` streams, and all tables are
//! `std`'s. There is no `no_std` version, as it would cost a second hash table and a second set of readers. Without the
//! default feature `compression`, compressed traces are refused.
//!
//! The feature `serde` implements `Serialize` and `Deserialize` for events, findings and kinds of objects; names of
//! variants are in snake case.
//!
//! # Duties of the caller
//!
//! Ids are dense: tables grow with the largest id, 128 bytes for a variable. An id that the operating system
//! gives out again, to a thread or for memory, is a new id here, or the events say that the old one ended
//! ([`Op::Alloc`], [`Op::Reset`]). Lost events are reported by [`Checker::gap`].
//!
//! # Costs
//!
//! Memory grows with variables, locks, threads that have not ended, distinct witnesses and cuts (both limited by
//! [`Options`]); never with the length of the trace, but for [`CommitNode`], which stores all different transactions.
//! `docs/benchmarks.md` gives speeds and their bounds.
//!
//! [`Op::Alloc`]: event::Op::Alloc
//! [`Op::Reset`]: event::Op::Reset
#![forbid(unsafe_code)]

mod aerodrome;
mod check;
mod commit_node;
mod davida;
pub mod deadlock;
pub mod defect;
mod doublechecker;
mod error;
pub mod event;
pub mod finding;
pub mod format;
pub mod gap;
mod hb;
pub mod interleaving_tree;
mod must_order;
pub mod predict;
pub mod reduction;
mod regiontrack;
mod vector;
mod velodrome;
mod verdicts;

pub use aerodrome::{AeroDrome, Detection};
pub use check::{Capabilities, Checker, DeferredChecker, Options, Regions, Relation};
pub use commit_node::CommitNode;
pub use davida::Davida;
pub use doublechecker::{DoubleChecker, FirstPass, Suspects, Work};
pub use error::{EventError, EventErrorKind};
pub use finding::{Atomicity, Property, Theorem, Unserializable};
pub use hb::Timestamp;
pub use regiontrack::RegionTrack;
pub use velodrome::Velodrome;

/// The happens-before engine that all checkers share, for checkers of one's own (feature `engine`).
///
/// An [`Engine`](engine::Engine) turns events into dependencies and passes them to a
/// [`Visitor`](engine::Visitor). `examples/racy_accesses.rs` is a small checker on it. This interface may
/// change in any release.
#[cfg(feature = "engine")]
pub mod engine {
    pub use crate::hb::{Dependency, Engine, EventStamp, Visitor, edge};
}
