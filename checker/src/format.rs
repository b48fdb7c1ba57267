//! Trace formats: readers and writers of text and `.avt` traces, and the names that go with them. Bytes come from and
//! go to the caller's readers and writers; this module opens no file and checks no trace.
//!
//! [`TraceReader`] reads everything. Its input may be text or `.avt`, compressed with gzip or Zstandard or
//! not, a slice of memory or a pipe:
//!
//! ```
//! use checker::format::{ReadOptions, TraceReader};
//! use checker::{Checker, Davida, Options};
//!
//! let text = b"T1|begin(add)|1\nT1|r(x)|2\nT2|w(x)|9\nT1|w(x)|3\nT1|end|4\n";
//! let mut checker = Davida::new(Options::default());
//! let mut reader = TraceReader::from_reader(&text[..], ReadOptions::new("add.std"))?;
//! reader.check(&mut checker)?;
//! let findings = checker.finish();
//! let violation = &findings.violations[0];
//! assert_eq!(reader.names().region_label(violation.region), "add");
//! # Ok::<(), checker::format::ReadError>(())
//! ```
//!
//! [`convert()`] turns one format into the other; recorders write to an [`AvtWriter`], too.

mod avt;
mod batch;
mod compression;
mod convert;
mod describe;
mod error;
mod ids;
mod input;
mod intern;
mod join;
mod names;
mod read;
mod segment;
mod text;

pub use avt::AvtWriter;
pub use batch::{Batch, Gap, Item, ObservedValue, Summary};
pub use compression::Compression;
pub use convert::{ConvertError, TraceWriter, WriteError, convert};
pub use describe::describe;
pub use error::{BlockError, LineError, Place, ReadError, Reason};
pub use join::{JoinError, Joiner};
pub use names::{
    CodeAddress, Frame, IdSpace, Location, LocationKind, Lost, Module, ModuleId, NO_LOCATION,
    Names, Object, ObjectKind, Process, Property, Region, Segment, SourceExcerpt, Space, Thread,
    location_number, numbered_location,
};
pub use read::{Format, ReadOptions, TraceReader};
pub use segment::{Descriptions, SegmentWriter};
pub use text::{MAX_LINE, TextWriter};
