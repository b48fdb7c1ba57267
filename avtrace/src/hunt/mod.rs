//! A hunt (`avtrace hunt`): a program is run many times, and threads are delayed where others could come in, until
//! rare bugs show. The first run observes gaps; the schedule decides what is done in the next ones.
//!
//! [`hunt`] runs it; `schedule` decides, without input or output; `child` is one run, a process of its own; `results`
//! is the file that all of them go to; `merge` makes one report of it.

mod child;
mod merge;
mod random;
mod results;
mod run;
mod schedule;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
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
    random::hash,
    results::{Header, Results, ResultsError},
    run::{RunResult, Verdict},
    schedule::{Shard, Treatment},
};
use self::{
    child::Request,
    random::Random,
    results::Replay,
    run::FoundGap,
    schedule::{Learnt, Schedule},
};
use crate::{
    report::{CaptureBackend, Class, HuntEnd, Report},
    session::perturbation::{Affinity, Delay, Perturbation, Starvation, VERSION},
};

/// Longest time that the first run may take, if no limit is given.
const FIRST_LIMIT: Duration = Duration::from_secs(600);
/// Least time that each further run has.
const LEAST_LIMIT: Duration = Duration::from_secs(10);
/// Time that a further run has, in first runs.
const LIMIT_FACTOR: u32 = 10;
/// Longest time that a thread gets no processor, in milliseconds.
const LONGEST_STARVATION_MS: u32 = 200;
/// Defects of which it is measured how often they show again.
const REPEATED_DEFECTS: usize = 3;
/// Runs that avtrace cannot trace before the hunt is given up, if there are no others.
const MOST_UNTRACED: u64 = 3;

/// Options of a hunt.
#[derive(Clone, Debug)]
pub struct HuntOptions {
    /// Number of runs; `None` for as many as there is time for.
    pub runs: Option<u64>,
    /// Time for all runs.
    pub time: Option<Duration>,
    /// Runs side by side.
    pub jobs: usize,
    /// Seed of all choices.
    pub seed: u64,
    /// Part of the hunt.
    pub shard: Shard,
    /// End with the first likely defect.
    pub first: bool,
    /// Share of the time that delays may take.
    pub share: f64,
    /// Time after which a run is killed.
    pub limit: Option<Duration>,
    /// Runs that repeat the one that shows a defect.
    pub repetitions: u64,
}

/// State of a hunt that goes on, for people.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Runs that are over.
    pub runs: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Gaps that are known, those with delays, and those in which others came in meanwhile.
    pub gaps: (u64, u64, u64),
    /// Likely defects.
    pub likely: u64,
    /// Possible defects.
    pub possible: u64,
    /// Set while defects are repeated.
    pub repeats: bool,
}

/// Receiver of what is said of a hunt.
pub trait Observer: Sync {
    /// Takes what the runs so far have shown.
    fn progress(&self, progress: &Progress);
    /// Takes a defect that a run shows first, with the headline.
    fn found(&self, run: u64, class: Class, headline: &str);
    /// Returns whether the hunt is to end.
    fn is_stopped(&self) -> bool;
}

/// Reason for which a hunt cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum HuntError {
    /// The first run cannot be traced.
    #[error("{0}")]
    Untraced(String),
    /// The first run did not end.
    #[error(
        "the program did not end within {} seconds: hunts are for programs that end by themselves, such as a test; give \
         a longer --limit, or a command that starts the program, uses it and ends it",
        .0.as_secs()
    )]
    Endless(Duration),
    /// The results cannot be used.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// Runs cannot be started.
    #[error("cannot start avtrace for a run: {0}; free memory, processes or disk space")]
    Start(#[from] io::Error),
    /// The plan that is to be repeated is not there.
    #[error("the results have no run {0}: name one that a report names")]
    NoRun(u64),
}

/// State that all runs of a hunt share.
struct State<'a> {
    schedule: Schedule,
    results: &'a mut Results,
    gaps: HashMap<String, FoundGap>,
    /// Number of the next run.
    next: u64,
    progress: Progress,
    classes: HashMap<String, Class>,
    untraced: u64,
    /// Limit of the further runs.
    limit: Duration,
    /// Share of the program's own time that delays may take: that of avtrace counts as well.
    share: f64,
    /// Set if the back end can hold threads: that of the kernel has no tracer for it.
    can_starve: bool,
    error: Option<HuntError>,
}

/// A hunt that goes on.
struct Hunting<'a> {
    options: &'a HuntOptions,
    launch: &'a Launch,
    observer: &'a dyn Observer,
    begun: Instant,
    /// Set when no further run is to begin.
    is_over: AtomicBool,
    state: Mutex<State<'a>>,
}

