//! `avtrace record`: records a program while it runs.

use super::{
    End, Failure,
    options::capture_options,
    output::{record_to, say, warn},
};
use crate::{
    cli::RecordArgs,
    session::{self, Outcome, ProgramReport, RunOptions},
};
use report;

pub(super) fn run(arguments: RecordArgs) -> Result<End, Failure> {
    let (options, _) = capture_options(&arguments.capture, &arguments.program)?;
    let record = record_to(&arguments.output, arguments.keep, arguments.embed_sources, 1)?;
    let options = RunOptions { record: Some(record), ..options };
    let Outcome { ending, programs, signals: _signals } = session::run(&options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    for ProgramReport { report, recorded, .. } in programs {
        warn(&report);
        let (path, events) = match recorded {
            Some(Ok(recorded)) => recorded,
            Some(Err(error)) => return Err(Failure::internal(error)),
            None => return Err(Failure::internal("nothing was recorded")),
        };
        if arguments.quiet {
            continue;
        }
        let path = path.display();
        let (threads, lost) = (report.counts.threads, report.counts.lost_events);
        let died = report::death(&report.subject).map(|died| format!("; {died}"));
        say(&format!(
            "recorded {events} events of {threads} threads in `{path}`, {lost} lost{}; `avtrace check {path}` checks \
             them",
            died.unwrap_or_default()
        ));
    }
    Ok(ending.into())
}
