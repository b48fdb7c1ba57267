//! `avtrace run`: a program, checked while it runs.

use super::{
    Failure,
    output::{check_destination, check_file, destination, render},
};
use crate::{
    cli::{CaptureArgs, RegionsArg, RunArgs},
    probes::watch::WatchSpec,
    report::{self, Destination},
    session::{self, Outcome, RunOptions},
};

pub(super) fn run(arguments: RunArgs) -> Result<u8, Failure> {
    let watch = watches(&arguments.capture)?;
    let destination = destination(&arguments.output, Destination::Stderr);
    check_destination(&destination)?;
    if let Some(path) = &arguments.record {
        check_file("trace", path)?;
    }
    let options = RunOptions {
        command: arguments.program,
        watch,
        checker: Some(checker::Options {
            regions: regions(arguments.regions),
            ..checker::Options::live()
        }),
        record: arguments.record,
        buffer_bytes: arguments.capture.buffer << 20,
        as_root: arguments.capture.as_root,
        debug_bpf: arguments.capture.debug_bpf,
        perf_probes: arguments.capture.perf_probes,
    };
    let Outcome { ending, report, recorded } = session::run(&options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    let bytes = render(&report, &arguments.output, &destination)?;
    if let Err(error) = report::write_output(&destination, bytes.as_bytes()) {
        // Better in the wrong place than lost.
        if destination != Destination::Stderr {
            let _ = report::write_output(&Destination::Stderr, bytes.as_bytes());
        }
        return Err(Failure::internal(error));
    }
    if let Some(Err(error)) = recorded {
        return Err(Failure::internal(error));
    }
    if report.has_findings() {
        return Ok(arguments.output.error_exitcode);
    }
    // As a shell shows it: the low byte.
    Ok(ending.shell_status() as u8)
}

/// What is to be watched.
pub(super) fn watches(arguments: &CaptureArgs) -> Result<Vec<WatchSpec>, Failure> {
    let watch = arguments.watch.iter().map(|spec| spec.parse());
    watch.collect::<Result<_, _>>().map_err(Failure::usage)
}

pub(super) fn regions(argument: RegionsArg) -> checker::Regions {
    match argument {
        RegionsArg::Outermost => checker::Regions::Outermost,
        RegionsArg::All => checker::Regions::All,
    }
}
