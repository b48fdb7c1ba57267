//! `avtrace probes` and `--list-regions`: list the probes or regions of a program, without a run.

use std::io::{self, Write as _};

use super::{
    Failure,
    options::run_options,
    output::{check_destination, destination, width},
};
use crate::{
    cli::{Format, RunArgs},
    session::{self, listing::Listing},
    sys::output::Destination,
};

pub(super) fn regions(arguments: &RunArgs) -> Result<u8, Failure> {
    let listing = inspect(arguments)?;
    let text = match arguments.output.format {
        Format::Text => {
            listing.regions(width(&destination(&arguments.output, Destination::Stdout)))
        }
        Format::Json => listing.regions_as_json().map_err(Failure::internal)?,
    };
    print(arguments, &text)
}

pub(super) fn probes(arguments: &RunArgs) -> Result<u8, Failure> {
    if arguments.list_regions {
        return regions(arguments);
    }
    let listing = inspect(arguments)?;
    let text = match arguments.output.format {
        Format::Text => listing.probes(),
        Format::Json => listing.probes_as_json().map_err(Failure::internal)?,
    };
    print(arguments, &text)
}

fn inspect(arguments: &RunArgs) -> Result<Listing, Failure> {
    check_destination(&destination(&arguments.output, Destination::Stderr))?;
    let (options, _) = run_options(arguments)?;
    session::inspect(&options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })
}

/// Writes the list to standard output, which no program uses.
fn print(arguments: &RunArgs, text: &str) -> Result<u8, Failure> {
    let written = match &arguments.output.output {
        Some(path) => std::fs::write(path, text),
        None => io::stdout().write_all(text.as_bytes()),
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::internal(format!("cannot write the list: {error}")))
        }
        _ => Ok(0),
    }
}