/// Runs a hunt, or goes on with one that results are of already.
///
/// # Errors
///
/// When the first run shows nothing, or a run cannot be started or stored. What earlier runs have shown is in the
/// results.
pub fn hunt(
    options: &HuntOptions,
    launch: &Launch,
    results: &mut Results,
    observer: &dyn Observer,
) -> Result<HuntEnd, HuntError> {
    let state = State::new(options, results)?;
    let hunting = Hunting {
        options,
        launch,
        observer,
        begun: Instant::now(),
        is_over: AtomicBool::new(false),
        state: Mutex::new(state),
    };
    // The first run by itself: all others depend on it.
    if hunting.state().next == 1 {
        hunting.one_run();
    }
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| while !hunting.is_at_end() && hunting.one_run() {});
        }
    });
    let end = hunting.end();
    let interrupted = end == HuntEnd::Interrupted;
    let is_failed = hunting.state().error.is_some();
    if !interrupted && !is_failed {
        hunting.repeat()?;
    }
    let state = hunting.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.error {
        return Err(error);
    }
    state.results.set(merge::END, &end)?;
    Ok(end)
}

/// Repeats a run of a hunt, and stores how often its defects show again.
///
/// # Errors
///
/// When the results have no such run, or it cannot be repeated.
pub fn replay(
    (run, times): (u64, u64),
    launch: &Launch,
    limit: Duration,
    results: &mut Results,
    observer: &dyn Observer,
) -> Result<(), HuntError> {
    let runs = results.runs()?;
    let plan = runs.iter().find(|result| result.number == run).map(|result| result.plan.clone());
    let plan = plan.ok_or(HuntError::NoRun(run))?;
    for repetition in 1..=times {
        let request = Request { number: repetition, plan: &plan, limit };
        let Some(result) = launch.run(request, &|| observer.is_stopped())? else { break };
        store_replay(results, run, &result)?;
    }
    Ok(())
}

fn store_replay(results: &mut Results, run: u64, result: &RunResult) -> Result<(), HuntError> {
    if let Verdict::Untraced(error) = &result.verdict {
        return Err(HuntError::Untraced(error.clone()));
    }
    let fingerprints = result.fingerprints().map(str::to_owned).collect();
    results.add_replay(&Replay { run, fingerprints }, &result.verdict)?;
    Ok(())
}

impl<'a> State<'a> {
    /// Takes in what the results have, so that the hunt goes on from there.
    fn new(options: &HuntOptions, results: &'a mut Results) -> Result<Self, HuntError> {
        let mut state = Self {
            schedule: Schedule::new(options.seed, options.shard),
            gaps: results.gaps()?.into_iter().map(|gap| (gap.id.clone(), gap)).collect(),
            next: 1,
            progress: Progress {
                runs: 0,
                failed: 0,
                gaps: (0, 0, 0),
                likely: 0,
                possible: 0,
                repeats: false,
            },
            classes: HashMap::new(),
            untraced: 0,
            limit: options.limit.unwrap_or(FIRST_LIMIT),
            share: options.share,
            can_starve: false,
            error: None,
            results,
        };
        let mut findings: HashMap<u64, Vec<(String, Class)>> = HashMap::new();
        for (run, finding) in state.results.findings()? {
            findings.entry(run).or_default().push((finding.fingerprint, finding.class));
        }
        for result in state.results.runs()? {
            let found = findings.remove(&result.number).unwrap_or_default();
            let is_new = state.count(&result, &found);
            let learnt = Learnt { new_defect: is_new, ..result.learnt.clone() };
            if matches!(result.verdict, Verdict::Untraced(_)) {
                state.schedule.forget(&result.treatment);
            } else {
                state.schedule.resume(&result.treatment, &learnt);
            }
            state.next = state.next.max(result.number + 1);
            if result.number == 1 {
                let report = state.results.get(merge::FIRST_REPORT)?;
                state.adopt(options, &result, report.as_ref());
            }
        }
        Ok(state)
    }

    /// Counts a run, and returns whether it shows a defect that was not known.
    fn count(&mut self, result: &RunResult, found: &[(String, Class)]) -> bool {
        if matches!(result.verdict, Verdict::Untraced(_)) {
            self.untraced += 1;
            return false;
        }
        self.progress.runs += 1;
        self.progress.failed += u64::from(result.verdict.is_failure());
        let mut is_new = false;
        for (fingerprint, class) in found {
            let known = self.classes.get(fingerprint).copied();
            if known.is_none_or(|known| *class < known) {
                self.classes.insert(fingerprint.clone(), *class);
                is_new |= *class != Class::ByDesign;
            }
        }
        let number = |wanted| self.classes.values().filter(|class| **class == wanted).count();
        self.progress.likely = number(Class::Likely) as u64;
        self.progress.possible = number(Class::Possible) as u64;
        is_new
    }

