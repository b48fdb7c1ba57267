//! `avtrace report`: shows reports as text, or writes them in other forms.

use std::path::{Path, PathBuf};

use super::{
    Failure, check::at_most_once, complain, load, report_dir, reports::Reports, summary::Summary,
    triage, worse,
};
use crate::{cli::ReportArgs, offline::Recording};
use linux::output::Destination;

pub(super) fn run(arguments: &ReportArgs) -> Result<u8, Failure> {
    at_most_once(Path::new("-"), &arguments.reports)?;
    let mut reports = Reports::new(&arguments.output, Destination::Stdout)?;
    let suppressions = triage::of_config(triage::config(arguments.no_config)?);
    let mut filter = triage::filter(&arguments.output, suppressions)?;
    let (mut status, mut all) = (0, Vec::new());
    let is_directory = |path: &PathBuf| path.is_dir() && !has_segments(path);
    let mut summary = arguments.reports.iter().any(is_directory).then(Summary::default);
    for path in &files(&arguments.reports)? {
        let loaded = match load::load(path) {
            Ok(loaded) => loaded,
            Err(error) => {
                complain(&error);
                status = worse(status, 3);
                continue;
            }
        };
        if let Some(why) = &loaded.incomplete {
            complain(why);
            // Findings are true even if a part is missing; without findings, the missing part decides.
            let found =
                loaded.reports.iter().any(|report| triage::fails(&arguments.output, report));
            status = if found { status } else { worse(status, 3) };
        }
        all.extend(loaded.reports);
    }
    for report in &mut all {
        if arguments.output.no_host {
            report.forget_hosts();
        }
        filter.apply(report);
    }
    if let Some(last) = all.last_mut() {
        filter.list_unused(last);
    }
    let mut entries = Vec::new();
    for report in &all {
        entries.push(triage::entries(&arguments.output, report));
        if triage::fails(&arguments.output, report) {
            status = worse(status, arguments.output.error_exitcode);
        }
        let Some(summary) = &mut summary else {
            reports.add(report, None, None, all.len() > 1)?;
            continue;
        };
        // As text each defect once; other forms have all reports as they are.
        let name = report.subject.program();
        let shown = summary.take(&arguments.output, report.clone());
        reports.add_with_text(report, shown.as_ref(), Some(name), None, true)?;
    }
    entries.retain(|entries| !entries.is_empty());
    let entries = triage::write_entries(&arguments.output, entries.join("\n"))?;
    let summary = summary.map(|summary| summary.render()).unwrap_or_default();
    reports.finish(&(summary + &entries), false)?;
    Ok(status)
}

/// Returns the files of reports, including the files in directories.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() || has_segments(path) {
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

/// Returns whether a directory has a recording in segments, and no reports.
fn has_segments(path: &Path) -> bool {
    report_dir::files(path).is_ok_and(|files| files.is_empty()) && Recording::find(path).is_ok()
}
