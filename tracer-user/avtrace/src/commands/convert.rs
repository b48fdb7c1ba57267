//! `avtrace convert`: converts a trace from one format to the other.

use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
};

use checker::format::Format;

use super::{Failure, complain};
use crate::{
    cli::{ConvertArgs, TraceFormatArg},
    offline::{self, ConvertFailure, Converted, Input, InputError, Recording, Spool},
    progress::ReadBar,
};
use linux::output::OutputFile;

pub(super) fn run(arguments: &ConvertArgs) -> Result<u8, Failure> {
    let output = arguments.output.as_deref().or(arguments.output_option.as_deref());
    let Some(output) = output else { return Err(Failure::usage("no output was named")) };
    let to = match arguments.to {
        Some(to) => to,
        None if output.extension().is_some_and(|extension| extension == "avt") => {
            TraceFormatArg::Avt
        }
        None if output.extension().is_some_and(|extension| extension == "parquet") => {
            TraceFormatArg::Parquet
        }
        None => TraceFormatArg::Text,
    };
    let to_stdout = output == Path::new("-");
    if to_stdout && to != TraceFormatArg::Text && io::stdout().is_terminal() {
        return Err(Failure::usage("binary output is nothing for a terminal: name a file"));
    }
    let input = open(&arguments.input).map_err(Failure::input)?;
    let write_error = |error: &dyn std::fmt::Display| {
        let target = if to_stdout {
            "standard output".to_owned()
        } else {
            format!("`{}`", output.display())
        };
        Failure::internal(format!("failed to write the trace to {target}: {error}"))
    };
    let convert = |out: &mut (dyn Write + Send)| {
        let lenient = arguments.lenient;
        let converted = match to {
            TraceFormatArg::Text => input.convert(Format::Text, lenient, out),
            TraceFormatArg::Avt => input.convert(Format::Avt, lenient, out),
            TraceFormatArg::Parquet => events(&input, lenient, out),
        };
        converted.map_err(|error| failure(error, &write_error))
    };
    let converted = if to_stdout {
        convert(&mut io::stdout())?
    } else {
        let mut file = OutputFile::create(output).map_err(|error| write_error(&error))?;
        let converted = convert(&mut file)?;
        file.commit().map_err(|error| write_error(&error))?;
        converted
    };
    match converted.incomplete {
        Some(why) => {
            complain(&why);
            Ok(3)
        }
        None => Ok(0),
    }
}

/// Returns the error of a conversion for the user.
fn failure(
    error: ConvertFailure,
    write_error: &dyn Fn(&dyn std::fmt::Display) -> Failure,
) -> Failure {
    match error {
        ConvertFailure::Input(error) => Failure::input(error),
        ConvertFailure::Output(error) => write_error(&error),
        ConvertFailure::Table(error) => write_error(&error),
        ConvertFailure::Spool(error) => Failure::internal(format!(
            "failed to copy the trace to a file for the time being: {error}; $TMPDIR names the directory for it"
        )),
    }
}

/// Writes the events as a table. Names may follow the events that have them, so the trace is read twice: of what is no
/// file in avtrace's own format a copy is made first.
fn events(
    trace: &Trace,
    lenient: bool,
    out: &mut (dyn Write + Send),
) -> Result<Converted, ConvertFailure> {
    let (copy, converted) = match trace {
        Trace::File(input) if input.is_mapped() => {
            let mut bar = ReadBar::on_terminal(input.shown(), input.length());
            return offline::write_events(input, lenient, out, &mut bar);
        }
        _ => Spool::of(|copy| trace.convert(Format::Avt, lenient, copy))?,
    };
    let mut bar = ReadBar::on_terminal(copy.input.shown(), copy.input.length());
    offline::write_events(&copy.input, lenient, out, &mut bar)?;
    Ok(converted)
}

/// A trace to be converted.
enum Trace {
    File(Input),
    Segments(Recording),
}

impl Trace {
    fn convert(
        &self,
        to: Format,
        lenient: bool,
        out: &mut dyn Write,
    ) -> Result<Converted, ConvertFailure> {
        match self {
            Self::File(input) => {
                let mut bar = ReadBar::on_terminal(input.shown(), input.length());
                offline::convert(input, to, lenient, out, &mut bar)
            }
            Self::Segments(recording) => {
                let mut bar = ReadBar::on_terminal(recording.name(), Some(recording.length()));
                offline::convert_recording(recording, to, lenient, out, &mut bar)
            }
        }
    }
}

/// Opens a trace, or the recording in a directory.
fn open(path: &Path) -> Result<Trace, InputError> {
    if !offline::is_recording(path) {
        return Input::open(path).map(Trace::File);
    }
    let mut recordings = Recording::find(path)?;
    match (recordings.pop(), recordings.len()) {
        (Some(recording), 0) => Ok(Trace::Segments(recording)),
        (_, others) => {
            let name = path.to_string_lossy().into_owned();
            Err(InputError::Several { name, count: others + 1 })
        }
    }
}
