//! A hunt (`avtrace hunt`): a program is run many times, and threads are delayed where others could come in, until
//! rare bugs show. The first run observes gaps; the schedule decides what is done in the next ones.
//!
//! [`hunt`] runs it; `schedule` decides, without input or output; `child` is one run, a process of its own; `results`
//! is the file that all of them go to; `merge` makes one report of it.

mod child;
mod database;
mod merge;
mod random;
mod replay;
mod results;
mod run;
mod schedule;
mod targets;

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
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
    replay::replay,
    results::{Header, Results, ResultsError},
    run::{RunResult, Verdict},
    schedule::{Shard, Treatment},
    targets::{Target, TargetError, build_of, targets},
};
use tempfile::TempDir;

use self::{
    child::Request,
    random::Random,
    results::{FoundDefect, Rate, Replay},
    run::{FoundGap, THREAD_START, delay_id, open_fingerprint},
    schedule::{Learnt, PlannedDelay, Schedule, SeenGap},
};
use linux::user::Identity;
use plan::perturbation::{Affinity, Delay, DelayedThreads, Perturbation, Starvation, VERSION};
use report::{CaptureBackend, Class, HuntEnd, Report};

/// Longest time that the first run may take, if no limit is given.
const FIRST_LIMIT: Duration = Duration::from_secs(600);
/// Longest time before it is said that the first run has not ended yet.
const PATIENCE: Duration = Duration::from_secs(60);
/// Least time that each further run has.
const LEAST_LIMIT: Duration = Duration::from_secs(10);
/// Time that a further run has, in the longest run before.
const LIMIT_FACTOR: u32 = 10;
/// Longest time that a thread gets no processor, in milliseconds.
const LONGEST_STARVATION_MS: u32 = 200;
/// Defects of which it is measured how often they show again.
const REPEATED_DEFECTS: usize = 3;
/// Functions that threads start with which get a delay, at most.
const MAX_THREAD_STARTS: usize = 16;
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
#[derive(Clone, Debug, Default)]
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
    /// Takes that a first run goes on and on: `after` that time it is killed.
    fn goes_on(&self, run: u64, after: Duration);
    /// Takes that the first run hung, so that the next one observes once more.
    fn hung(&self, limit: Duration);
    /// Returns whether the hunt is to end.
    fn is_stopped(&self) -> bool;
    /// Marks the defects of a report that the user has set aside.
    fn set_aside(&self, report: &mut Report);
}

/// Reason for which a hunt cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum HuntError {
    /// The first run cannot be traced.
    #[error("{error}")]
    Untraced {
        /// Error of avtrace there.
        error: String,
        /// Its exit status.
        status: Option<u8>,
    },
    /// The first runs did not end.
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
    #[error(
        "cannot run the program by avtrace: {0}; free memory, processes or disk space, or mend the command"
    )]
    Start(#[from] io::Error),
    /// The plan that is to be repeated is not there.
    #[error("the results have no run {0}: name one that a report names")]
    NoRun(u64),
    /// The program is of another build, in which the plan means nothing.
    #[error(
        "the program has changed since run {0}, and none of the gaps at which it delayed threads is left: begin a new hunt"
    )]
    NoGaps(u64),
}

/// State that all runs of a hunt share.
struct State<'a> {
    schedule: Schedule,
    results: &'a mut Results,
    gaps: HashMap<String, FoundGap>,
    /// Places for delays at the start of threads.
    thread_starts: BTreeSet<(String, u64)>,
    /// Number of the next run.
    next: u64,
    progress: Progress,
    classes: HashMap<String, Class>,
    untraced: u64,
    /// Set once a run has been observed that ended, or showed a defect: the further ones follow from it.
    is_observed: bool,
    /// Limit of the further runs.
    limit: Duration,
    /// Share of the program's own time that delays may take: that of avtrace counts as well.
    share: f64,
    /// Time of the program in the first run.
    program: Duration,
    /// Runs of this hunt, without those that it went on from.
    runs_here: u64,
    /// Time of the runs without delays, and their number.
    undelayed: (u64, u64),
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
    let state = State::new(options, results, observer)?;
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
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| while !hunting.is_at_end() && hunting.one_run() {});
        }
    });
    let end = hunting.end();
    let is_failed = hunting.state().error.is_some();
    if !is_failed {
        // Stored first: what follows may be interrupted.
        hunting.state().results.set(merge::END, &end)?;
    }
    if end != HuntEnd::Interrupted && !is_failed {
        hunting.repeat()?;
    }
    let state = hunting.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.error.map_or(Ok(end), Err)
}

