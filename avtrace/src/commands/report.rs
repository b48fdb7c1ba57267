//! `avtrace report`: shows JSON reports as text or writes them anew.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use super::{
    Failure,
    check::at_most_once,
    complain,
    output::{check_destination, destination, render},
    worse,
};
use crate::{
    cli::ReportArgs,
    report::{self, Report},
    sys::output::{Destination, write_output},
};

pub(super) fn run(arguments: &ReportArgs) -> Result<u8, Failure> {
    at_most_once(Path::new("-"), &arguments.reports)?;
    let destination = destination(&arguments.output, Destination::Stdout);
    check_destination(&destination)?;
    let (mut status, mut text) = (0, String::new());
    for path in &arguments.reports {
        let reports = match read(path) {
            Ok(reports) => reports,
            Err(error) => {
                complain(&error);
                status = worse(status, 3);
                continue;
            }
        };
        for report in reports {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &render(&report, &arguments.output, &destination)?;
            if report.has_findings() {
                status = worse(status, arguments.output.error_exitcode);
            }
        }
    }
    write_output(&destination, text.as_bytes()).map_err(Failure::internal)?;
    Ok(status)
}

fn read(path: &Path) -> Result<Vec<Report>, String> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        fs::read(path).map(|contents| bytes = contents)
    };
    read.map_err(|error| format!("cannot read `{name}`: {error}"))?;
    report::json::read_all(&bytes).map_err(|error| format!("{name}: {error}"))
}
