//! Runs of programs: how each back end's takes its course is in `kernel_run` and `inline_run`, each step in a file of
//! its own.

mod attach_error;
mod attach_inline;
mod attach_many;
mod attach_run;
mod attach_target;
mod attaching;
mod await_end;
pub(crate) mod capture_choice;
mod capture_end;
mod capture_reason;
mod coverage;
mod cpu_affinity;
mod dynamic_linker;
mod end_signals;
pub(crate) mod environment;
mod error;
mod finished_program;
mod inline_run;
mod kernel_run;
mod launching;
pub(crate) mod listing;
mod live_processes;
mod live_report;
mod loaded_kernel;
mod memory;
mod options;
mod outcome;
mod perturbing;
mod pipeline;
mod process_selection;
pub(crate) mod processes;
pub(crate) mod program;
mod program_end;
mod program_id;
pub(crate) mod record;
mod recording_numbers;
mod signals;
pub mod spec;
mod stops;
mod system_error;
mod threads;
mod traced_program;
mod traps;

use std::{
    ffi::OsString,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use symbolize::Symbolizer;

pub(crate) use self::{
    attach_error::AttachError,
    attach_target::AttachRequest,
    capture_reason::CaptureReason,
    error::RunError,
    finished_program::ProgramReport,
    live_report::{Occasion, Receiver},
    options::{CaptureBackend, RunOptions, WhenFull},
    outcome::Outcome,
    process_selection::ProcessSelection,
    program::ProgramError,
    record::{RecordPlace, RecordTo, Rotation, RotationError},
};
use self::{
    attach_target::AttachTarget,
    capture_choice::{Choice, choose},
    launching::{hold, start_error},
    listing::Listing,
    program::Executed,
};
use crate::{debug_files, plan_cache, progress::Steps, status_line::StatusLine};
use capture::kernel::{check_privileges, privileges};
pub(crate) use end_signals::EndSignals;
use linux::{privileged_file, proc, tracee::Start, user};

/// Plans what would be probed in a program, and does not run it: it is started, held before its first instruction
/// with its libraries loaded, and killed there.
pub(crate) fn inspect(options: &RunOptions) -> Result<Listing, RunError> {
    let program = program::find(options.command.first().unwrap_or(&OsString::new()))?;
    environment::check()?;
    // A listing needs no privileges, whatever the run would need.
    let choice = choose(options, privileges::has_capabilities());
    let options = &choice.map_or_else(|_| options.clone(), |choice| choice.apply(options));
    let start_error = |error| start_error(options, &program, error);
    match hold(options, &program).map_err(start_error)? {
        Start::Held(held) => {
            let search = debug_files::search_for(held.pid());
            let symbolizer = Symbolizer::from_pid_with(held.pid(), &search)?;
            let steps = Steps::on_terminal();
            steps.step(|| traced_program::reading(&symbolizer));
            options.focus.as_ref().map_or(Ok(()), |focus| focus.check(&symbolizer))?;
            let (wanted, is_cached) = (options.wanted(), options.is_cached);
            let plan = plan_cache::plan_of(&symbolizer, held.pid(), wanted, is_cached);
            drop(steps);
            match plan.facts.unmatched.first() {
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
pub(crate) fn run(options: &RunOptions) -> Result<Outcome, RunError> {
    let Executed { path: program, command, is_script } = program::executed(&options.command)?;
    // What a script is for runs in its children, if it does not take its place.
    let follow_forks = options.follow_forks || is_script;
    let options = &RunOptions { command, follow_forks, ..options.clone() };
    environment::check()?;
    let (user, group) = launching::user(options).map_or_else(user::own_ids, |user| user.ids());
    if !privileges::lets_programs_gain() && privileged_file::gives_privileges(&program, user, group)
    {
        return Err(RunError::Privileged);
    }
    let choice = choose(options, privileges::has_capabilities())?;
    let is_about_all = options.record.is_some() || options.first_pass;
    let of_script = |outcome: Outcome| {
        if is_script && !is_about_all { outcome.without_idle_programs() } else { outcome }
    };
    let (alternative, error) = match run_as(options, &choice, &program) {
        Err(RunError::InProcess(error)) => (choice.without_inline(&error), RunError::from(error)),
        Err(error) => (None, error),
        Ok(outcome) => return Ok(of_script(outcome)),
    };
    // The program has not started: it was killed where it stood.
    alternative.map_or(Err(error), |choice| run_as(options, &choice, &program)).map(of_script)
}

/// Attaches to processes, and checks each until it ends or the tracing is to end. Meanwhile `receiver` gets reports,
/// and `status` the numbers of events. Returns the report on each program that they have run. One of several that
/// cannot be attached to is named on standard error, and left out.
pub(crate) fn attach(
    options: &RunOptions,
    request: &AttachRequest,
    receiver: Receiver,
    status: &StatusLine,
) -> Result<Vec<ProgramReport>, RunError> {
    environment::check()?;
    let AttachRequest { duration, quiet, .. } = *request;
    let target = |&pid| AttachTarget { pid, duration, quiet };
    let targets: Vec<AttachTarget> = request.pids.iter().map(target).collect();
    let single = if let [target] = &*targets { Some(*target) } else { None };
    if let Some(target) = single {
        target.check()?;
    }
    let choice = choose(options, privileges::has_capabilities())?;
    let receiver = Arc::new(Mutex::new(receiver));
    let attach_as = |choice: &Choice| {
        let receiver = Arc::clone(&receiver);
        let receive = move |occasion, report| {
            let mut receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver(occasion, report)
        };
        choice.log();
        if !choice.is_inline {
            check_privileges()?;
        }
        attach_many::attach(options, choice, targets.clone(), Box::new(receive), status)
    };
    let (alternative, error) = match attach_as(&choice) {
        Err(RunError::Attach(error)) => (choice.without_attaching(&error), RunError::from(error)),
        Err(error) => (None, error),
        Ok(programs) => return Ok(programs),
    };
    // The process has its own code again. Programs of the kernel are loaded while this process has one thread.
    let alternative = alternative.filter(|_| status.end_printer() && has_one_thread());
    let attached = alternative.map_or(Err(error), |choice| attach_as(&choice));
    attached.map_err(|error| match (error, single) {
        (error @ (RunError::Record(_) | RunError::Attach(AttachError::Panicked { .. })), _) => {
            error
        }
        // Whatever failed, that is the reason.
        (_, Some(target)) if target.has_ended() => {
            AttachError::EndedMeanwhile { pid: target.pid }.into()
        }
        (error, _) => error,
    })
}

/// Returns whether this process has a single thread, so that it can fork. The kernel lists a thread that was joined for
/// some moments more.
fn has_one_thread() -> bool {
    const LOOKS: u32 = 1000;
    let is_alone = || proc::threads(std::process::id()).is_ok_and(|threads| threads.len() == 1);
    (0..LOOKS).any(|_| {
        is_alone() || {
            thread::sleep(Duration::from_millis(1));
            false
        }
    })
}

/// Runs a program with the back end that was chosen.
fn run_as(options: &RunOptions, choice: &Choice, program: &Path) -> Result<Outcome, RunError> {
    let options = choice.apply(options);
    choice.log();
    if choice.is_inline {
        return inline_run::run(&options, program);
    }
    check_privileges()?;
    kernel_run::run(&options, program)
}
