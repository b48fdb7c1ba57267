//! Converts one trace format into the other, as the trace is read. The caller provides the output.

use std::io::{self, Write};

use checker::format::{
    AvtWriter, Batch, Format, Gap, Names, Summary, TextWriter, TraceReader, TraceWriter, WriteError,
};
use parquet::errors::ParquetError;
use tempfile::NamedTempFile;

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

/// Converts a trace. Names may follow the events that have them, so that for text a trace in avtrace's own format is
/// read twice, of which a copy is made first where it cannot be.
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
    if (to, reader.format()) != (Format::Text, Format::Avt) {
        return copy(input, &mut reader, lenient, Copy::new(to, out)?, bar);
    }
    if input.is_mapped() {
        let names = read::names(input, reader, lenient, bar)?;
        let mut reader = input.reader(lenient).map_err(InputError::from)?;
        return copy(input, &mut reader, lenient, Copy::text(names, out), bar);
    }
    let (again, converted) =
        Spool::of(|spool| copy(input, &mut reader, lenient, Copy::new(Format::Avt, spool)?, bar))?;
    convert(&again.input, to, lenient, out, bar)?;
    Ok(converted)
}

/// Passes a trace to a writer.
fn copy(
    input: &Input,
    reader: &mut TraceReader<'_>,
    lenient: bool,
    mut writer: Copy<'_>,
    bar: &mut ReadBar,
) -> Result<Converted, ConvertFailure> {
    let incomplete =
        read::to_end(input, reader, lenient, bar, &mut writer).map_err(
            |stopped| match stopped {
                Stopped::Read(error) => ConvertFailure::Input(error.into()),
                Stopped::Consumer(error) => error.into(),
            },
        )?;
    writer.out.end(reader.names())?;
    let read = reader.summary();
    if read.events == 0
        && incomplete.is_none()
        && let Some(error) = input.without_events(reader)
    {
        return Err(error.into());
    }
    Ok(Converted { read, incomplete })
}

/// Copy of a trace in avtrace's own format, to be read more than once.
#[derive(Debug)]
pub struct Spool {
    /// The copy.
    pub input: Input,
    _file: NamedTempFile,
}

impl Spool {
    /// Lets a conversion write a copy.
    ///
    /// # Errors
    /// When the trace cannot be read, or the copy not be made.
    pub fn of(
        write: impl FnOnce(&mut dyn Write) -> Result<Converted, ConvertFailure>,
    ) -> Result<(Self, Converted), ConvertFailure> {
        let mut file = NamedTempFile::new().map_err(ConvertFailure::Spool)?;
        let converted = write(&mut file).map_err(|error| match error {
            ConvertFailure::Output(error) => ConvertFailure::Spool(io::Error::other(error)),
            error => error,
        })?;
        let input = Input::open(file.path())?;
        if !input.is_mapped() {
            return Err(ConvertFailure::Spool(io::ErrorKind::Unsupported.into()));
        }
        Ok((Self { input, _file: file }, converted))
    }
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
    if to == Format::Text {
        // Segments may be removed before they are read again.
        let (copy, converted) =
            Spool::of(|copy| convert_recording(recorded, Format::Avt, lenient, copy, bar))?;
        convert(&copy.input, to, lenient, out, bar)?;
        return Ok(converted);
    }
    let mut writer = Copy::new(to, out)?;
    let joined = recorded.read(lenient, bar, &mut writer).map_err(|stopped| match stopped {
        SegmentsStopped::Input(error) => ConvertFailure::Input(error),
        SegmentsStopped::Consumer(error) => error.into(),
    })?;
    let Joined { names, incomplete, summary: read, .. } = joined;
    writer.out.end(&names)?;
    Ok(Converted { read, incomplete })
}

struct Copy<'out> {
    out: Box<dyn TraceWriter + 'out>,
    /// Names of the whole trace. Those that come with its events may lack some.
    names: Option<Names>,
}

impl<'out> Copy<'out> {
    fn new(to: Format, out: &'out mut dyn Write) -> Result<Self, WriteError> {
        let out: Box<dyn TraceWriter> = match to {
            Format::Text => Box::new(TextWriter::new(out)),
            Format::Avt => Box::new(AvtWriter::new(out)?),
        };
        Ok(Self { out, names: None })
    }

    fn text(names: Names, out: &'out mut dyn Write) -> Self {
        Self { out: Box::new(TextWriter::new(out)), names: Some(names) }
    }
}

impl Consumer for Copy<'_> {
    type Error = WriteError;

    const DONE: &'static str = "converted";

    fn events(&mut self, batch: &Batch<'_>) -> Result<(), Self::Error> {
        let names = self.names.as_ref().unwrap_or(batch.names);
        self.out.batch(&Batch { names, ..*batch })
    }

    fn gap(&mut self, gap: Gap, _names: &Names) -> Result<(), Self::Error> {
        self.out.gap(gap)
    }
}
