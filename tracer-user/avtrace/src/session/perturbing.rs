//! Perturbation of a run from outside: starvation of random threads, and random sets of processors for them. What is
//! random follows from the seed alone; when it takes effect depends on the run.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use abi::RANDOM;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use super::live_processes::LiveProcesses;
use capture::in_process::Starver;
use linux::proc;
use plan::perturbation::{Affinity, Perturbation, Starvation};
use report::{self, PerturbationDelay, Starved, StarvedReason};

/// Interval between two looks at what is due.
const STEP: Duration = Duration::from_millis(1);

/// Longest time between two changes of sets of processors, in milliseconds.
const LONGEST_PAUSE: u64 = 50;

/// Returns the report on a perturbation, without what was done from outside.
pub(super) fn report(
    seed: u64,
    delays: Vec<PerturbationDelay>,
    elapsed: Duration,
) -> report::Perturbation {
    let delayed: u64 = delays.iter().map(|delay| delay.delayed_ns).sum();
    let wall_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    let share = delayed as f64 / wall_ns.max(1) as f64;
    let (starved, affinity_changes) = (Starved::default(), 0);
    report::Perturbation { seed, delays, starved, affinity_changes, wall_ns, share }
}

/// Random numbers (SplitMix64).
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        let [step, first, second] = RANDOM;
        self.0 = self.0.wrapping_add(step);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(first);
        number = (number ^ number >> 27).wrapping_mul(second);
        number ^ number >> 31
    }

    /// Returns a number below another one, which is not 0.
    const fn below(&mut self, most: u64) -> u64 {
        ((self.next() as u128 * most as u128) >> 64) as u64
    }
}

/// Starvations of a run: each is due as soon as all so far, with itself, are within the share of the time.
#[derive(Clone, Debug)]
struct Starvations {
    random: Random,
    longest: u64,
    share: f64,
    /// Number that selects the next thread, and for how long, in nanoseconds.
    next: (u64, u64),
    starved: u64,
}

impl Starvations {
    fn new(plan: Starvation) -> Self {
        let longest = u64::from(plan.longest_ms) * 1_000_000;
        let random = Random(plan.seed);
        let mut new = Self { random, longest, share: plan.share, next: (0, 0), starved: 0 };
        new.choose();
        new
    }

    /// Chooses the next one: from a millisecond on, each power of two up to the longest as likely as the others.
    fn choose(&mut self) {
        let thread = self.random.next();
        let powers = (self.longest / 1_000_000).max(1).ilog2() + 1;
        let least = 1_000_000 << self.random.below(powers.into());
        let nanoseconds = (least + self.random.below(least)).min(self.longest);
        self.next = (thread, nanoseconds);
    }

    /// Returns the number that selects a thread, and the duration, if one is due after so many nanoseconds of the run.
    fn due(&mut self, elapsed: u64) -> Option<(u64, u64)> {
        let next = self.next;
        if (self.starved + next.1) as f64 > self.share * elapsed as f64 {
            return None;
        }
        self.choose();
        Some(next)
    }
}

/// Changes of sets of processors.
#[derive(Clone, Debug)]
struct Placements {
    random: Random,
    /// Time of the next one after the begin of the run, in nanoseconds.
    next: u64,
}

impl Placements {
    const fn new(Affinity { seed }: Affinity) -> Self {
        // Another sequence than that of starvation by the same seed.
        Self { random: Random(!seed), next: 0 }
    }

    /// Returns the number that selects a thread, and the one that selects processors, if a change is due.
    fn due(&mut self, elapsed: u64) -> Option<(u64, u64)> {
        if elapsed < self.next {
            return None;
        }
        self.next = elapsed + (1 + self.random.below(LONGEST_PAUSE)) * 1_000_000;
        Some((self.random.next(), self.random.next()))
    }
}

/// Returns a subset of processors by a random number; not empty if there are any.
fn subset(processors: &[usize], number: u64) -> Vec<usize> {
    let mut random = Random(number);
    let chosen: Vec<usize> =
        processors.iter().copied().filter(|_| random.next() & 1 == 0).collect();
    match chosen.is_empty() {
        true if processors.is_empty() => chosen,
        true => vec![processors[random.below(processors.len() as u64) as usize]],
        false => chosen,
    }
}

