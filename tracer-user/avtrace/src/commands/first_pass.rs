//! `avtrace run --first-pass`: names what took part in imprecise cycles, for a run with `--focus`.

use super::{
    End, Failure,
    options::run_options,
    output::{check_file, say, warn},
};
use crate::{
    cli::RunArgs,
    first_pass::FirstPassFile,
    session::{self, Outcome, ProgramReport},
};
use linux::output::{Destination, write_output};
use report::{self, Subject};

pub(super) fn run(arguments: &RunArgs) -> Result<End, Failure> {
    let Some(path) = &arguments.output.output else {
        return Err(Failure::usage("--first-pass needs a file: add `-o first.json`"));
    };
    check_file("first pass", path)?;
    let (options, _) = run_options(arguments)?;
    let Outcome { ending, mut programs, signals: _signals } = session::run(&options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    // The others are added to the file of the program that was started.
    programs.sort_by_key(|ProgramReport { report, .. }| match report.subject {
        Subject::Process { parent, program, .. } => (parent.is_some(), program),
        Subject::Trace { .. } => (true, 0),
    });
    let mut found: Option<FirstPassFile> = None;
    for ProgramReport { report, first_pass, .. } in programs {
        warn(&report);
        match (&mut found, first_pass) {
            (Some(found), Some(more)) => found.add(more),
            (found, more) => *found = found.take().or(more),
        }
    }
    let found = found.unwrap_or_default();
    let document = serde_json::to_string_pretty(&found).map_err(Failure::internal)? + "\n";
    write_output(&Destination::File(path.clone()), document.as_bytes())
        .map_err(Failure::internal)?;
    if !arguments.quiet {
        say(&line(&found, &path.display().to_string()));
    }
    Ok(ending.into())
}

/// Returns the line about the findings.
fn line(found: &FirstPassFile, path: &str) -> String {
    let FirstPassFile { regions, functions, components, regions_run, lost_events, .. } = found;
    let run = report::count(*regions_run, "region");
    if regions.is_empty() && functions.is_empty() {
        return format!(
            "first pass: none of {run} took part in a cycle, {lost_events} events lost; `{path}` names nothing to look at"
        );
    }
    format!(
        "first pass: {} of {run} and {} took part in {}, {lost_events} events lost; `avtrace run --focus {path}` looks \
         at them",
        regions.len(),
        report::count(functions.len() as u64, "function"),
        report::count(*components, "imprecise cycle"),
    )
}
