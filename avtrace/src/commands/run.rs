//! `avtrace run`: checks a program while it runs.

use std::path::Path;

use nix::sys::{prctl, signal::Signal};

use super::{
    Failure, list,
    options::run_options,
    output::{check_destination, destination, record_to, render},
    report_dir, test_listing, triage,
};
use crate::{
    cli::{Format, OutputArgs, RunArgs},
    report::{self, Report, Subject},
    session::{self, Outcome, ProgramReport, RunOptions},
    suppress::Filter,
    sys::output::{Destination, write_output},
};

pub(super) fn run(arguments: RunArgs) -> Result<u8, Failure> {
    if arguments.list_regions {
        return list::regions(&arguments);
    }
    if arguments.perturb.is_some() {
        // A run of a hunt does not outlive it; what cannot be had is a loss only when the hunt is killed.
        let _ = prctl::set_pdeathsig(Signal::SIGTERM);
    }
    if let Some(failure) = test_listing::execute(&arguments.program, arguments.capture.as_root) {
        return Err(failure);
    }
    let (options, suppressions) = run_options(&arguments)?;
    let filter = triage::filter(&arguments.output, suppressions)?;
    let destination = destination(&arguments.output, Destination::Stderr);
    check_destination(&destination)?;
    if let Some(directory) = &arguments.report_dir {
        report_dir::create(directory)?;
    }
    let record = arguments.record.as_deref().map(|path| record_to(path, arguments.keep, 1));
    let options = RunOptions { record: record.transpose()?, ..options };
    let Outcome { ending, programs } = session::run(&options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    let also = Also { report_dir: arguments.report_dir.as_deref(), quiet: arguments.quiet };
    if write_reports(programs, (&arguments.output, also), filter, &destination)? {
        return Ok(arguments.output.error_exitcode);
    }
    // As shown by a shell: the low byte.
    Ok(ending.shell_status() as u8)
}

/// Ways in which `run` alone writes reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Also<'a> {
    /// Directory that gets a file for the run, too.
    report_dir: Option<&'a Path>,
    /// Set if nothing is printed where nothing counts.
    quiet: bool,
}

/// Writes the reports on programs, without what the user has set aside, and entries for it. Returns whether anything
/// was found.
pub(super) fn write_reports(
    mut programs: Vec<ProgramReport>,
    (arguments, also): (&OutputArgs, Also<'_>),
    mut filter: Filter,
    destination: &Destination,
) -> Result<bool, Failure> {
    programs.iter_mut().for_each(|program| filter.apply(&mut program.report));
    if let Some(last) = programs.last_mut() {
        filter.list_unused(&mut last.report);
    }
    let found = programs.iter().any(|program| triage::fails(arguments, &program.report));
    if let Some(directory) = also.report_dir {
        report_dir::write(directory, &programs)?;
    }
    let is_silent = also.quiet && !found && *destination == Destination::Stderr;
    let mut text = match is_silent {
        true => String::new(),
        false => render_all(&programs, arguments, destination)?,
    };
    let entries: Vec<String> = (programs.iter())
        .map(|program| triage::entries(arguments, &program.report))
        .filter(|entries| !entries.is_empty())
        .collect();
    text += &triage::write_entries(arguments, entries.join("\n"))?;
    if let Err(error) = write_output(destination, text.as_bytes()) {
        // Printed to standard error rather than lost.
        if *destination != Destination::Stderr {
            let _ = write_output(&Destination::Stderr, text.as_bytes());
        }
        return Err(Failure::internal(error));
    }
    if let Some(Err(error)) =
        programs.into_iter().find_map(|program| program.recorded.filter(Result::is_err))
    {
        return Err(Failure::internal(error));
    }
    Ok(found)
}

/// Formats all reports: a single one as it is; of several, JSON documents one a line, texts under the names
/// of their programs.
fn render_all(
    programs: &[ProgramReport],
    arguments: &OutputArgs,
    destination: &Destination,
) -> Result<String, Failure> {
    if let [ProgramReport { report, .. }] = programs {
        return render(report, arguments, destination);
    }
    let mut text = String::new();
    for (index, ProgramReport { report, .. }) in programs.iter().enumerate() {
        match arguments.format {
            Format::Json => {
                text += &report::json::render_line(report).map_err(Failure::internal)?;
            }
            Format::Text => {
                let gap = if index > 0 { "\n" } else { "" };
                text += &format!("{gap}{}:\n", report::printable(&name(report)));
                if says_nothing(report) {
                    let ending = report::ending(report);
                    let ending = ending.map(|ending| format!("; {ending}")).unwrap_or_default();
                    text += &format!("nothing was checked: no region ran{ending}\n");
                } else {
                    text += &render(report, arguments, destination)?;
                }
            }
        }
    }
    Ok(text)
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
        Subject::Process { pid, argv, replaced, .. } => {
            let command = argv.join(" ");
            let then = if *replaced { ", until it replaced its program" } else { "" };
            format!("process {pid} (`{command}`){then}")
        }
        Subject::Trace { path, .. } => path.clone(),
    }
}
