//! `avtrace attach`: checks processes that run already.

use super::{
    Failure,
    live::LiveOutput,
    options::attach_options,
    output::record_to,
    reports::Reports,
    run::{Also, write_reports},
    triage,
};
use crate::{
    cli::{AttachArgs, ProcessesArgs},
    session::{self, AttachRequest, ProcessSelection, RunOptions},
    status_line::StatusLine,
};
use linux::output::Destination;

pub(super) fn run(arguments: &AttachArgs) -> Result<u8, Failure> {
    let (options, suppressions) = attach_options(arguments)?;
    let filter = triage::filter(&arguments.output, suppressions)?;
    let reports = Reports::new(&arguments.output, Destination::Stderr)?;
    let AttachArgs { duration, quiet, max_defects, .. } = *arguments;
    let ProcessesArgs { pid, name, cgroup } = arguments.processes.clone();
    let selection = ProcessSelection { pids: pid, names: name, cgroups: cgroup };
    let pids = selection.find().map_err(Failure::input)?;
    let has_several = pids.len() > 1;
    let record = arguments.record.as_deref();
    let record = record
        .map(|path| record_to(path, arguments.keep, arguments.embed_sources, pids.len()))
        .transpose()?;
    let options = RunOptions { record, ..options };
    let request = AttachRequest { pids, duration, quiet };
    let output = arguments.output.clone();
    let status = if quiet { StatusLine::hidden() } else { StatusLine::on_terminal() };
    let mut live =
        LiveOutput::new(output, filter.clone(), quiet, max_defects, has_several, status.clone());
    let receiver = Box::new(move |occasion, report| live.receive(occasion, report));
    let programs = session::attach(&options, &request, receiver, &status);
    status.end();
    let programs = programs
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    let status = write_reports(programs, &arguments.output, Also::default(), filter, reports)?;
    Ok(status.unwrap_or(0))
}
