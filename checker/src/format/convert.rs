//! From one format into the other: what writers have in common, and the loop between a reader and one of them. How
//! each format is written lives in a file of its own.

use super::batch::{Batch, Gap, Item};
use super::error::ReadError;
use super::names::Names;
use super::read::{Summary, TraceReader};
use std::io;
use thiserror::Error;

/// Writes a trace that is read from somewhere else.
pub trait TraceWriter {
    /// Writes events, and what names they need that were not written before.
    ///
    /// # Errors
    /// When nothing can be written, or the trace cannot be put into the format.
    fn batch(&mut self, batch: &Batch<'_>) -> Result<(), WriteError>;

    /// Writes that events were lost here.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    fn gap(&mut self, gap: Gap) -> Result<(), WriteError>;

    /// Ends the trace, whose names are complete now.
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    fn end(&mut self, names: &Names) -> Result<(), WriteError>;
}

/// A trace that cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The output takes no more.
    #[error("failed to write: {0}")]
    Io(#[from] io::Error),
    /// An event or a definition that uses an id before it is defined.
    #[error("{what} {id} is used, but {count} are defined")]
    Undefined {
        /// What the id is of.
        what: &'static str,
        /// The id.
        id: u32,
        /// How many are defined; they have the ids below this.
        count: u32,
    },
    /// An id is defined that is neither the next nor one of those before.
    #[error("{what} {id} is defined, but {count} is next")]
    OutOfTurn {
        /// What the id is of.
        what: &'static str,
        /// The id.
        id: u32,
        /// The next id.
        count: u32,
    },
    /// Text that is too long for a block.
    #[error("a definition of {length} bytes is longer than {limit}")]
    TooLong {
        /// Its length, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A value of an event that was written before, or out of order.
    #[error("a value of event {event}, but that of event {expected} or a later one is next")]
    ValueOrder {
        /// The value's event.
        event: u64,
        /// The first event that can have a value.
        expected: u64,
    },
}

/// Why a trace could not be converted.
#[derive(Debug, Error)]
pub enum ConvertError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes everything that is left of a trace.
///
/// Into `.avt` nothing is lost. Into text goes what a checker sees, which is events, gaps, and which of them are of
/// one object, with the name of each; addresses, call stacks, values and what is known of the process stay behind.
///
/// ```
/// use checker::format::{AvtWriter, ReadOptions, TextWriter, TraceReader, convert};
///
/// let text = b"T1|begin(m)|1\nT1|w(x)|a.c:2\nT1|end|3\n";
/// let mut avt = AvtWriter::new(Vec::new())?;
/// convert(&mut TraceReader::from_bytes(text, ReadOptions::new("a.std"))?, &mut avt)?;
/// let avt = avt.into_inner();
/// let mut back = TextWriter::new(Vec::new());
/// convert(&mut TraceReader::from_bytes(&avt, ReadOptions::new("a.avt"))?, &mut back)?;
/// assert_eq!(back.into_inner(), text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the trace cannot be read or not be written. What was written by then is without its end.
pub fn convert(
    reader: &mut TraceReader<'_>,
    writer: &mut dyn TraceWriter,
) -> Result<Summary, ConvertError> {
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Events(batch) => writer.batch(&batch)?,
            Item::Gap(gap) => writer.gap(gap)?,
        }
    }
    writer.end(reader.names())?;
    Ok(reader.summary())
}
