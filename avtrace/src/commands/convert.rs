//! `avtrace convert`: converts a trace from one format to the other.

use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
};

use checker::format::Format;

use super::{Failure, complain};
use crate::{
    cli::{ConvertArgs, TraceFormatArg},
    offline::{self, ConvertFailure, Input},
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
    let input = Input::open(&arguments.input).map_err(Failure::input)?;
    let write_error = |error: &dyn std::fmt::Display| {
        let target = if to_stdout {
            "standard output".to_owned()
        } else {
            format!("`{}`", output.display())
        };
        Failure::internal(format!("failed to write the trace to {target}: {error}"))
    };
    let convert = |out: &mut dyn Write| {
        let mut bar = ReadBar::on_terminal(input.shown(), input.length());
        let converted = offline::convert(&input, to, arguments.lenient, out, &mut bar);
        drop(bar);
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
