//! `avtrace report`: shows JSON reports as text or writes them anew.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::{
    Failure,
    check::at_most_once,
    complain,
    output::{check_destination, destination, render},
    report_dir,
    summary::Summary,
    triage, worse,
};
use crate::{
    cli::{Format, ReportArgs},
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
    let is_directory = |path: &PathBuf| path.is_dir();
    let mut summary = arguments.reports.iter().any(is_directory).then(Summary::default);
    for path in &files(&arguments.reports)? {
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
    for report in &mut all {
        entries.push(triage::entries(&arguments.output, report));
        if triage::fails(&arguments.output, report) {
            status = worse(status, arguments.output.error_exitcode);
        }
        if let (Some(summary), Format::Text) = (&mut summary, arguments.output.format)
            && !summary.take(&arguments.output, report)
        {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        if summary.is_some() && arguments.output.format == Format::Text {
            text += &format!("{}:\n", report::printable(&report_dir::program(report)));
        }
        text += &render(report, &arguments.output, &destination)?;
    }
    if let (Some(summary), Format::Text) = (&summary, arguments.output.format) {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &summary.render();
    }
    entries.retain(|entries| !entries.is_empty());
    text += &triage::write_entries(&arguments.output, entries.join("\n"))?;
    write_output(&destination, text.as_bytes()).map_err(Failure::internal)?;
    Ok(status)
}

/// Returns the files of reports, those of directories among them.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let of_directory = report_dir::files(path).map_err(|error| {
            Failure::input(format!("cannot read the directory `{}`: {error}", path.display()))
        })?;
        if of_directory.is_empty() {
            return Err(Failure::input(format!(
                "`{}` has no reports (*.json): have runs write some with `avtrace run --report-dir`",
                path.display()
            )));
        }
        files.extend(of_directory);
    }
    Ok(files)
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
