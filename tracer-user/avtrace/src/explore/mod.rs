//! `avtrace explore`: runs a small test again and again, one thread at a time, in all interleavings of the accesses at
//! which its threads meet. Executions are controlled in `execution`, trees of them are built and labelled by
//! `checker::interleaving_tree`; the report is in `result`.

mod execution;
mod history;
mod image;
mod meetings;
mod native;
mod outcome;
mod result;
mod schedule;
mod subject;
mod text;
mod thread;

use std::{cell::RefCell, path::PathBuf, rc::Rc, time::Instant};

use checker::interleaving_tree::{Bounds, Exploration, ExploreError, explore, run_randomly};

pub use self::result::Result as Explored;
use self::{
    execution::Execution,
    history::Specification,
    image::Image,
    native::Native,
    outcome::Outcome,
    subject::{Streams, Subject},
    thread::Status,
};
pub(crate) use self::{
    result::{Mode, Serial},
    schedule::Schedule,
    subject::ExecutionError,
};
use crate::{
    progress::RunBar,
    session::{self, EndSignals, RunError, RunOptions, environment, program},
};
use linux::controlled;

/// Critical sequences in a report.
const MOST_SEQUENCES: usize = 20;

/// Limits of an exploration, and its mode.
#[derive(Clone, Debug)]
pub struct ExploreOptions {
    /// Accesses of an execution at which threads are switched.
    pub depth: usize,
    /// Preemptions of an execution; `None` for as many as there is time for.
    pub preemptions: Option<usize>,
    /// Executions of the program.
    pub runs: u64,
    /// Interleavings that are run.
    pub mode: Mode,
}

/// Reason for which a program cannot be explored.
#[derive(Debug, thiserror::Error)]
pub enum ExplorationError {
    /// The program cannot be started, or its functions not be found.
    #[error(transparent)]
    Run(#[from] RunError),
    /// An execution cannot be controlled.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    /// An execution differs from one with the same choices.
    #[error("{0}: it must not depend on the time, on random numbers or on other processes")]
    Differs(#[from] ExploreError),
    /// The program has no place at which threads could be stopped.
    #[error(
        "no code of `{0}` is known to access memory: build it with debug information (-g), and do not strip it"
    )]
    NoCode(PathBuf),
    /// A signal came before there was anything to report.
    #[error(
        "interrupted before the operations had run in all orders, one after the other: nothing was judged yet"
    )]
    Interrupted,
    /// More orders than runs.
    #[error(
        "the operations of the test have more serial orders than --runs {0} can try: let it do fewer operations"
    )]
    Orders(u64),
    /// A schedule is for another program.
    #[error("the schedule does not fit the program: at place {place} thread {thread} cannot go on")]
    Schedule {
        /// Number of the place, from 1.
        place: usize,
        /// The thread.
        thread: usize,
    },
}

/// Explores a program, until one of these signals comes at the latest.
///
/// # Errors
///
/// See [`ExplorationError`].
pub(crate) fn run(
    options: &ExploreOptions,
    capture: &RunOptions,
    bar: RunBar,
    signals: &EndSignals,
) -> std::result::Result<Explored, ExplorationError> {
    let begin = Instant::now();
    let name = capture.command.first().cloned().unwrap_or_default();
    let path = program::find(&name).map_err(RunError::from)?;
    environment::check().map_err(RunError::from)?;
    controlled::fix_addresses();
    let listing = session::inspect(capture)?;
    let image = Image::new(listing, !capture.rules.is_empty());
    if !image.has_accesses() {
        return Err(ExplorationError::NoCode(path));
    }
    tracing::debug!(
        program = %path.display(),
        mode = ?options.mode,
        operations = ?image.operations,
        inlined = ?image.inlined,
        "the program is explored"
    );
    let streams = RefCell::new(Streams::new().map_err(ExecutionError::from)?);
    let subject = Subject { image, program: path, command: capture.command.clone(), streams };
    let native = Native::new(&subject, bar, signals);
    let mut result = match &options.mode {
        Mode::Systematic => systematic(options, &native)?,
        Mode::Random { seed } => random(options, &native, *seed)?,
        Mode::Replay { schedule } => replay(options, &native, schedule)?,
    };
    result.command =
        capture.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    result.atomic = capture.rules.iter().map(|rule| rule.pattern.to_string()).collect();
    result.operations = subject.image.operations.clone();
    result.inlined = subject.image.inlined.iter().cloned().collect();
    result.runs = native.executions();
    result.search.interrupted = native.is_interrupted();
    result.seconds = begin.elapsed().as_secs_f64();
    Ok(result)
}

/// Outcome of a part of the exploration that may have to begin anew.
enum Part<T> {
    Done(T),
    /// Threads have met at further places.
    Anew,
}

