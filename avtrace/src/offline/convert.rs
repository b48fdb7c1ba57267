//! Converts one trace format into the other, as the trace is read. The caller provides the output.

use std::io::Write;

use checker::format::{
    AvtWriter, Batch, Format, Gap, Names, Summary, TextWriter, TraceWriter, WriteError,
};

use super::input::{Input, InputError};
use super::read::{self, Consumer, Stopped};
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
    let mut writer: Copy<'_> = Copy(match to {
        Format::Text => Box::new(TextWriter::new(out)),
        Format::Avt => Box::new(AvtWriter::new(out)?),
    });
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

struct Copy<'out>(Box<dyn TraceWriter + 'out>);

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
