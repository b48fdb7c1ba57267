//! `avtrace report`: shows JSON reports as text, or writes them in other forms.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use super::{Failure, check::at_most_once, complain, reports::Reports, triage, worse};
use crate::{
    cli::ReportArgs,
    report::{self, Report},
    sys::output::Destination,
};

pub(super) fn run(arguments: &ReportArgs) -> Result<u8, Failure> {
    at_most_once(Path::new("-"), &arguments.reports)?;
    let mut reports = Reports::new(&arguments.output, Destination::Stdout)?;
    let suppressions = triage::of_config(triage::config(arguments.no_config)?);
    let mut filter = triage::filter(&arguments.output, suppressions)?;
    let (mut status, mut all) = (0, Vec::new());
    for path in &arguments.reports {
        let read = match read(path) {
            Ok(read) => read,
            Err(error) => {
                complain(&error);
                status = worse(status, 3);
                continue;
            }
        };
        all.extend(read);
    }
    all.iter_mut().for_each(|report| filter.apply(report));
    if let Some(last) = all.last_mut() {
        filter.list_unused(last);
    }
    let mut entries = Vec::new();
    for report in &all {
        reports.add(report, None, None, all.len() > 1)?;
        entries.push(triage::entries(&arguments.output, report));
        if triage::fails(&arguments.output, report) {
            status = worse(status, arguments.output.error_exitcode);
        }
    }
    entries.retain(|entries| !entries.is_empty());
    let entries = triage::write_entries(&arguments.output, entries.join("\n"))?;
    reports.finish(&entries, false)?;
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
