//! Runs of programs: how each back end's takes its course is in `kernel_run` and `inline_run`, each step in a file of
//! its own.

mod coverage;
mod cpu_affinity;
mod dynamic_linker;
mod environment;
mod error;
mod finished_program;
mod inline_run;
mod kernel_run;
mod launching;
pub mod listing;
mod live_processes;
mod main_thread_exit;
mod memory;
mod options;
mod outcome;
pub mod privileges;
pub mod processes;
pub mod program;
mod program_end;
mod program_id;
pub mod record;
mod signals;
pub mod spec;
mod stops;
mod system_error;
mod traced_program;
mod traps;

use std::{ffi::OsString, io};

use symbolize::Symbolizer;

pub use self::{
    error::RunError,
    finished_program::ProgramReport,
    options::{CaptureBackend, RunOptions},
    outcome::Outcome,
};
use self::{
    launching::{hold, start_error},
    listing::Listing,
};
use crate::{debug_files, probes::plan::Plan, progress::Steps, sys::tracee::Start};

/// Plans what would be probed in a program, and does not run it: it is started, held before its first instruction
/// with its libraries loaded, and killed there.
///
/// # Errors
///
/// See [`RunError`].
pub fn inspect(options: &RunOptions) -> Result<Listing, RunError> {
    let program = program::find(options.command.first().unwrap_or(&OsString::new()))?;
    environment::check()?;
    let start_error = |error| start_error(options, &program, error);
    match hold(options, &program).map_err(start_error)? {
        Start::Held(held) => {
            let symbolizer = Symbolizer::from_pid_with(held.pid(), debug_files::search())?;
            let steps = Steps::on_terminal();
            steps.step(|| traced_program::reading(&symbolizer));
            let plan = Plan::build(&symbolizer, held.pid(), options.wanted());
            drop(steps);
            match plan.unmatched.first() {
                Some((_, error)) => Err(error.clone().into()),
                None => Ok(Listing { plan, symbolizer }),
            }
        }
        Start::Ended { .. } => {
            Err(start_error(io::Error::other("it ended before it reached its entry point")))
        }
    }
}

/// Runs a program and checks it, and what it becomes.
///
/// # Errors
///
/// See [`RunError`].
pub fn run(options: &RunOptions) -> Result<Outcome, RunError> {
    let program = program::find(options.command.first().unwrap_or(&OsString::new()))?;
    environment::check()?;
    match options.capture {
        CaptureBackend::Inline => return inline_run::run(options, &program),
        CaptureBackend::Auto if !privileges::has_capabilities() => {
            let options = RunOptions { capture: CaptureBackend::Inline, ..options.clone() };
            return inline_run::run(&options, &program);
        }
        CaptureBackend::Kernel | CaptureBackend::Auto => privileges::check()?,
    }
    kernel_run::run(options, &program)
}
