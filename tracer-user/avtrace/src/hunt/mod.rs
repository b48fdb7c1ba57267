//! A hunt (`avtrace hunt`): a program is run many times, and threads are delayed where others could come in, until
//! rare bugs show. The first run observes gaps; the schedule decides what is done in the next ones.
//!
//! [`hunt`] runs it; `state` is shared by all runs; `schedule` decides, without input or output; `planner` makes the
//! plan of a run; `child` is one run, a separate process; `results` is the file of all runs; `merge` makes one report
//! of it.

mod cause;
mod child;
mod database;
mod merge;
mod planner;
mod replay;
mod results;
mod run;
mod schedule;
mod scratch;
mod state;
mod targets;

use std::{
    cell::Cell,
    cmp::Reverse,
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub use self::{
    child::Launch,
    merge::{Whole, merged},
    replay::{ReplayOptions, replay},
    results::{Header, Results, ResultsError},
    run::{RunResult, Verdict},
    schedule::{Shard, Treatment},
    scratch::Scratch,
    targets::{Target, TargetError, build_of, targets},
};
use self::{
    child::Request,
    results::{END, Rate, WALL},
    run::Finding,
    state::{HuntState, hung, raised},
};
use plan::perturbation::Perturbation;
use report::{Class, HuntEnd, Report};

/// Longest time that the first run may take, if no limit is given.
const FIRST_LIMIT: Duration = Duration::from_secs(600);
/// Longest time before the observer is notified that the first run has not ended yet.
const PATIENCE: Duration = Duration::from_secs(60);
/// Least limit of further runs.
const LEAST_LIMIT: Duration = Duration::from_secs(10);
/// Limit of a further run, as a multiple of the longest run before.
const LIMIT_FACTOR: u32 = 10;
/// Number of defects whose runs are repeated.
const REPEATED_DEFECTS: usize = 3;
/// Number of runs of a defect that are repeated until one shows it again.
const REPEATED_RUNS: usize = 3;
/// Limit of start functions of threads that get a delay.
const MAX_THREAD_STARTS: usize = 16;

#[derive(Clone, Debug)]
pub struct HuntOptions {
    /// Number of runs; `None` for as many as there is time for.
    pub runs: Option<u64>,
    pub time: Option<Duration>,
    /// Runs side by side.
    pub jobs: usize,
    pub seed: u64,
    /// Part of the hunt.
    pub shard: Shard,
    /// End where the first run shows no gap.
    pub needs_gap: bool,
    /// End with the first likely defect.
    pub first: bool,
    /// Share of the time that delays may take.
    pub share: f64,
    /// Time after which a run is killed.
    pub limit: Option<Duration>,
    /// Number of repetitions of a run that shows a defect.
    pub repetitions: u64,
}

/// Progress of a running hunt, for people.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Runs that are over.
    pub runs: u64,
    pub failed: u64,
    /// Gaps that are known, those with delays, and those in which others came in meanwhile.
    pub gaps: (u64, u64, u64),
    pub likely: u64,
    pub possible: u64,
    /// Set while defects are repeated.
    pub repeats: bool,
}

/// Receiver of the progress of a hunt.
pub trait Observer: Sync {
    /// Called after each run, with the counts of all runs so far.
    fn progress(&self, progress: &Progress);
    /// Called when a run is the first to show a defect.
    fn found(&self, run: u64, class: Class, headline: &str);
    /// Called when the first run takes long; it will be killed after `after`.
    fn goes_on(&self, run: u64, after: Duration);
    /// Called when the first run hung. The next run observes once more.
    fn hung(&self, limit: Duration);
    /// Returns whether the hunt is to end.
    fn is_stopped(&self) -> bool;
    /// Marks the defects of a report that the user has set aside.
    fn set_aside(&self, report: &mut Report);
}

