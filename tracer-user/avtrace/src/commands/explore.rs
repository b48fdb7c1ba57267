//! `avtrace explore`: all interleavings of a small test.

use std::io;

use super::{Failure, output::check_file};
use crate::{
    cli::{ExploreArgs, PlainFormat},
    explore::{self, ExplorationError, ExploreOptions, Mode},
    progress::RunBar,
    session::{CaptureBackend, CaptureReason, EndSignals, RunOptions},
};
use linux::output::{Destination, write_output};
use plan::{
    memory::options::{Accesses, Level},
    plan::own_code::OwnCode,
    regions::patterns::Rule,
};

pub(super) fn run(arguments: &ExploreArgs) -> Result<u8, Failure> {
    if let Some(path) = &arguments.output {
        check_file("report", path)?;
    }
    let mode = match &arguments.replay {
        Some(schedule) => Mode::Replay { schedule: schedule.clone() },
        None if arguments.random => Mode::Random { seed: arguments.seed.unwrap_or(1) },
        None => Mode::Systematic,
    };
    let options = ExploreOptions {
        depth: arguments.depth as usize,
        preemptions: arguments.preemptions.map(|bound| bound as usize),
        runs: arguments.runs,
        mode,
    };
    let name = arguments.program.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let bar = RunBar::on_terminal(&name, arguments.runs);
    let signals = EndSignals::install().map_err(Failure::internal)?;
    let explored = explore::run(&options, &capture(arguments), bar, &signals).map_err(failure)?;
    let text = match arguments.format {
        PlainFormat::Text => explored.text(),
        PlainFormat::Json => {
            serde_json::to_string_pretty(&explored).map_err(Failure::internal)? + "\n"
        }
    };
    // Standard output is used by no program here.
    let destination = arguments.output.clone().map_or(Destination::Stdout, Destination::File);
    match write_output(&destination, text.as_bytes()) {
        Err(error) if error.source.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Failure::internal(error));
        }
        _ => {}
    }
    Ok(match explored.own_failure() {
        Some(status) => u8::try_from(status).unwrap_or(1),
        None if explored.fault.is_some() => arguments.error_exitcode,
        None => 0,
    })
}

fn failure(error: ExplorationError) -> Failure {
    let status = match &error {
        ExplorationError::Run(error) => error.exit_status(),
        ExplorationError::Schedule { .. } => 2,
        _ => 1,
    };
    Failure { message: error.to_string(), status }
}

/// Returns the options that say what functions and markers are.
fn capture(arguments: &ExploreArgs) -> RunOptions {
    let rule = |pattern: &plan::regions::patterns::Pattern| Rule {
        pattern: pattern.clone(),
        atomic: true,
    };
    RunOptions {
        capture: CaptureBackend::Inline,
        capture_reason: CaptureReason::Requested,
        when_full: None,
        command: arguments.program.clone(),
        watch: Vec::new(),
        rules: arguments.atomic.iter().map(rule).collect(),
        locks: Vec::new(),
        accesses: Accesses { level: Level::Sync, overhead: 0, depth: None, also: Vec::new() },
        own_code: OwnCode::Probe,
        is_cached: false,
        serialize: false,
        checker: None,
        record: None,
        buffer_bytes: 0,
        as_root: false,
        debug_bpf: false,
        perf_probes: false,
        budget: None,
        follow_forks: false,
        perturbation: None,
        gaps: false,
        first_pass: false,
        focus: None,
    }
}