/// Returns the time that a run may take, from that of the longest one before in nanoseconds.
fn limit_after(longest_ns: u64) -> Duration {
    LEAST_LIMIT.max(Duration::from_nanos(longest_ns) * LIMIT_FACTOR)
}

/// Returns the limit after a further run, which may have shown that the machine has other work now: the program has not
/// failed because it takes longer than in the first run.
fn raised(limit: Duration, result: &RunResult) -> Duration {
    match result.verdict {
        Verdict::TimedOut | Verdict::Untraced(_) => limit,
        // Each that takes long would raise it for the next one.
        _ => limit.max(limit_after(result.elapsed_ns).min(FIRST_LIMIT)),
    }
}

/// Returns whether a run had to be killed and shows no defect that could be why.
fn hung(result: &RunResult, found: &[(String, Class)]) -> bool {
    result.verdict == Verdict::TimedOut && found.iter().all(|(_, class)| *class == Class::ByDesign)
}

impl<'a> State<'a> {
    /// Takes in what the results have, so that the hunt goes on from there.
    fn new(
        options: &HuntOptions,
        results: &'a mut Results,
        observer: &dyn Observer,
    ) -> Result<Self, HuntError> {
        let mut state = Self {
            schedule: Schedule::new(options.seed, options.shard),
            gaps: results.gaps()?.into_iter().map(|gap| (gap.id.clone(), gap)).collect(),
            thread_starts: BTreeSet::new(),
            next: 1,
            progress: Progress::default(),
            classes: HashMap::new(),
            untraced: 0,
            is_observed: false,
            limit: options.limit.unwrap_or(FIRST_LIMIT),
            share: options.share,
            program: Duration::ZERO,
            runs_here: 0,
            undelayed: (0, 0),
            can_starve: false,
            error: None,
            results,
        };
        let known: Vec<SeenGap> = state.gaps.values().map(|gap| gap.seen.clone()).collect();
        state.schedule.know(&known);
        let mut open: HashSet<String> = HashSet::new();
        for FoundDefect { mut report, .. } in state.results.defects()? {
            open.extend(report.open_at_end.iter().map(open_fingerprint));
            observer.set_aside(&mut report);
            let defects = report.defects.into_iter().filter(|defect| defect.set_aside.is_none());
            open.extend(defects.map(|defect| defect.fingerprint));
        }
        let mut findings: HashMap<u64, Vec<(String, Class)>> = HashMap::new();
        for (run, finding) in state.results.findings()? {
            if !open.contains(&finding.fingerprint) {
                continue;
            }
            findings.entry(run).or_default().push((finding.fingerprint, finding.class));
        }
        for result in state.results.runs()? {
            let found = findings.remove(&result.number).unwrap_or_default();
            let learnt = state.count(&result, &found);
            if !matches!(result.verdict, Verdict::Untraced(_)) {
                state.schedule.resume(&result.treatment, &learnt);
            }
            state.next = state.next.max(result.number + 1);
            if !state.is_observed && !hung(&result, &found) {
                let report = state.results.get(merge::FIRST_REPORT)?;
                state.adopt(options, &result, report.as_ref());
            } else if options.limit.is_none() {
                state.limit = raised(state.limit, &result);
            }
        }
        Ok(state)
    }

