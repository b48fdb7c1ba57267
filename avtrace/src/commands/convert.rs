//! `avtrace convert`: converts a trace from one format to the other.

use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
};

use checker::format::Format;

use super::{Failure, complain};
use crate::{
    cli::{ConvertArgs, TraceFormatArg},
    offline::{self, ConvertFailure, Input, InputError, Recording},
    progress::ReadBar,
    sys::output::OutputFile,
};

pub(super) fn run(arguments: &ConvertArgs) -> Result<u8, Failure> {
    let output = arguments.output.as_deref().or(arguments.output_option.as_deref());
    let Some(output) = output else { return Err(Failure::usage("no output was named")) };
    let to = match arguments.to {
        Some(TraceFormatArg::Text) => Format::Text,
        Some(TraceFormatArg::Avt) => Format::Avt,
        None if output.extension().is_some_and(|extension| extension == "avt") => Format::Avt,
        None => Format::Text,
    };
    let to_stdout = output == Path::new("-");
    if to_stdout && to == Format::Avt && io::stdout().is_terminal() {
        return Err(Failure::usage("a binary trace is nothing for a terminal: name a file"));
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
    let convert = |out: &mut dyn Write| {
        let lenient = arguments.lenient;
        let converted = match &input {
            Trace::File(input) => {
                let mut bar = ReadBar::on_terminal(input.shown(), input.length());
                offline::convert(input, to, lenient, out, &mut bar)
            }
            Trace::Segments(recording) => {
                let mut bar = ReadBar::on_terminal(recording.name(), Some(recording.length()));
                offline::convert_recording(recording, to, lenient, out, &mut bar)
            }
        };
        converted.map_err(|error| match error {
            ConvertFailure::Input(error) => Failure::input(error),
            ConvertFailure::Output(error) => write_error(&error),
        })
    };
    let converted = if to_stdout {
        convert(&mut io::stdout().lock())?
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

/// A trace to be converted.
enum Trace {
    File(Input),
    Segments(Recording),
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
