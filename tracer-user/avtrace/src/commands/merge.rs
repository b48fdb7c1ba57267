//! `avtrace merge`: one report of many, by their defects' fingerprints: of JSON reports and recordings, or of
//! results of hunts.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use super::{
    Failure, check::at_most_once, complain, load, report::files, reports::Reports, triage, worse,
};
use crate::{
    cli::MergeArgs,
    hunt::{self, Results, Whole},
};
use linux::output::Destination;
use report::{Report, merge::merge, suppress::Filter};

/// First bytes of an SQLite database.
const SQLITE: &[u8] = b"SQLite format 3\0";

pub(super) fn run(arguments: &MergeArgs) -> Result<u8, Failure> {
    let is_of_hunt = |path: &PathBuf| is_database(path);
    if arguments.results.iter().all(is_of_hunt) {
        return merge_hunts(arguments);
    }
    if let Some(path) = arguments.results.iter().find(|path| is_database(path)) {
        return Err(Failure::usage(format!(
            "`{}` has results of a hunt, the others are reports: merge one kind at a time",
            path.display()
        )));
    }
    at_most_once(Path::new("-"), &arguments.results)?;
    each_once(&arguments.results)?;
    merge_reports(arguments)
}

/// Returns whether a file is a database. Those that cannot be read are not: reading them as reports says why.
fn is_database(path: &Path) -> bool {
    // The end of a pipe cannot be put back.
    if !path.is_file() {
        return false;
    }
    let mut first = [0; SQLITE.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first == *SQLITE
}

fn merge_reports(arguments: &MergeArgs) -> Result<u8, Failure> {
    let reports = Reports::new(&arguments.output, Destination::Stdout)?;
    let suppressions = triage::of_config(triage::config(arguments.no_config)?);
    let filter = triage::filter(&arguments.output, suppressions)?;
    let (mut status, mut all): (u8, Vec<Report>) = (0, Vec::new());
    for path in &files(&arguments.results)? {
        match load::load(path) {
            Ok(loaded) => {
                all.extend(loaded.reports);
                if let Some(why) = loaded.incomplete {
                    complain(&why);
                    status = 3;
                }
            }
            Err(error) => {
                complain(&error);
                status = 3;
            }
        }
    }
    let Some(report) = merge(&all) else {
        return Err(Failure::input("no report could be read: nothing can be merged"));
    };
    Ok(worse(status, write(arguments, report, reports, filter)?))
}

/// Merges the results of several hunts.
fn merge_hunts(arguments: &MergeArgs) -> Result<u8, Failure> {
    let reports = Reports::new(&arguments.output, Destination::Stdout)?;
    let suppressions = triage::of_config(triage::config(arguments.no_config)?);
    let filter = triage::filter(&arguments.output, suppressions)?;
    let mut hunts = Vec::new();
    each_once(&arguments.results)?;
    for path in &arguments.results {
        let results = Results::read(path).map_err(Failure::input)?;
        hunts.extend(Whole::read(&results).map_err(Failure::input)?);
    }
    if let [first, rest @ ..] = &hunts[..]
        && let Some(other) = rest.iter().find(|other| other.header.command != first.header.command)
    {
        let [one, other] = [first, other].map(|whole| whole.header.command.join(" "));
        return Err(Failure::usage(format!(
            "results of different programs, `{one}` and `{other}`: merge those of one"
        )));
    }
    let Some(report) = hunt::merged(&hunts) else {
        return Err(Failure::input("no run of these hunts was over: nothing can be reported"));
    };
    write(arguments, report, reports, filter)
}

/// Refuses a file that is named twice: its runs would count twice.
fn each_once(paths: &[PathBuf]) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for path in paths {
        if !seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())) {
            let path = path.display();
            return Err(Failure::usage(format!("`{path}` is named twice: name it once")));
        }
    }
    Ok(())
}

/// Writes the merged report, and returns the exit status that its findings call for.
fn write(
    arguments: &MergeArgs,
    mut report: Report,
    mut reports: Reports<'_>,
    mut filter: Filter,
) -> Result<u8, Failure> {
    if arguments.output.no_host {
        report.forget_hosts();
    }
    filter.apply(&mut report);
    filter.list_unused(&mut report);
    reports.add(&report, None, None, false)?;
    let entries = triage::entries(&arguments.output, &report);
    reports.finish(&triage::write_entries(&arguments.output, entries)?, false)?;
    Ok(if triage::fails(&arguments.output, &report) { arguments.output.error_exitcode } else { 0 })
}
