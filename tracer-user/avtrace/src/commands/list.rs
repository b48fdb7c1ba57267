//! `avtrace probes` and `--list-regions`: list the probes or regions of a program, without a run.

use std::io;

use super::{
    Failure,
    options::run_options,
    output::{check_file, width},
};
use crate::{
    cli::{Format, FormatTo, OutputArgs, PlainFormat, RunArgs},
    session::{self, listing::Listing},
};
use linux::output::{Destination, write_output};

pub(super) fn regions(arguments: &RunArgs) -> Result<u8, Failure> {
    let form = Form::new(&arguments.output)?;
    let listing = inspect(arguments)?;
    let text = match form.format {
        PlainFormat::Text => listing.regions(width(&form.destination)),
        PlainFormat::Json => listing.regions_as_json().map_err(Failure::internal)?,
    };
    print(&form.destination, &text)
}

pub(super) fn probes(arguments: &RunArgs) -> Result<u8, Failure> {
    if arguments.list_regions {
        return regions(arguments);
    }
    let form = Form::new(&arguments.output)?;
    let listing = inspect(arguments)?;
    let text = match form.format {
        PlainFormat::Text => listing.probes(),
        PlainFormat::Json => listing.probes_as_json().map_err(Failure::internal)?,
    };
    print(&form.destination, &text)
}

/// Form and destination of a list.
struct Form {
    format: PlainFormat,
    destination: Destination,
}

impl Form {
    fn new(arguments: &OutputArgs) -> Result<Self, Failure> {
        let [FormatTo { format, file }] = arguments.formats.as_slice() else {
            return Err(Failure::usage("a list has one form: give --format once"));
        };
        let format = match format {
            Format::Text => PlainFormat::Text,
            Format::Json => PlainFormat::Json,
            _ => {
                return Err(Failure::usage(
                    "this form is for reports: a list takes --format text or --format json",
                ));
            }
        };
        let file = file.as_ref().or(arguments.output.as_ref());
        if let Some(path) = file {
            check_file("list", path)?;
        }
        // Standard output is used by no program here.
        let destination = file.cloned().map_or(Destination::Stdout, Destination::File);
        Ok(Self { format, destination })
    }
}

fn inspect(arguments: &RunArgs) -> Result<Listing, Failure> {
    let (options, _) = run_options(arguments)?;
    session::inspect(&options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })
}

fn print(destination: &Destination, text: &str) -> Result<u8, Failure> {
    match write_output(destination, text.as_bytes()) {
        Err(error) if error.source.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::internal(error))
        }
        _ => Ok(0),
    }
}
