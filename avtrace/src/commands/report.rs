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
    triage, worse,
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
    let suppressions = triage::of_config(triage::config(arguments.no_config)?);
    let mut filter = triage::filter(&arguments.output, suppressions)?;
    let (mut status, mut all) = (0, Vec::new());
    for path in &arguments.reports {
        let reports = match read(path) {
            Ok(reports) => reports,
            Err(error) => {
                complain(&error);
                status = worse(status, 3);
                continue;
            }
        };
        all.extend(reports);
    }
    all.iter_mut().for_each(|report| filter.apply(report));
    if let Some(last) = all.last_mut() {
        filter.list_unused(last);
    }
    let (mut text, mut entries) = (String::new(), Vec::new());
    for report in &all {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &render(report, &arguments.output, &destination)?;
        entries.push(triage::entries(&arguments.output, report));
        if triage::fails(&arguments.output, report) {
            status = worse(status, arguments.output.error_exitcode);
        }
    }
    entries.retain(|entries| !entries.is_empty());
    text += &triage::write_entries(&arguments.output, entries.join("\n"))?;
    write_output(&destination, text.as_bytes()).map_err(Failure::internal)?;
    Ok(status)
}

/// Reads the reports in a file.
pub(super) fn read(path: &Path) -> Result<Vec<Report>, String> {
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
