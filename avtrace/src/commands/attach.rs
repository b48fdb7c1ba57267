//! `avtrace attach`: checks a process that runs already.

use super::{
    Failure,
    live::LiveOutput,
    options::attach_options,
    output::{check_destination, check_file, destination},
    run::write_reports,
    triage,
};
use crate::{
    cli::AttachArgs,
    session::{self, AttachTarget},
    sys::output::Destination,
};

pub(super) fn run(arguments: &AttachArgs) -> Result<u8, Failure> {
    let (options, suppressions) = attach_options(arguments)?;
    let filter = triage::filter(&arguments.output, suppressions)?;
    let destination = destination(&arguments.output, Destination::Stderr);
    check_destination(&destination)?;
    if let Some(path) = &arguments.record {
        check_file("trace", path)?;
    }
    let AttachArgs { pid, duration, quiet, max_defects, .. } = *arguments;
    let target = AttachTarget { pid, duration, quiet };
    let mut live = LiveOutput::new(arguments.output.clone(), filter.clone(), quiet, max_defects);
    let receiver = Box::new(move |occasion, report| live.receive(occasion, report));
    let programs = session::attach(&options, &target, receiver)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    let found = write_reports(programs, &arguments.output, filter, &destination)?;
    Ok(if found { arguments.output.error_exitcode } else { 0 })
}
