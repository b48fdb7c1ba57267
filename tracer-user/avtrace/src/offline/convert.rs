//! Converts one trace format into the other, as the trace is read. The caller provides the output.

use std::io::{self, Write};

use checker::format::{
    AvtWriter, Batch, Format, Gap, Names, Summary, TextWriter, TraceWriter, WriteError,
};
use parquet::errors::ParquetError;

use super::input::{Input, InputError};
use super::read::{self, Consumer, Stopped};
use super::segments::{Joined, Recording, SegmentsStopped};
use crate::progress::ReadBar;

/// Result of a conversion.
#[derive(Debug)]
pub struct Converted {
    /// Counts of the trace read.
    pub read: Summary,
    /// Reason why only a part of the trace was converted.
    pub incomplete: Option<String>,
}

/// Errors of a conversion.
#[derive(Debug, thiserror::Error)]
pub enum ConvertFailure {
    /// The trace could not be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The output could not be written.
    #[error(transparent)]
    Output(#[from] WriteError),
    /// A table could not be written.
    #[error(transparent)]
    Table(#[from] ParquetError),
    /// No copy of the trace could be made.
    #[error(transparent)]
    Spool(io::Error),
}

/// Converts a trace.
///
/// # Errors
/// When it cannot be read or written. The output is incomplete then.
pub fn convert(
    input: &Input,
    to: Format,
    lenient: bool,
    out: &mut dyn Write,
    bar: &mut ReadBar,
) -> Result<Converted, ConvertFailure> {
    let mut reader = input.reader(lenient).map_err(InputError::from)?;
    let mut writer = Copy::new(to, out)?;
    let incomplete = read::to_end(input, &mut reader, lenient, bar, &mut writer).map_err(
        |stopped| match stopped {
            Stopped::Read(error) => ConvertFailure::Input(error.into()),
            Stopped::Consumer(error) => error.into(),
        },
    )?;
    writer.0.end(reader.names())?;
    let read = reader.summary();
    if read.events == 0
        && incomplete.is_none()
        && let Some(error) = input.without_events(&reader)
    {
        return Err(error.into());
    }
    Ok(Converted { read, incomplete })
}

/// Converts a recording in segments to one trace.
///
/// # Errors
/// When a segment cannot be read, or the trace not be written. The output is incomplete then.
pub fn convert_recording(
    recorded: &Recording,
    to: Format,
    lenient: bool,
    out: &mut dyn Write,
    bar: &mut ReadBar,
) -> Result<Converted, ConvertFailure> {
    let mut writer = Copy::new(to, out)?;
    let joined = recorded.read(lenient, bar, &mut writer).map_err(|stopped| match stopped {
        SegmentsStopped::Input(error) => ConvertFailure::Input(error),
        SegmentsStopped::Consumer(error) => error.into(),
    })?;
    let Joined { names, incomplete, summary: read, .. } = joined;
    writer.0.end(&names)?;
    Ok(Converted { read, incomplete })
}

struct Copy<'out>(Box<dyn TraceWriter + 'out>);

impl<'out> Copy<'out> {
    fn new(to: Format, out: &'out mut dyn Write) -> Result<Self, WriteError> {
        Ok(Self(match to {
            Format::Text => Box::new(TextWriter::new(out)),
            Format::Avt => Box::new(AvtWriter::new(out)?),
        }))
    }
}

impl Consumer for Copy<'_> {
    type Error = WriteError;

    const DONE: &'static str = "converted";

    fn events(&mut self, batch: &Batch<'_>) -> Result<(), Self::Error> {
        self.0.batch(batch)
    }

    fn gap(&mut self, gap: Gap, _names: &Names) -> Result<(), Self::Error> {
        self.0.gap(gap)
    }
}
