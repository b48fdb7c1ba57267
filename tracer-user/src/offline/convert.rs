//! Turning one trace format into the other, as it is read. Where the bytes go is the caller's affair.

use std::io::Write;

use checker::format::{
    AvtWriter, Batch, Format, Gap, Names, Summary, TextWriter, TraceWriter, WriteError,
};

use super::input::{Input, InputError};
use super::progress::Progress;
use super::read::{self, Consumer, Stopped};

/// What was converted.
#[derive(Debug)]
pub struct Converted {
    /// What was read.
    pub read: Summary,
    /// Why it is not all of the trace.
    pub incomplete: Option<String>,
}

/// Why a trace could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertFailure {
    /// It could not be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It could not be written.
    #[error(transparent)]
    Output(#[from] WriteError),
}

/// Converts a trace.
///
/// # Errors
/// When it cannot be read or written. What was written by then is without its end.
pub fn convert(
    input: &Input,
    to: Format,
    lenient: bool,
    out: &mut dyn Write,
    progress: &mut Progress,
) -> Result<Converted, ConvertFailure> {
    let mut reader = input.reader(lenient).map_err(InputError::from)?;
    let mut writer: Copy<'_> = Copy(match to {
        Format::Text => Box::new(TextWriter::new(out)),
        Format::Avt => Box::new(AvtWriter::new(out)?),
    });
    let incomplete =
        read::to_end(input, &mut reader, lenient, progress, &mut writer).map_err(|stopped| {
            match stopped {
                Stopped::Read(error) => ConvertFailure::Input(error.into()),
                Stopped::Consumer(error) => error.into(),
            }
        })?;
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