    /// Counts a run with its open defects, and returns what the schedule learns from it.
    fn count(&mut self, result: &RunResult, found: &[(String, Class)]) -> Learnt {
        if matches!(result.verdict, Verdict::Untraced(_)) {
            self.untraced += 1;
            return Learnt::default();
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
        let has_defect = found.iter().any(|(_, class)| *class != Class::ByDesign);
        Learnt { has_defect, new_defect: is_new, ..result.learnt.clone() }
    }

    /// Takes the measures of the first run over for the further ones.
    fn adopt(&mut self, options: &HuntOptions, first: &RunResult, report: Option<&Report>) {
        self.is_observed = true;
        if first.verdict != Verdict::TimedOut {
            self.limit = options.limit.unwrap_or_else(|| limit_after(first.elapsed_ns));
        }
        self.program = Duration::from_nanos(first.program_ns);
        self.set_budget(options, first);
        let capture = report.and_then(|report| report.capture.as_ref());
        self.can_starve = capture.is_some_and(|of| of.backend == CaptureBackend::Inline);
        // The start-up time of avtrace counts as time of the run, since the user waits for it as well.
        self.share = match first.program_ns {
            0 => options.share,
            own => (first.elapsed_ns as f64 * options.share / own as f64).clamp(options.share, 1.0),
        };
    }

    /// Takes the time of a run into account: delays take a share of all time, so of the rest somewhat more.
    fn set_budget(&mut self, options: &HuntOptions, result: &RunResult) {
        let (time, runs) = &mut self.undelayed;
        *time += result.elapsed_ns.saturating_sub(result.delayed_ns);
        *runs += 1;
        let mean = *time as f64 / *runs as f64;
        self.schedule.set_budget((mean * options.share / (1.0 - options.share)) as u64);
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

    /// Returns whether there is a run that the further ones follow from.
    fn is_observed(&self) -> bool {
        self.state().is_observed
    }

    /// Returns whether repeating runs has taken a tenth of the time more than was given.
    fn is_far_beyond_time(&self) -> bool {
        self.options.time.is_some_and(|time| self.begun.elapsed() > time + time / 10 + LEAST_LIMIT)
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
        Some((number, treatment, plan, state.limit))
    }

    /// Estimates how many runs follow the next one.
    fn left(&self, state: &State<'_>) -> u64 {
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

    /// Takes the result of a run in.
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
        if let Some(error) = state.refusal(&result, &found) {
            drop(state);
            return self.fail(error);
        }
        state.runs_here += 1;
        state.credit_gaps(&mut result);
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

    /// Repeats the runs that show the likeliest defects best, to say how often they show again.
    fn repeat(&self) -> Result<(), HuntError> {
        let mut state = self.state();
        let mut rates = state.results.rates()?;
        rates.retain(|of| {
            of.class != Class::ByDesign && state.classes.contains_key(&of.fingerprint)
        });
        // The likeliest, and of these those that most runs showed.
        rates.sort_by_key(|of| (of.class, Reverse(of.runs)));
        let repeated: Vec<Replay> = state.results.replays()?;
        let mut runs: Vec<u64> = Vec::new();
        for Rate { shown: run, .. } in rates {
            let is_repeated = repeated.iter().any(|replay| replay.run == run);
            if !runs.contains(&run) && !is_repeated && runs.len() < REPEATED_DEFECTS {
                runs.push(run);
            }
        }
        state.progress.repeats = true;
        let limit = state.limit;
        for run in runs {
            let Some((_, plan)) = state.results.plan(run)? else { continue };
            for repetition in 1..=self.options.repetitions {
                self.observer.progress(&state.progress);
                let request = Request { number: repetition, plan: &plan, limit };
                let is_stopped = || self.observer.is_stopped() || self.is_far_beyond_time();
                match self.launch.run(request, &is_stopped)? {
                    // One that cannot be traced says nothing.
                    Some(RunResult { verdict: Verdict::Untraced(_), .. }) => {}
                    Some(result) => replay::store_replay(state.results, run, &result)?,
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }
}

impl State<'_> {
    /// Returns the error of a run that ends the hunt: nothing of it is kept.
    fn refusal(&self, result: &RunResult, found: &[(String, Class)]) -> Option<HuntError> {
        match &result.verdict {
            // A machine that traces nothing any more is not asked for ever.
            Verdict::Untraced(error)
                if !self.is_observed || self.untraced >= MOST_UNTRACED.max(self.progress.runs) =>
            {
                Some(HuntError::Untraced { error: error.clone(), status: result.status })
            }
            // A bug that shows itself in the first run is a find, and one that makes it hang is worth another one.
            _ if !self.is_observed && result.number > 1 && hung(result, found) => {
                Some(HuntError::Endless(self.limit))
            }
            _ => None,
        }
    }

    /// Adds a run's gaps to those that are known. One at the place of another one has its delays.
    fn credit_gaps(&mut self, result: &mut RunResult) {
        let known = &self.gaps;
        let place_of = |id: &str| {
            let of_run = result.gaps.iter().find(|gap| gap.id == id);
            of_run.or_else(|| known.get(id))?.delay_at.clone()
        };
        let delayed: Vec<((String, u64), u64)> = (result.learnt.gaps.iter())
            .filter(|gap| gap.delays > 0)
            .filter_map(|gap| Some((place_of(&gap.id)?, gap.delays)))
            .collect();
        let places: Vec<Option<(String, u64)>> =
            result.learnt.gaps.iter().map(|gap| place_of(&gap.id)).collect();
        for (gap, place) in result.learnt.gaps.iter_mut().zip(places) {
            let at_place = delayed.iter().find(|(of, _)| Some(of) == place.as_ref());
            gap.delays = gap.delays.max(at_place.map_or(0, |(_, delays)| *delays));
        }
        for found in &mut result.gaps {
            let seen = result.learnt.gaps.iter().find(|gap| gap.id == found.id);
            let (Some(seen), Some(known)) = (seen, self.gaps.get(&found.id)) else { continue };
            found.seen = SeenGap {
                promise: seen.promise.max(known.seen.promise),
                crossed: seen.crossed.max(known.seen.crossed),
                cut: seen.cut.max(known.seen.cut),
                delays: seen.delays.max(known.seen.delays),
                is_defect: seen.is_defect || known.seen.is_defect,
                ..seen.clone()
            };
            let mut places = known.clone();
            places.add_places(found);
            (found.delay_at, found.also_delay_at) = (places.delay_at, places.also_delay_at);
        }
        for found in &result.gaps {
            self.gaps.insert(found.id.clone(), found.clone());
        }
        self.thread_starts.extend(result.thread_starts.iter().cloned());
    }

    /// Returns the longest time for which a thread gets no processor, in milliseconds: a tenth of the run.
    fn longest_starvation(&self) -> u32 {
        let tenth = u32::try_from(self.program.as_millis() / 10).unwrap_or(u32::MAX);
        tenth.clamp(1, LONGEST_STARVATION_MS)
    }

    /// Returns the delays of threads at their start, beside those at a gap.
    fn late_starts(&self, planned: &PlannedDelay) -> impl Iterator<Item = Delay> {
        let starts = self.thread_starts.iter().take(MAX_THREAD_STARTS).enumerate();
        starts.map(|(copy, (module, address))| Delay {
            id: delay_id(THREAD_START, copy),
            module: module.clone(),
            address: *address,
            nanoseconds: (planned.nanoseconds / 2).max(1),
            hits: planned.hits,
            probability: 0.5,
            threads: DelayedThreads::All,
        })
    }

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
                plan.starvation = Some(Starvation {
                    seed,
                    longest_ms: self.longest_starvation(),
                    share: options.share,
                });
            }
            Treatment::Move => plan.affinity = Some(Affinity { seed }),
            Treatment::Delay(delays) => {
                if let Some(late) = delays.iter().find(|planned| planned.late_starts) {
                    plan.delays.extend(self.late_starts(late));
                }
                for planned in delays {
                    let places = self.gaps.get(&planned.gap).into_iter().flat_map(FoundGap::places);
                    let is_meant = |(copy, _): &(usize, &(String, u64))| {
                        planned.copy.is_none_or(|meant| meant as usize == *copy)
                    };
                    for (copy, (module, address)) in places.enumerate().filter(is_meant) {
                        let is_taken =
                            |delay: &Delay| delay.module == *module && delay.address == *address;
                        // Gaps may begin at one step: the first of them stands for all.
                        if plan.delays.iter().any(is_taken) {
                            continue;
                        }
                        plan.delays.push(Delay {
                            id: delay_id(&planned.gap, copy),
                            module: module.clone(),
                            address: *address,
                            nanoseconds: planned.nanoseconds,
                            hits: planned.hits,
                            probability: planned.probability,
                            threads: planned.threads,
                        });
                    }
                }
            }
        }
        plan
    }
}

/// Directories for the files of runs, removed at the end.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
}

impl Scratch {
    /// Makes them. `user` may read files in that of the programs' outputs whose names this user is given.
    ///
    /// # Errors
    ///
    /// When there is no room for them.
    pub fn new(user: Option<&Identity>) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("avtrace-hunt-").tempdir()?;
        let scratch = Self { directory };
        fs::DirBuilder::new().mode(0o700).create(scratch.own())?;
        if user.is_some() {
            fs::set_permissions(scratch.outputs(), Permissions::from_mode(0o711))?;
        }
        Ok(scratch)
    }

    /// Directory for files of this process's user alone.
    #[must_use]
    pub fn own(&self) -> PathBuf {
        self.directory.path().join("own")
    }

    /// Directory for what programs print.
    #[must_use]
    pub fn outputs(&self) -> PathBuf {
        self.directory.path().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_longest_run_that_ends() {
        let seconds = Duration::from_secs;
        let after = |verdict, elapsed: u64| {
            let elapsed_ns = seconds(elapsed).as_nanos() as u64;
            raised(seconds(20), &RunResult { elapsed_ns, ..RunResult::of(verdict) })
        };
        assert_eq!(after(Verdict::Passed, 1), seconds(20));
        assert_eq!(after(Verdict::Passed, 5), seconds(50));
        assert_eq!(after(Verdict::Failed("status 1".to_owned()), 5), seconds(50));
        assert_eq!(after(Verdict::TimedOut, 5), seconds(20));
        assert_eq!(after(Verdict::Passed, 300), FIRST_LIMIT);
    }
}