/// Runs all operations one after the other, in all orders. Without operations there is no specification.
fn serial(
    options: &ExploreOptions,
    native: &Native<'_>,
) -> std::result::Result<Part<Option<Specification>>, ExplorationError> {
    if !native.has_operations() {
        return Ok(Part::Done(None));
    }
    native.specify(Some(Specification::default()));
    let bounds =
        Bounds { depth: options.depth, preemptions: usize::MAX, runs: options.runs, sequences: 0 };
    let found = explore(&native::Serial(native), bounds, |_| !native.is_over());
    let specification = native.specification();
    native.check()?;
    if native.has_grown() {
        return Ok(Part::Anew);
    }
    let found = found?;
    if native.is_interrupted() {
        return Err(ExplorationError::Interrupted);
    }
    if !found.is_complete {
        return Err(ExplorationError::Orders(options.runs));
    }
    Ok(Part::Done(specification))
}

/// Runs the interleavings with no preemption, one, two and so on (Musuvathi and Qadeer, "Iterative Context Bounding
/// for Systematic Testing of Multithreaded Programs"), depth first.
fn systematic(
    options: &ExploreOptions,
    native: &Native<'_>,
) -> std::result::Result<Explored, ExplorationError> {
    'anew: loop {
        let Part::Done(specification) = serial(options, native)? else { continue };
        let serial = specification.as_ref().map(Serial::of);
        native.judge_by(specification);
        let mut best: Option<(usize, Exploration)> = None;
        for preemptions in 0..=options.preemptions.unwrap_or(options.depth) {
            let bounds = Bounds {
                depth: options.depth,
                preemptions,
                runs: u64::MAX,
                sequences: MOST_SEQUENCES,
            };
            let found = explore(&native, bounds, |_| {
                !native.is_over() && native.executions() < options.runs
            });
            native.check()?;
            if native.has_grown() && !native.is_interrupted() {
                tracing::debug!(preemptions, "threads met at further places: the search restarts");
                continue 'anew;
            }
            let found = found?;
            let is_exact = found.is_complete && found.left_out == 0;
            let is_better = best.as_ref().is_none_or(|(_, best)| {
                found.is_complete || (found.faults > 0 && best.faults == 0)
            });
            let is_cut = !found.is_complete;
            tracing::debug!(
                preemptions,
                interleavings = found.runs,
                faults = found.faults,
                is_exact,
                is_cut,
                "interleavings up to a bound"
            );
            let fails_itself =
                preemptions == 0 && found.first_fault_run == Some(1) && native.fails_itself(&found);
            if is_better {
                best = Some((preemptions, found));
            }
            if is_exact || is_cut || fails_itself {
                break;
            }
        }
        let Some((preemptions, found)) = best else { continue };
        return Ok(Explored::of_tree(native, serial, preemptions, &found));
    }
}

/// Runs the program with random switches.
fn random(
    options: &ExploreOptions,
    native: &Native<'_>,
    seed: u64,
) -> std::result::Result<Explored, ExplorationError> {
    // The places at which threads meet, and the specification, first.
    let serial = loop {
        let Part::Done(specification) = serial(options, native)? else { continue };
        let bounds = Bounds { depth: options.depth, preemptions: 0, runs: 100, sequences: 0 };
        let serial = specification.as_ref().map(Serial::of);
        native.judge_by(specification);
        let found = explore(&native, bounds, |_| !native.is_over());
        native.check()?;
        if !native.has_grown() {
            found?;
            break serial;
        }
    };
    native.forget_always();
    let ExploreOptions { runs, depth, .. } = *options;
    let found = run_randomly(&native, seed, runs, depth, || !native.is_interrupted());
    native.check()?;
    Ok(Explored::of_random(native, serial, seed, found))
}

/// Runs the program once, first as the schedule says, then freely.
fn replay(
    options: &ExploreOptions,
    native: &Native<'_>,
    schedule: &Schedule,
) -> std::result::Result<Explored, ExplorationError> {
    let specification = loop {
        if let Part::Done(specification) = serial(options, native)? {
            break specification;
        }
    };
    let serial = specification.as_ref().map(Serial::of);
    native.judge_by(specification);
    let mut execution = native.everywhere()?;
    let mut last = 0;
    for (place, thread) in schedule.iter().enumerate() {
        if !is_ready(&execution, thread) {
            return Err(ExplorationError::Schedule { place: place + 1, thread });
        }
        execution.step(thread)?;
        last = thread;
    }
    // A schedule that was written by hand may end early.
    for _ in 0..options.depth {
        let count = execution.statuses().len();
        let mut next = std::iter::once(last).chain(0..count);
        let Some(thread) = next.find(|&thread| is_ready(&execution, thread)) else { break };
        execution.step(thread)?;
        last = thread;
    }
    let outcome: Rc<Outcome> = Rc::new(execution.finish());
    Ok(Explored::of_replay(native, serial, &outcome))
}

fn is_ready(execution: &Execution<'_>, thread: usize) -> bool {
    matches!(execution.statuses().get(thread), Some(Status::Ready { .. }))
}
