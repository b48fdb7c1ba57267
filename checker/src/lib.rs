//! Exact atomicity checking of event traces, with witnesses: events in by value, findings out. No I/O, no
//! printing, no operating system.
//!
//! ```
//! use checker::event::{Event, LocationId, Op, RegionId, ThreadId, VarId};
//! use checker::{Checker, Davida, Options};
//!
//! let mut checker = Box::new(Davida::new(Options::default()));
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
//! Traces in files are read by [`format::TraceReader`], which hands them to any checker. [`Davida`] is the one to begin
//! with; [`RegionTrack`], [`AeroDrome`] and [`Velodrome`] answer a part of its questions in other ways, so that all can
//! be compared on one trace.
//!
//! # What it needs
//!
//! The standard library, on any system: the readers and writers of traces take `std::io` streams, and all tables are
//! `std`'s. There is no `no_std` version, as it would cost a second hash table and a second set of readers. Without the
//! default feature `compression`, compressed traces are refused.
#![forbid(unsafe_code)]

mod aerodrome;
mod check;
mod davida;
mod error;
pub mod event;
pub mod finding;
pub mod format;
mod hb;
mod regiontrack;
mod tally;
mod vector;
mod velodrome;

pub use aerodrome::{AeroDrome, Detection};
pub use check::{Checker, Options, Regions, Relation};
pub use davida::Davida;
pub use error::{EventError, Misfit};
pub use regiontrack::RegionTrack;
pub use velodrome::Velodrome;
