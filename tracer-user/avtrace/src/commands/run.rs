//! `avtrace run`: checks a program while it runs.

use std::path::Path;

use nix::sys::{prctl, signal::Signal};

use super::{
    End, Failure, first_pass, list, options::run_options, output::record_to,
    provenance::Provenance, report_dir, reports::Reports, test_listing, triage, untraced,
};
use crate::{
    cli::{self, OutputArgs, RunArgs},
    session::{self, Outcome, ProgramError, ProgramReport, RunError, RunOptions},
};
use linux::output::Destination;
use report::{self, Report, Subject, suppress::Filter};

/// Exit status for a program that does not exist.
const MISSING: u8 = 127;

/// Runs a program of a command line that names no command. If there is no such program, a command of a similar name may
/// be meant.
pub(super) fn run_or_suggest(arguments: RunArgs) -> Result<End, Failure> {
    let name = arguments.program.first().and_then(|name| name.to_str()).map(str::to_owned);
    run(arguments).map_err(|failure| match name.and_then(|name| cli::command_like(&name)) {
        Some(command) if failure.status == MISSING => {
            let message = format!("{}: did you mean the command `{command}`?", failure.message);
            Failure { message, ..failure }
        }
        _ => failure,
    })
}

pub(super) fn run(arguments: RunArgs) -> Result<End, Failure> {
    if arguments.list_regions {
        return list::regions(&arguments).map(End::from);
    }
    if arguments.perturb.is_some() {
        // A run of a hunt does not outlive it; what cannot be had is a loss only when the hunt is killed.
        let _ = prctl::set_pdeathsig(Signal::SIGTERM);
    }
    if let Some(failure) = test_listing::execute(&arguments.program, arguments.capture.as_root) {
        return Err(failure);
    }
    if arguments.first_pass {
        return first_pass::run(&arguments);
    }
    let (options, suppressions) = run_options(&arguments)?;
    let filter = triage::filter(&arguments.output, suppressions)?;
    let reports = Reports::new(&arguments.output, Destination::Stderr)?;
    if let Some(directory) = &arguments.report_dir {
        report_dir::create(directory)?;
    }
    let record = arguments.record.as_deref();
    let record = record.map(|path| record_to(path, arguments.keep, arguments.embed_sources, 1));
    let options = RunOptions { record: record.transpose()?, ..options };
    let outcome = session::run(&options);
    if let Err(error @ RunError::Program(ProgramError::Interpreter { .. })) = &outcome {
        let reason = format!("not traced: {error}");
        return Err(untraced::execute(&arguments.program, arguments.capture.as_root, &reason));
    }
    let Outcome { ending, programs, signals: _signals } = outcome
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    let report_dir = arguments.report_dir.as_deref();
    let also = Also { report_dir, quiet: arguments.quiet, is_started: true };
    let status = write_reports(programs, &arguments.output, also, filter, reports)?;
    Ok(status.map_or_else(|| ending.into(), End::Status))
}

/// Ways in which `run` alone writes reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Also<'a> {
    /// Directory that gets a file for the run, too.
    report_dir: Option<&'a Path>,
    /// Set if nothing is printed where nothing counts.
    quiet: bool,
    /// Set if avtrace started the programs.
    is_started: bool,
}

/// Writes the reports on programs, without what the user has set aside, and entries for it. Returns the exit status
/// that they ask for, if any.
pub(super) fn write_reports(
    mut programs: Vec<ProgramReport>,
    arguments: &OutputArgs,
    also: Also<'_>,
    mut filter: Filter,
    mut reports: Reports<'_>,
) -> Result<Option<u8>, Failure> {
    let provenance = Provenance::now(!arguments.no_host);
    let provenance = if also.is_started { provenance.with_own_trace_context() } else { provenance };
    for ProgramReport { report, .. } in &mut programs {
        provenance.put_into(report);
        if let Subject::Process { argv, name, .. } = &mut report.subject {
            *name = argv.first().and_then(|program| symbolize::doc_test(Path::new(program)));
        }
        filter.apply(report);
    }
    if let Some(last) = programs.last_mut() {
        filter.list_unused(&mut last.report);
    }
    let status = triage::status(arguments, programs.iter().map(|program| &program.report));
    let kept = also.report_dir.map_or(Ok(()), |directory| report_dir::write(directory, &programs));
    if also.quiet && status.is_none() {
        reports.leave_out(&Destination::Stderr);
        say_if_nothing_was_checked(&programs);
    }
    let has_several = programs.len() > 1;
    for ProgramReport { report, .. } in &programs {
        let brief = (has_several && says_nothing(report)).then(|| {
            let ending = report::ending(report);
            let ending = ending.map(|ending| format!("; {ending}")).unwrap_or_default();
            format!("nothing was checked: no region ran{ending}")
        });
        reports.add(report, has_several.then(|| name(report)), brief, has_several)?;
    }
    let entries: Vec<String> = (programs.iter())
        .map(|program| triage::entries(arguments, &program.report))
        .filter(|entries| !entries.is_empty())
        .collect();
    let entries = triage::write_entries(arguments, entries.join("\n"))?;
    // A run cannot be had again: its report is not lost with its file.
    reports.finish(&entries, true)?;
    kept?;
    if let Some(Err(error)) =
        programs.into_iter().find_map(|program| program.recorded.filter(Result::is_err))
    {
        return Err(Failure::internal(error));
    }
    Ok(status)
}

/// Says that a run proves nothing, where no program had a region.
fn say_if_nothing_was_checked(programs: &[ProgramReport]) {
    if programs.iter().any(|program| report::checked_anything(&program.report)) {
        return;
    }
    let name = programs.first().map(|program| program.report.subject.program());
    let name = name.map(|name| format!(" of `{name}`")).unwrap_or_default();
    let line = format!(
        "avtrace: nothing was checked: no region{name} ran (`avtrace --list-regions` lists them, --atomic names some)"
    );
    eprintln!("{}", report::cut_message(&report::printable(&line)));
}

/// Returns whether a report is empty: the program only became another one, as `env` does, or a child had no
/// region.
fn says_nothing(report: &Report) -> bool {
    let Subject::Process { replaced, parent, .. } = report.subject else { return false };
    let counts = &report.counts;
    (replaced || parent.is_some())
        && !report.has_findings()
        && counts.transactions == counts.unary_transactions
        && report::capture_warnings(report).is_empty()
}

/// Returns the subject of a report, in a line.
fn name(report: &Report) -> String {
    match &report.subject {
        Subject::Process { pid, argv, replaced, name, .. } => {
            let command = name.clone().unwrap_or_else(|| argv.join(" "));
            let then = if *replaced { ", until it replaced its program" } else { "" };
            format!("process {pid} (`{command}`){then}")
        }
        Subject::Trace { path, .. } => path.clone(),
    }
}