    /// Takes the measures of the first run over for the further ones.
    fn adopt(&mut self, options: &HuntOptions, first: &RunResult, report: Option<&Report>) {
        let elapsed = Duration::from_nanos(first.elapsed_ns);
        self.limit = options.limit.unwrap_or_else(|| LEAST_LIMIT.max(elapsed * LIMIT_FACTOR));
        let budget = first.elapsed_ns as f64 * options.share;
        self.schedule.set_budget(budget as u64);
        let capture = report.and_then(|report| report.capture.as_ref());
        self.can_starve = capture.is_some_and(|of| of.backend == CaptureBackend::Inline);
        // What avtrace needs for its start counts, since it is part of the wait.
        let own = report.and_then(|report| report.perturbation.as_ref()).map(|of| of.wall_ns);
        self.share = match own.filter(|&own| own > 0) {
            Some(own) => (budget / own as f64).clamp(options.share, 1.0),
            None => options.share,
        };
    }
}

impl<'a> Hunting<'a> {
    fn state(&self) -> MutexGuard<'_, State<'a>> {
        // A worker that panics has not left half a run: each is stored in one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no further run is to begin.
    fn is_at_end(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
            || self.observer.is_stopped()
            || self.options.time.is_some_and(|time| self.begun.elapsed() >= time)
    }

    /// Returns the reason for the end.
    fn end(&self) -> HuntEnd {
        let state = self.state();
        let is_first = self.options.first && state.progress.likely > 0;
        let has_all = self.options.runs.is_some_and(|runs| state.next > runs);
        match () {
            () if self.observer.is_stopped() => HuntEnd::Interrupted,
            () if is_first => HuntEnd::FirstDefect,
            () if has_all => HuntEnd::AllRuns,
            () => HuntEnd::Time,
        }
    }

    /// Decides on a run, does it, and takes it in. Returns whether another one may follow.
    fn one_run(&self) -> bool {
        let Some((number, treatment, plan, limit)) = self.decide() else { return false };
        let stopped = || self.observer.is_stopped() || self.is_first_found();
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

    /// Decides what is done in the next run; `None` if there is none.
    fn decide(&self) -> Option<(u64, Treatment, Perturbation, Duration)> {
        let mut state = self.state();
        let number = state.next;
        if self.options.runs.is_some_and(|runs| number > runs) {
            return None;
        }
        state.next += 1;
        let left = self.left(&state);
        let treatment = match state.schedule.next(number, left) {
            Treatment::Starve if !state.can_starve => Treatment::Move,
            other => other,
        };
        let plan = state.plan(self.options, number, &treatment);
        let limit = match self.options.time {
            Some(time) => state.limit.min(time.saturating_sub(self.begun.elapsed()) + LEAST_LIMIT),
            None => state.limit,
        };
        Some((number, treatment, plan, limit))
    }

    /// Estimates how many runs follow the next one.
    fn left(&self, state: &State<'_>) -> u64 {
        let by_number = self.options.runs.map(|runs| runs.saturating_sub(state.next - 1));
        let by_time = self.options.time.map(|time| {
            let elapsed = self.begun.elapsed();
            let runs = u32::try_from(state.progress.runs).unwrap_or(u32::MAX);
            let each = (elapsed / runs.max(1)).max(Duration::from_millis(1));
            (time.saturating_sub(elapsed).as_nanos() / each.as_nanos()) as u64
        });
        match (by_number, by_time) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other).unwrap_or(u64::MAX - 1),
        }
    }

