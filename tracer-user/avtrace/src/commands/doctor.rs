//! `avtrace doctor`: reports which parts of avtrace work on this machine.

use super::{
    Failure,
    output::{check_file, has_color, width},
};
use crate::{
    cli::{DEFAULT_BUFFER_MIB, DoctorArgs, PlainFormat},
    doctor,
};
use linux::output::{Destination, write_output};

/// Exit status where no back end works.
const UNUSABLE: u8 = 1;

pub(super) fn run(arguments: &DoctorArgs) -> Result<u8, Failure> {
    let destination = arguments.output.clone().map_or(Destination::Stdout, Destination::File);
    if let Some(path) = &arguments.output {
        check_file("diagnosis", path)?;
    }
    let diagnosis = doctor::examine(DEFAULT_BUFFER_MIB << 20);
    let text = match arguments.format {
        PlainFormat::Text => {
            let color = has_color(arguments.color, &destination);
            doctor::render(&diagnosis, color, width(&destination))
        }
        PlainFormat::Json => diagnosis.to_json().map_err(Failure::internal)?,
    };
    write_output(&destination, text.as_bytes()).map_err(Failure::internal)?;
    Ok(if diagnosis.is_usable() { 0 } else { UNUSABLE })
}