/// Counts of what was done from outside.
#[derive(Debug, Default)]
struct Done {
    times: AtomicU64,
    nanoseconds: AtomicU64,
    changes: AtomicU64,
}

/// End of the perturbation: set, and then announced.
#[derive(Debug, Default)]
struct End {
    is_set: Mutex<bool>,
    announced: Condvar,
}

impl End {
    /// Waits for so long, or until the end, and returns whether that has come.
    fn wait(&self, time: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.announced.wait_timeout_while(is_set, time, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Thread that perturbs a run from outside. When it is dropped, all threads have their processors again.
#[derive(Debug)]
pub(super) struct Perturber {
    done: Arc<Done>,
    end: Arc<End>,
    cannot_starve: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Perturber {
    /// Starts, if the plan has anything for it. `starver` holds threads, where the back end can.
    pub(super) fn start(
        plan: &Perturbation,
        processes: LiveProcesses,
        starver: Option<Starver>,
    ) -> io::Result<Self> {
        let (done, end) = (Arc::<Done>::default(), Arc::<End>::default());
        let cannot_starve =
            Arc::new(AtomicBool::new(plan.starvation.is_some() && starver.is_none()));
        let starvations = plan.starvation.map(Starvations::new).zip(starver);
        let placements = plan.affinity.map(Placements::new);
        let mut perturber = Self { done, end, cannot_starve, thread: None };
        if starvations.is_none() && placements.is_none() {
            return Ok(perturber);
        }
        let mut acting = Acting {
            processes,
            done: Arc::clone(&perturber.done),
            end: Arc::clone(&perturber.end),
            bound: BTreeMap::new(),
            originals: BTreeMap::new(),
        };
        let acts = move || acting.run(starvations, placements);
        let thread = thread::Builder::new().name("avtrace-perturb".to_owned()).spawn(acts)?;
        perturber.thread = Some(thread);
        Ok(perturber)
    }

    /// Adds what was done so far to a report.
    pub(super) fn add_to(&self, report: &mut report::Perturbation) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let cannot = self.cannot_starve.load(Ordering::Relaxed);
        report.starved = Starved {
            times: count(&self.done.times),
            ns: count(&self.done.nanoseconds),
            reason: cannot.then_some(StarvedReason::NeedsInlineCapture),
        };
        report.affinity_changes = count(&self.done.changes);
    }
}

impl Drop for Perturber {
    fn drop(&mut self) {
        *self.end.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.announced.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to return.
            let _ = thread.join();
        }
    }
}

/// State of the thread that perturbs.
struct Acting {
    processes: LiveProcesses,
    done: Arc<Done>,
    end: Arc<End>,
    /// Sets of processors that threads were given, by thread.
    bound: BTreeMap<u32, (u32, Vec<usize>)>,
    /// Processors that each process had at first.
    originals: BTreeMap<u32, Vec<usize>>,
}

impl Acting {
    fn run(
        &mut self,
        mut starvations: Option<(Starvations, Starver)>,
        mut placements: Option<Placements>,
    ) {
        let began = Instant::now();
        let elapsed = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        while !self.end.wait(STEP) {
            if let Some(placements) = &mut placements
                && let Some((thread, processors)) = placements.due(elapsed())
            {
                self.place(thread, processors);
            }
            let Some((starvations, starver)) = &mut starvations else { continue };
            if let Some((number, nanoseconds)) = starvations.due(elapsed())
                && let Some((_, thread)) = self.thread(number)
                && starver.starve(thread)
            {
                let since = Instant::now();
                self.end.wait(Duration::from_nanos(nanoseconds));
                starver.release(thread);
                let passed = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                starvations.starved += passed;
                self.done.times.fetch_add(1, Ordering::Relaxed);
                self.done.nanoseconds.fetch_add(passed, Ordering::Relaxed);
            }
        }
        self.restore();
    }

    /// Returns a process and a thread of it, by a random number.
    fn thread(&self, number: u64) -> Option<(u32, u32)> {
        let threads = self.processes.now().into_iter().flat_map(|process| {
            let threads = proc::threads(process).unwrap_or_default();
            threads.into_iter().map(move |thread| (process, thread))
        });
        let threads: Vec<(u32, u32)> = threads.collect();
        let count = u64::try_from(threads.len()).ok().filter(|&count| count > 0)?;
        threads.get(usize::try_from(number % count).ok()?).copied()
    }

    /// Gives a thread a random set of processors, unless the program has chosen one for it.
    fn place(&mut self, thread: u64, processors: u64) {
        let Some((process, thread)) = self.thread(thread) else { return };
        let Some(now) = processors_of(thread) else { return };
        let original = self.originals.entry(process).or_insert_with(|| now.clone());
        // A new thread has the set of the one that has created it.
        let is_ours = |set: &Vec<usize>| self.bound.values().any(|(_, bound)| bound == set);
        if now != *original && !is_ours(&now) {
            return;
        }
        let chosen = subset(original, processors);
        if bind(thread, &chosen) {
            self.bound.insert(thread, (process, chosen));
            self.done.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives all threads the processors again that they had, unless the program has chosen others meanwhile.
    fn restore(&self) {
        for (process, original) in &self.originals {
            for thread in proc::threads(*process).unwrap_or_default() {
                let now = processors_of(thread);
                if now.is_some_and(|now| self.bound.values().any(|(_, bound)| *bound == now)) {
                    bind(thread, original);
                }
            }
        }
    }
}

/// Returns the processors that a thread may use; `None` when it has ended.
fn processors_of(thread: u32) -> Option<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(thread.cast_signed())).ok()?;
    Some((0..CpuSet::count()).filter(|&processor| set.is_set(processor) == Ok(true)).collect())
}

/// Has a thread use these processors. Returns false when it has ended, or may use none of them.
fn bind(thread: u32, processors: &[usize]) -> bool {
    let mut set = CpuSet::new();
    processors.iter().all(|&processor| set.set(processor).is_ok())
        && sched_setaffinity(Pid::from_raw(thread.cast_signed()), &set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starvations_follow_from_the_seed_and_stay_within_the_share() {
        let plan = |seed| Starvation { seed, longest_ms: 200, share: 0.2 };
        let run = |seed| {
            let mut starvations = Starvations::new(plan(seed));
            let (mut now, mut all) = (0, Vec::new());
            while all.len() < 200 {
                now += 500_000;
                if let Some((thread, nanoseconds)) = starvations.due(now) {
                    now += nanoseconds;
                    starvations.starved += nanoseconds;
                    assert!(starvations.starved as f64 <= 0.2 * now as f64);
                    assert!((1_000_000..=200_000_000).contains(&nanoseconds));
                    all.push((thread, nanoseconds));
                }
            }
            all
        };
        let first = run(7);
        assert_eq!(run(7), first);
        assert_ne!(run(8), first);
        assert!(first.iter().any(|&(_, nanoseconds)| nanoseconds > 100_000_000));
        assert!(first.iter().any(|&(_, nanoseconds)| nanoseconds < 2_000_000));
    }

    #[test]
    fn sets_of_processors_are_not_empty_and_not_all_the_same() {
        let processors = [0, 1, 5];
        let all: Vec<Vec<usize>> = (0..64).map(|number| subset(&processors, number)).collect();
        assert!(all.iter().all(|set| !set.is_empty()));
        assert!(all.iter().flatten().all(|processor| processors.contains(processor)));
        assert!(all.iter().any(|set| set.len() == 1) && all.iter().any(|set| set.len() > 1));
        assert_eq!(subset(&[3], 9), [3]);
        assert!(subset(&[], 9).is_empty());
    }

    #[test]
    fn placements_are_due_after_random_pauses() {
        let mut placements = Placements::new(Affinity { seed: 7 });
        assert!(placements.due(0).is_some());
        assert!(placements.due(0).is_none());
        assert!(placements.due(LONGEST_PAUSE * 1_000_000).is_some());
    }
}