    /// Takes the result of a run in.
    fn take(&self, result: RunResult) {
        let mut state = self.state();
        let is_open =
            |report: &Report| report.defects.iter().all(|defect| defect.set_aside.is_none());
        let found: Vec<(String, Class, String)> = (result.findings.iter())
            .filter(|(_, report)| is_open(report))
            .map(|(finding, _)| {
                (finding.fingerprint.clone(), finding.class, finding.headline.clone())
            })
            .collect();
        let is_new = |(fingerprint, class, _): &&(String, Class, String)| {
            *class != Class::ByDesign
                && state.classes.get(fingerprint).is_none_or(|known| class < known)
        };
        let new: Vec<(Class, String)> = found
            .iter()
            .filter(is_new)
            .map(|(_, class, headline)| (*class, headline.clone()))
            .collect();
        let pairs: Vec<(String, Class)> =
            found.into_iter().map(|(fingerprint, class, _)| (fingerprint, class)).collect();
        let is_new = state.count(&result, &pairs);
        let learnt = Learnt { new_defect: is_new, ..result.learnt.clone() };
        if let Err(error) = state.results.add(&result) {
            drop(state);
            return self.fail(error.into());
        }
        if result.number == 1 {
            match (&result.verdict, &result.report) {
                (Verdict::Untraced(error), _) => {
                    let error = HuntError::Untraced(error.clone());
                    drop(state);
                    return self.fail(error);
                }
                (Verdict::TimedOut, _) => {
                    let limit = state.limit;
                    drop(state);
                    return self.fail(HuntError::Endless(limit));
                }
                _ => {}
            }
            if let Some(Err(error)) =
                result.report.as_ref().map(|report| state.results.set(merge::FIRST_REPORT, report))
            {
                drop(state);
                return self.fail(error.into());
            }
            state.adopt(self.options, &result, result.report.as_deref());
        }
        match &result.verdict {
            Verdict::Untraced(error) => {
                state.schedule.forget(&result.treatment);
                // A machine that traces nothing any more is not asked for ever.
                if state.untraced >= MOST_UNTRACED.max(state.progress.runs) {
                    let error = HuntError::Untraced(error.clone());
                    drop(state);
                    return self.fail(error);
                }
            }
            _ => state.schedule.learn(&result.treatment, &learnt),
        }
        for gap in result.gaps {
            state.gaps.insert(gap.id.clone(), gap);
        }
        state.progress.gaps = state.schedule.counts();
        if self.options.first && state.progress.likely > 0 {
            self.is_over.store(true, Ordering::Release);
        }
        for (class, headline) in new {
            self.observer.found(result.number, class, &headline);
        }
        self.observer.progress(&state.progress);
    }

    /// Repeats the runs that show the likeliest defects best, to say how often they show again.
    fn repeat(&self) -> Result<(), HuntError> {
        let mut state = self.state();
        let Some(whole) = Whole::read(state.results)? else { return Ok(()) };
        let repeated: Vec<Replay> = state.results.replays()?;
        let plans: HashMap<u64, String> =
            state.results.runs()?.into_iter().map(|run| (run.number, run.plan)).collect();
        let mut runs: Vec<u64> = Vec::new();
        for (_, run) in whole.defects_to_repeat() {
            let is_repeated = repeated.iter().any(|replay| replay.run == run);
            if !runs.contains(&run) && !is_repeated && runs.len() < REPEATED_DEFECTS {
                runs.push(run);
            }
        }
        state.progress.repeats = true;
        let limit = state.limit;
        for run in runs {
            let Some(plan) = plans.get(&run) else { continue };
            for repetition in 1..=self.options.repetitions {
                self.observer.progress(&state.progress);
                let request = Request { number: repetition, plan, limit };
                match self.launch.run(request, &|| self.observer.is_stopped())? {
                    Some(result) => store_replay(state.results, run, &result)?,
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }
}

impl State<'_> {
    /// Returns the plan of a run.
    fn plan(&self, options: &HuntOptions, number: u64, treatment: &Treatment) -> Perturbation {
        let shard = options.shard;
        let seed = Random::new(options.seed, number * shard.count + shard.index).number();
        let mut plan = Perturbation {
            version: VERSION,
            observe_gaps: true,
            share: self.share,
            delays: Vec::new(),
            starvation: None,
            affinity: None,
            seed,
        };
        match treatment {
            Treatment::Observe => {}
            Treatment::Starve => {
                plan.starvation =
                    Some(Starvation { seed, longest_ms: LONGEST_STARVATION_MS, share: self.share });
            }
            Treatment::Move => plan.affinity = Some(Affinity { seed }),
            Treatment::Delay(delays) => {
                for planned in delays {
                    let place = self.gaps.get(&planned.gap).and_then(|gap| gap.delay_at.clone());
                    let Some((module, address)) = place else { continue };
                    let is_taken =
                        |delay: &Delay| delay.module == module && delay.address == address;
                    // Gaps may begin at one step: the first of them stands for all.
                    if plan.delays.iter().any(is_taken) {
                        continue;
                    }
                    plan.delays.push(Delay {
                        id: planned.gap.clone(),
                        module,
                        address,
                        nanoseconds: planned.nanoseconds,
                        hits: planned.hits,
                        probability: planned.probability,
                    });
                }
            }
        }
        plan
    }
}

/// Directory for the files of runs, removed at the end.
///
/// # Errors
///
/// When there is no room for one.
pub fn scratch() -> io::Result<(tempfile::TempDir, PathBuf)> {
    let directory = tempfile::Builder::new().prefix("avtrace-hunt-").tempdir()?;
    let path = directory.path().to_owned();
    Ok((directory, path))
}
