//! Conversion between formats: the interface of writers, and the loop between a reader and a writer. Each format's
//! writer has a file.

use super::batch::{Batch, Gap, Item, Summary};
use super::error::ReadError;
use super::names::Names;
use super::read::TraceReader;
use std::io;
use thiserror::Error;

/// A writer of a trace that is read from elsewhere.
pub trait TraceWriter {
    /// Writes events, and the names that they need and that were not written before.
    ///
    /// # Errors
    /// When writing fails, or the trace cannot be put into the format.
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
    /// The output failed.
    #[error("failed to write: {0}")]
    Io(#[from] io::Error),
    /// An event or a definition that uses an id before it is defined.
    #[error("{what} {id} is used, but {count} are defined")]
    Undefined {
        /// Kind of the id.
        what: &'static str,
        /// The id.
        id: u32,
        /// Number of defined ids; they are the ids below this.
        count: u32,
    },
    /// A definition whose id is neither the next nor a defined one.
    #[error("{what} {id} is defined, but {count} is next")]
    OutOfTurn {
        /// Kind of the id.
        what: &'static str,
        /// The id.
        id: u32,
        /// The next id.
        count: u32,
    },
    /// Text that is too long for a block.
    #[error("a definition of {length} bytes is longer than {limit}")]
    TooLong {
        /// Length, in bytes.
        length: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A value of an event that has been written, or is out of order.
    #[error("a value of event {event}, but that of event {expected} or a later one is next")]
    ValueOrder {
        /// Event of the value.
        event: u64,
        /// The first event that can have a value.
        expected: u64,
    },
}

/// Errors of converting a trace.
#[derive(Debug, Error)]
pub enum ConvertError {
    /// The input could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes the rest of a trace.
///
/// Conversion into `.avt` loses nothing. Text receives what a checker sees: events, gaps, and the identity
/// and name of each object. Addresses, call stacks, values and the description of the process are left out.
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