/// Reason for which a hunt cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum HuntError {
    #[error("{error}")]
    Untraced {
        /// Error of avtrace there.
        error: String,
        /// Its exit status.
        status: Option<u8>,
    },
    #[error(
        "the program did not end within {} seconds: hunts are for programs that end by themselves, such as a test; give \
         a longer --limit, or a command that starts the program, uses it and ends it",
        .0.as_secs()
    )]
    Endless(Duration),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error(
        "cannot run the program by avtrace: {0}; free memory, processes or disk space, or mend the command"
    )]
    Start(#[from] io::Error),
    /// The plan that is to be repeated is not there.
    #[error("the results have no run {0}: name one that a report names")]
    NoRun(u64),
    /// The program is of another build, and has none of the gaps of the plan.
    #[error(
        "the program has changed since run {0}, and none of the gaps at which it delayed threads is left: begin a new hunt"
    )]
    NoGaps(u64),
}

struct Hunting<'a> {
    options: &'a HuntOptions,
    launch: &'a Launch,
    observer: &'a dyn Observer,
    begun: Instant,
    /// Set when no further run is to begin.
    is_over: AtomicBool,
    state: Mutex<HuntState<'a>>,
}

/// Runs a hunt. If `results` has runs already, the hunt goes on from them.
///
/// # Errors
///
/// When the first run cannot be traced or does not end, or a run cannot be started or stored. The results have all
/// earlier runs.
pub fn hunt(
    options: &HuntOptions,
    launch: &Launch,
    results: &mut Results,
    observer: &dyn Observer,
) -> Result<HuntEnd, HuntError> {
    let state = HuntState::new(options, results, observer)?;
    let hunting = Hunting {
        options,
        launch,
        observer,
        begun: Instant::now(),
        is_over: AtomicBool::new(false),
        state: Mutex::new(state),
    };
    // The first run by itself: all others depend on it. It may be the one of many that hangs.
    while !hunting.is_observed() && !hunting.is_at_end() && hunting.one_run() {}
    if !hunting.is_observed() && !observer.is_stopped() {
        let limit = hunting.state().limit;
        hunting.fail(HuntError::Endless(limit));
    }
    if options.needs_gap && hunting.has_no_gap() {
        hunting.is_over.store(true, Ordering::Release);
    }
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| while !hunting.is_at_end() && hunting.one_run() {});
        }
    });
    let end = hunting.end();
    let is_failed = hunting.state().error.is_some();
    if !is_failed {
        // Stored first: what follows may be interrupted.
        hunting.state().results.set(END, &end)?;
    }
    if end != HuntEnd::Interrupted && !is_failed {
        hunting.repeat()?;
    }
    let wall = hunting.begun.elapsed();
    let state = hunting.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let before: u64 = state.results.get(WALL)?.unwrap_or_default();
    let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    state.results.set(WALL, &before.saturating_add(wall))?;
    state.error.map_or(Ok(end), Err)
}

/// Returns the limit of a run, given the time of the longest earlier run in nanoseconds.
fn limit_after(longest_ns: u64) -> Duration {
    LEAST_LIMIT.max(Duration::from_nanos(longest_ns) * LIMIT_FACTOR)
}

impl<'a> Hunting<'a> {
    fn state(&self) -> MutexGuard<'_, HuntState<'a>> {
        // A worker that panics has not left half a run: each is stored in one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no further run is to begin.
    fn is_at_end(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
            || self.observer.is_stopped()
            || self.options.time.is_some_and(|time| self.begun.elapsed() >= time)
    }

    /// Returns whether there is a run from which the limits of further runs follow.
    fn is_observed(&self) -> bool {
        self.state().is_observed
    }

    /// Returns whether the runs so far have passed and shown no gap at which a delay could be.
    fn has_no_gap(&self) -> bool {
        let state = self.state();
        state.is_observed && state.progress.gaps.0 == 0 && state.progress.failed == 0
    }

    /// Returns whether repeating runs has taken a tenth of the time more than was given.
    fn is_far_beyond_time(&self) -> bool {
        self.options.time.is_some_and(|time| self.begun.elapsed() > time + time / 10 + LEAST_LIMIT)
    }

    fn end(&self) -> HuntEnd {
        let state = self.state();
        let is_first = self.options.first && state.progress.likely > 0;
        let has_all = self.options.runs.is_some_and(|runs| state.next > runs);
        match () {
            () if self.observer.is_stopped() => HuntEnd::Interrupted,
            () if is_first => HuntEnd::FirstDefect,
            () if has_all => HuntEnd::AllRuns,
            () if self.options.needs_gap && state.progress.gaps.0 == 0 => HuntEnd::NoGap,
            () => HuntEnd::Time,
        }
    }

    /// Decides on a run, does it, and adds its result. Returns whether another run may follow.
    fn one_run(&self) -> bool {
        let Some((number, treatment, plan, limit)) = self.decide() else { return false };
        let (begun, is_first) = (Instant::now(), !self.is_observed());
        let patience = (limit / 2).min(PATIENCE);
        let is_said = Cell::new(false);
        let stopped = || {
            if is_first && begun.elapsed() >= patience && !is_said.replace(true) {
                self.observer.goes_on(number, limit);
            }
            self.observer.is_stopped() || self.is_first_found()
        };
        let plan_text = serde_json::to_string(&plan).unwrap_or_default();
        let request = Request { number, plan: &plan_text, limit };
        match self.launch.run(request, &stopped) {
            Ok(Some(result)) => self.take(RunResult { treatment, ..result }),
            Ok(None) => self.state().schedule.forget(&treatment),
            Err(error) => self.fail(HuntError::Start(error)),
        }
        true
    }

    fn is_first_found(&self) -> bool {
        self.options.first && self.is_over.load(Ordering::Acquire)
    }

    fn fail(&self, error: HuntError) {
        self.state().error.get_or_insert(error);
        self.is_over.store(true, Ordering::Release);
    }

    /// Decides on the next run; `None` if all runs are done.
    fn decide(&self) -> Option<(u64, Treatment, Perturbation, Duration)> {
        let mut state = self.state();
        let number = state.next;
        if self.options.runs.is_some_and(|runs| number > runs) {
            return None;
        }
        state.next += 1;
        let left = self.left(&state);
        let treatment = match state.schedule.next(number, left) {
            Treatment::Starve if !state.planner.can_starve => Treatment::Move,
            other => other,
        };
        let plan = state.planner.plan(self.options, number, &treatment);
        let (delays, limit) = (plan.delays.len(), state.limit);
        tracing::debug!(run = number, ?treatment, left, delays, ?limit, "decided on a run");
        Some((number, treatment, plan, state.limit))
    }

    /// Estimates how many runs follow the next one.
    fn left(&self, state: &HuntState<'_>) -> u64 {
        let by_number = self.options.runs.map(|runs| runs.saturating_sub(state.next - 1));
        let by_time = self.options.time.map(|time| {
            let elapsed = self.begun.elapsed();
            let runs = u32::try_from(state.runs_here).unwrap_or(u32::MAX);
            let each = (elapsed / runs.max(1)).max(Duration::from_millis(1));
            (time.saturating_sub(elapsed).as_nanos() / each.as_nanos()) as u64
        });
        match (by_number, by_time) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other).unwrap_or(u64::MAX - 1),
        }
    }

    /// Adds the result of a run to the state, and stores it.
    fn take(&self, mut result: RunResult) {
        let mut state = self.state();
        let found: Vec<(String, Class)> = (result.findings.iter())
            .filter(|(_, report)| {
                let mut report = report.clone();
                self.observer.set_aside(&mut report);
                report.defects.iter().all(|defect| defect.set_aside.is_none())
            })
            .map(|(finding, _)| (finding.fingerprint.clone(), finding.class))
            .collect();
        tracing::debug!(
            run = result.number,
            verdict = ?result.verdict,
            elapsed_ns = result.elapsed_ns,
            delayed_ns = result.delayed_ns,
            gaps = result.gaps.len(),
            findings = found.len(),
            "a run has ended"
        );
        if let Some(error) = state.refusal(&result, &found) {
            tracing::debug!(%error, "the hunt ends by this run");
            drop(state);
            return self.fail(error);
        }
        state.runs_here += 1;
        state.planner.credit_gaps(&mut result);
        let is_new = |(fingerprint, class): &&(String, Class)| {
            let known = state.classes.get(fingerprint);
            *class != Class::ByDesign && known.is_none_or(|known| class < known)
        };
        let new: Vec<String> = found.iter().filter(is_new).map(|(of, _)| of.clone()).collect();
        let learnt = state.count(&result, &found);
        if let Err(error) = state.results.add(&result) {
            drop(state);
            return self.fail(error.into());
        }
        if matches!(result.verdict, Verdict::Untraced(_)) {
            state.schedule.forget(&result.treatment);
        } else {
            state.schedule.learn(&result.treatment, &learnt);
            let is_first = !state.is_observed;
            match is_first {
                true if hung(&result, &found) => self.observer.hung(state.limit),
                true => state.adopt(self.options, &result, result.report.as_deref()),
                false => state.set_budget(self.options, &result),
            }
            if self.options.limit.is_none() && !is_first {
                state.limit = raised(state.limit, &result);
            }
        }
        state.progress.gaps = state.schedule.counts();
        if self.options.first && state.progress.likely > 0 {
            self.is_over.store(true, Ordering::Release);
        }
        for (finding, _) in &result.findings {
            if new.contains(&finding.fingerprint) {
                self.observer.found(result.number, finding.class, &finding.headline);
            }
        }
        self.observer.progress(&state.progress);
    }

    /// Repeats runs that show the likeliest defects, to say how often they show again. A defect that a run does not
    /// show again is shown by another run, if that does.
    fn repeat(&self) -> Result<(), HuntError> {
        let mut state = self.state();
        let mut rates = state.results.rates()?;
        rates.retain(|of| {
            of.class != Class::ByDesign && state.classes.contains_key(&of.fingerprint)
        });
        // The likeliest first; of one class, the one that most runs showed.
        rates.sort_by_key(|of| (of.class, Reverse(of.runs)));
        state.progress.repeats = true;
        let mut repeated = 0;
        for Rate { fingerprint, class, shown, .. } in rates {
            if repeated >= REPEATED_DEFECTS || self.options.repetitions == 0 {
                break;
            }
            let known = state.results.replays()?;
            let is_repeated = |run: u64| known.iter().any(|replay| replay.run == run);
            let shows_again = |run: u64| {
                known.iter().any(|of| of.run == run && of.fingerprints.contains(&fingerprint))
            };
            if shows_again(shown) {
                continue;
            }
            let findings = state.results.findings()?;
            let others = findings
                .iter()
                .filter(|(run, of)| *run != shown && of.fingerprint == fingerprint)
                .filter(|(_, of)| of.class == class)
                .map(|(run, _)| *run);
            let runs: Vec<u64> = std::iter::once(shown).chain(others).collect();
            repeated += usize::from(!is_repeated(shown));
            for run in runs.into_iter().filter(|run| !is_repeated(*run)).take(REPEATED_RUNS) {
                let Some(found) = self.repeat_run(&mut state, run, &fingerprint, class)? else {
                    return Ok(());
                };
                if let Some(report) = found {
                    state.results.show(&fingerprint, run, &report)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Repeats a run. Returns the report of the first repetition that shows a defect in its class, if one does; `None`
    /// where the hunt has ended meanwhile.
    fn repeat_run(
        &self,
        state: &mut HuntState<'_>,
        run: u64,
        fingerprint: &str,
        class: Class,
    ) -> Result<Option<Option<Report>>, HuntError> {
        let Some((_, plan)) = state.results.plan(run)? else { return Ok(Some(None)) };
        let mut shown = None;
        tracing::debug!(run, fingerprint, "a run is repeated");
        for repetition in 1..=self.options.repetitions {
            self.observer.progress(&state.progress);
            let request = Request { number: repetition, plan: &plan, limit: state.limit };
            let is_stopped = || self.observer.is_stopped() || self.is_far_beyond_time();
            match self.launch.run(request, &is_stopped)? {
                // A run that cannot be traced does not count.
                Some(RunResult { verdict: Verdict::Untraced(_), .. }) => {}
                Some(mut result) => {
                    replay::store_replay(state.results, run, &result)?;
                    let is_it = |(of, _): &(Finding, Report)| {
                        of.fingerprint == fingerprint && of.class <= class
                    };
                    let found = result.findings.iter().position(is_it);
                    shown = shown.or_else(|| found.map(|at| result.findings.swap_remove(at).1));
                }
                None => return Ok(None),
            }
        }
        Ok(Some(shown))
    }
}
