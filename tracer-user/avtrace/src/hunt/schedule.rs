//! Schedule of a hunt: what is done to the program in the next run, from what the runs before have shown. Pure: it
//! depends on the seed and on the results alone.
//!
//! Gaps that promise most come first (CTrigger, ASPLOS 2009, ranks unserializable interleavings in the same way), one
//! at a time, or a few where there are more than runs. Where nobody came in, a gap loses weight, and its next delay
//! has another length. Some runs starve threads at random (the chaos mode of rr) or put them on random processors, for
//! what no gap was seen of. A thread that is over before the others come waits for nobody: then threads are held at
//! their start as well, and before they could come in, some of them, so that the others are the first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use plan::perturbation::DelayedThreads;
use plan::random::{Random, hash};

/// Lengths of delays at one gap, in turn, in nanoseconds: what another thread needs for coming in is not known.
const DELAYS: [u64; 4] = [10_000_000, 50_000_000, 2_000_000, 200_000_000];
/// Threads that are delayed at one gap, in turn: where all are, one that comes there often may be through before the
/// other one comes, or both keep their distance. As there are not as many as [`DELAYS`], all come with all.
const THREADS: [DelayedThreads; 3] =
    [DelayedThreads::All, DelayedThreads::Others, DelayedThreads::First];
/// Shortest delay, in nanoseconds.
const SHORTEST_DELAY: u64 = 200_000;
/// Divisor of delays at a gap where the program failed without a defect.
const SHORTENING: u64 = 4;
/// Number of times that a delay is shortened; then the gap is left alone.
const MAX_SHORTENED: u32 = 3;
/// Gaps with delays in one run, at most.
const MAX_GAPS: usize = 8;
/// Period of treatments: the last of these runs is chaotic, the others delay.
const PERIOD: u64 = 6;

/// Part of a hunt that is divided among machines: one of `count` shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Place of the shard, from 0.
    pub index: u64,
    pub count: u64,
}

impl Shard {
    /// A hunt that is not divided.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Returns whether a gap is for this shard.
    fn has(self, gap: &str) -> bool {
        hash(gap) % self.count == self.index
    }
}

/// Sights of a gap in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenGap {
    /// Fingerprint.
    pub id: String,
    /// Likelihood that it shows a bug, from 0 to 1.
    pub promise: f64,
    /// Number of times that it was crossed.
    pub crossed: u64,
    /// Number of those in which another thread came in.
    pub cut: u64,
    pub delays: u64,
    /// Set if a likely defect was found at it.
    pub is_defect: bool,
    /// Set if threads cannot be delayed in it: its code is not known, or takes no probe.
    pub is_refused: bool,
    /// Number of copies of its code.
    pub copies: u32,
}

/// A delay at a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedDelay {
    /// Fingerprint of the gap.
    pub gap: String,
    /// Length in nanoseconds.
    pub nanoseconds: u64,
    /// Delays in the run, at most.
    pub hits: u32,
    /// Probability of a delay each time that the gap is crossed.
    pub probability: f64,
    pub threads: DelayedThreads,
    /// The copy of the code in which they are delayed; `None` for all.
    pub copy: Option<u32>,
    /// Set if threads are delayed at their start, too, and before they could come in: half as long, and each as likely
    /// as not.
    pub late_starts: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// Nothing.
    Observe,
    /// Delays at gaps.
    Delay(Vec<PlannedDelay>),
    /// Threads get no processor for a while.
    Starve,
    /// Threads are put on random processors.
    Move,
}

/// Result of a run, as far as the schedule depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learnt {
    pub gaps: Vec<SeenGap>,
    pub failed: bool,
    /// Set if an error in the program killed it, whatever time it took.
    pub is_fault: bool,
    /// Set if a likely or possible defect was found.
    pub has_defect: bool,
    /// Set if one of them was not known before.
    pub new_defect: bool,
}

/// Knowledge of a gap.
#[derive(Clone, Debug, Default)]
struct Known {
    promise: f64,
    /// Most times that a run crossed it.
    crossed: u64,
    /// Runs with delays at it that were decided.
    tried: u32,
    /// Runs that are not over.
    pending: u32,
    /// Runs that did not get there.
    missed: u32,
    /// Runs in which a thread was delayed and nobody came in.
    fruitless: u32,
    /// Runs in which others came in, without a new defect.
    harmless: u32,
    shortened: u32,
    copies: u32,
    is_defect: bool,
    is_refused: bool,
    was_delayed: bool,
    was_cut: bool,
}

/// Variant of the delays at a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    AllCopies,
    /// In one copy of the code.
    Copy(u32),
    /// In all copies, at the start of threads, and before others could come in.
    LateStarts,
}

impl Variant {
    const fn copy(self) -> Option<u32> {
        match self {
            Self::Copy(copy) => Some(copy),
            Self::AllCopies | Self::LateStarts => None,
        }
    }
}

impl Known {
    /// Weight for the choice of gaps: its promise, less for each run without a defect.
    fn weight(&self) -> f64 {
        if self.shortened > MAX_SHORTENED || self.is_refused {
            return 0.0;
        }
        let found = if self.is_defect { 0.02 } else { 1.0 };
        let power = |base: f64, count: u32| base.powi(count.min(1000) as i32);
        self.promise.clamp(0.001, 1.0)
            * found
            * power(0.3, self.pending)
            * power(0.5, self.missed)
            * power(0.6, self.fruitless)
            * power(0.35, self.harmless)
    }
}

/// Failures of runs so far, to distinguish those that delays have caused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failures {
    has_passed: bool,
    fails_without_delays: bool,
}

impl Failures {
    /// Creates the counts before the first run.
    #[must_use]
    pub const fn new() -> Self {
        Self { has_passed: false, fails_without_delays: false }
    }

    /// Adds a run. Returns whether it seems to have failed by delays alone: the program had passed before and never
    /// failed without delays, and nothing explains it. A defect does, for which the delays were made, and a fault,
    /// which is no matter of time.
    pub const fn add(&mut self, treatment: &Treatment, failed: bool, is_explained: bool) -> bool {
        let is_delayed = matches!(treatment, Treatment::Delay(_));
        let is_blamed = failed && is_delayed && !is_explained;
        let by_delay = is_blamed && self.has_passed && !self.fails_without_delays;
        self.has_passed |= !failed;
        self.fails_without_delays |= failed && !is_delayed;
        by_delay
    }
}

#[derive(Debug)]
pub struct Schedule {
    seed: u64,
    shard: Shard,
    /// Time that all delays of one run may take, in nanoseconds; not known before the first run.
    budget: Option<u64>,
    gaps: BTreeMap<String, Known>,
    failures: Failures,
}

impl Schedule {
    /// Creates the schedule of a hunt that has not begun.
    #[must_use]
    pub const fn new(seed: u64, shard: Shard) -> Self {
        Self { seed, shard, budget: None, gaps: BTreeMap::new(), failures: Failures::new() }
    }

    /// Sets the time that all delays of a run may take, in nanoseconds.
    pub const fn set_budget(&mut self, nanoseconds: u64) {
        self.budget = Some(nanoseconds);
    }

    /// Decides on the treatment of a run. `left` more runs will follow.
    pub fn next(&mut self, run: u64, left: u64) -> Treatment {
        let Some(budget) = self.budget.filter(|_| run > 1) else { return Treatment::Observe };
        let place = (run - 2) % PERIOD;
        let chaos = if ((run - 2) / PERIOD).is_multiple_of(2) {
            Treatment::Starve
        } else {
            Treatment::Move
        };
        if place == PERIOD - 1 {
            return chaos;
        }
        let delays = self.choose(run, left, budget);
        match delays.is_empty() {
            false => Treatment::Delay(delays),
            true if run.is_multiple_of(2) => Treatment::Starve,
            true => Treatment::Move,
        }
    }

    /// Chooses the gaps of a run, and the delays there.
    fn choose(&mut self, run: u64, left: u64, budget: u64) -> Vec<PlannedDelay> {
        let shard = self.shard;
        let mut of_shard: Vec<(&String, &mut Known)> = (self.gaps.iter_mut())
            .filter(|(id, known)| shard.has(id) && known.weight() > 0.0)
            .collect();
        let untried = of_shard.iter().filter(|(_, known)| known.tried == 0).count() as u64;
        // Of the runs that follow, most delay.
        let runs = (left + 1) - (left + 1) / PERIOD;
        let number = untried.div_ceil(runs.max(1)).clamp(1, MAX_GAPS as u64) as usize;
        let draw = |id: &str| Random::new(self.seed ^ hash(id), run).number();
        of_shard.sort_by(|(one, first), (other, second)| {
            second
                .weight()
                .total_cmp(&first.weight())
                .then_with(|| draw(one).cmp(&draw(other)))
                .then_with(|| one.cmp(other))
        });
        let chosen = of_shard.into_iter().take(number);
        let share = budget / number as u64;
        chosen.map(|(id, known)| known.delay(id, share)).collect()
    }

    /// Adds gaps that runs have shown.
    pub fn know(&mut self, gaps: &[SeenGap]) {
        for gap in gaps {
            let known = self.gaps.entry(gap.id.clone()).or_default();
            known.promise = known.promise.max(gap.promise);
            known.crossed = known.crossed.max(gap.crossed);
            known.copies = known.copies.max(gap.copies);
            known.is_defect |= gap.is_defect;
            known.is_refused = gap.is_refused;
            known.was_cut |= gap.cut > 0 && gap.delays > 0;
        }
    }

    /// Takes a run in that is over. The treatments of runs are those of [`next`](Self::next).
    pub fn learn(&mut self, treatment: &Treatment, learnt: &Learnt) {
        self.know(&learnt.gaps);
        let is_explained = learnt.has_defect || learnt.is_fault;
        let by_delay = self.failures.add(treatment, learnt.failed, is_explained);
        let Treatment::Delay(delays) = treatment else { return };
        for delay in delays {
            let Some(known) = self.gaps.get_mut(&delay.gap) else { continue };
            known.pending = known.pending.saturating_sub(1);
            let gap = learnt.gaps.iter().find(|gap| gap.id == delay.gap);
            let delays = gap.map_or(0, |gap| gap.delays);
            known.was_delayed |= delays > 0;
            known.shortened += u32::from(by_delay && delays > 0);
            match gap {
                Some(gap) if delays > 0 && gap.cut > 0 => {
                    known.harmless += u32::from(!learnt.new_defect);
                }
                Some(_) if delays > 0 => known.fruitless += 1,
                _ => known.missed += 1,
            }
        }
    }

    /// Forgets a run that was decided and did not take place.
    pub fn forget(&mut self, treatment: &Treatment) {
        let Treatment::Delay(delays) = treatment else { return };
        for delay in delays {
            if let Some(known) = self.gaps.get_mut(&delay.gap) {
                known.pending = known.pending.saturating_sub(1);
                known.tried = known.tried.saturating_sub(1);
            }
        }
    }

    /// Adds a run of the hunt that this one continues.
    pub fn resume(&mut self, treatment: &Treatment, learnt: &Learnt) {
        if let Treatment::Delay(delays) = treatment {
            for delay in delays {
                let known = self.gaps.entry(delay.gap.clone()).or_default();
                known.tried += 1;
                known.pending += 1;
            }
        }
        self.learn(treatment, learnt);
    }

    /// Number of gaps that are known, of those with delays, and of those in which others came in meanwhile.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        let count = |of: fn(&Known) -> bool| self.gaps.values().filter(|known| of(known)).count();
        let [all, delayed, cut] =
            [count(|_| true), count(|known| known.was_delayed), count(|known| known.was_cut)];
        (all as u64, delayed as u64, cut as u64)
    }
}

impl Known {
    /// Decides on the delays of a run at this gap, which may take `budget` nanoseconds altogether.
    fn delay(&mut self, id: &str, budget: u64) -> PlannedDelay {
        let tried = self.tried as usize;
        let length = DELAYS[tried % DELAYS.len()] / SHORTENING.pow(self.shortened);
        // One delay is always allowed, but of no more than the budget.
        let nanoseconds = length.min(budget).max(SHORTEST_DELAY);
        let hits = (budget / nanoseconds).clamp(1, 1000) as u32;
        let variant = self.variant();
        let (late_starts, copy) = (variant == Variant::LateStarts, variant.copy());
        // The first one to come to a place of a delay would be the first one to start. To one copy may come only one.
        let threads = match variant {
            Variant::AllCopies => THREADS[tried % THREADS.len()],
            Variant::LateStarts | Variant::Copy(_) => DelayedThreads::All,
        };
        self.tried += 1;
        self.pending += 1;
        // Spread over the run: threads that could come in may not have begun when it is crossed first.
        let share = (2.0 * f64::from(hits) / self.crossed.max(1) as f64).min(1.0);
        // The others may come there once, however often the first thread does; so may all to one copy of the code.
        let is_rare = threads == DelayedThreads::Others || copy.is_some();
        let probability = if is_rare { 1.0 } else { share };
        let gap = id.to_owned();
        PlannedDelay { gap, nanoseconds, hits, probability, threads, copy, late_starts }
    }

    /// Returns what the next run varies: in turn all copies of the code, the last one alone, late starts, and the
    /// other copies. What comes once in a run mostly comes last.
    const fn variant(&self) -> Variant {
        let others = if self.copies > 1 { self.copies } else { 0 };
        // Another turn for each round of lengths and threads.
        let round = (DELAYS.len() * THREADS.len()) as u32;
        match (self.tried + self.tried / round) % (others + 2) {
            0 => Variant::AllCopies,
            1 if others > 0 => Variant::Copy(others - 1),
            number if others == 0 || number == 2 => Variant::LateStarts,
            number => Variant::Copy(others + 1 - number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BUDGET: u64 = 100_000_000;

    fn gap(id: &str, promise: f64) -> SeenGap {
        SeenGap {
            id: id.to_owned(),
            promise,
            crossed: 10,
            cut: 0,
            delays: 0,
            is_defect: false,
            is_refused: false,
            copies: 1,
        }
    }

    fn observed(gaps: Vec<SeenGap>) -> Schedule {
        let mut schedule = Schedule::new(7, Shard::WHOLE);
        assert_eq!(schedule.next(1, 100), Treatment::Observe);
        schedule.learn(&Treatment::Observe, &Learnt { gaps, ..Learnt::default() });
        schedule.set_budget(BUDGET);
        schedule
    }

    fn delayed(treatment: &Treatment) -> Vec<&str> {
        match treatment {
            Treatment::Delay(delays) => delays.iter().map(|delay| delay.gap.as_str()).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Runs a hunt of a gap in which nobody comes in, and returns the delays there.
    fn delays_of_one(runs: u64, learnt: impl Fn(&PlannedDelay) -> Learnt) -> Vec<PlannedDelay> {
        let mut schedule = observed(vec![gap("a", 0.5)]);
        let mut all = Vec::new();
        for run in 2..=runs {
            let treatment = schedule.next(run, runs - run);
            let Treatment::Delay(delays) = &treatment else { continue };
            assert_eq!(delays.len(), 1);
            let learnt = learnt(&delays[0]);
            schedule.learn(&treatment, &learnt);
            all.push(delays[0].clone());
        }
        all
    }

    #[test]
    fn what_promises_most_comes_first() {
        let mut schedule = observed(vec![gap("a", 0.2), gap("b", 0.9), gap("c", 0.4)]);
        assert_eq!(delayed(&schedule.next(2, 100)), ["b"]);
        // During that run, another one takes the next gap.
        assert_eq!(delayed(&schedule.next(3, 100)), ["c"]);
    }

    #[test]
    fn a_gap_that_shows_nothing_gives_way() {
        let gaps = || vec![gap("a", 0.5), gap("b", 0.45)];
        let mut schedule = observed(gaps());
        let treatment = schedule.next(2, 100);
        assert_eq!(delayed(&treatment), ["a"]);
        let mut seen = gaps();
        seen[0].delays = 3;
        schedule.learn(&treatment, &Learnt { gaps: seen, ..Learnt::default() });
        assert_eq!(delayed(&schedule.next(3, 100)), ["b"]);
        assert_eq!(schedule.counts(), (2, 1, 0));
    }

    #[test]
    fn a_gap_with_a_defect_gives_way_to_all_others() {
        let mut schedule = observed(vec![gap("a", 0.9), gap("b", 0.1)]);
        let treatment = schedule.next(2, 100);
        let mut seen = gap("a", 0.9);
        (seen.delays, seen.cut, seen.is_defect) = (1, 1, true);
        schedule.learn(
            &treatment,
            &Learnt {
                gaps: vec![seen],
                failed: true,
                has_defect: true,
                new_defect: true,
                ..Learnt::default()
            },
        );
        assert_eq!(delayed(&schedule.next(3, 100)), ["b"]);
        assert_eq!((schedule.counts(), schedule.gaps["a"].shortened), ((2, 1, 1), 0));
    }

    #[test]
    fn more_gaps_than_runs_are_tried_together() {
        let gaps = (0..40).map(|n| gap(&format!("g{n}"), 0.5)).collect();
        let mut schedule = observed(gaps);
        let first = schedule.next(2, 7);
        assert!((4..=8).contains(&delayed(&first).len()), "{first:?}");
        let Treatment::Delay(delays) = first else { panic!() };
        let all: u64 = delays.iter().map(|delay| delay.nanoseconds * u64::from(delay.hits)).sum();
        assert!(all <= BUDGET, "{all}");
    }

    #[test]
    fn delays_keep_to_the_budget_and_differ_in_length() {
        let nothing = |delay: &PlannedDelay| {
            let seen = SeenGap { delays: 1, ..gap(&delay.gap, 0.5) };
            Learnt { gaps: vec![seen], ..Learnt::default() }
        };
        let delays = delays_of_one(12, nothing);
        let lengths: BTreeSet<u64> = delays.iter().map(|delay| delay.nanoseconds).collect();
        assert!(lengths.len() >= 4, "{lengths:?}");
        for delay in delays {
            assert!(delay.nanoseconds * u64::from(delay.hits) <= BUDGET, "{delay:?}");
            assert!(delay.probability > 0.0 && delay.probability <= 1.0, "{delay:?}");
        }
    }

    #[test]
    fn each_length_comes_with_all_threads_that_can_be_delayed() {
        let nothing = |delay: &PlannedDelay| {
            let seen = SeenGap { delays: 1, ..gap(&delay.gap, 0.5) };
            Learnt { gaps: vec![seen], ..Learnt::default() }
        };
        let delays = delays_of_one(31, nothing);
        assert_eq!(delays[0].threads, DelayedThreads::All, "what is simplest comes first");
        let (late, usual): (Vec<_>, Vec<_>) = delays.iter().partition(|delay| delay.late_starts);
        let pairs: Vec<(u64, DelayedThreads)> =
            usual.iter().map(|delay| (delay.nanoseconds, delay.threads)).collect();
        let distinct = (0..pairs.len()).filter(|&at| !pairs[..at].contains(&pairs[at])).count();
        assert_eq!(distinct, DELAYS.len() * THREADS.len(), "{pairs:?}");
        assert!(late.iter().all(|delay| delay.threads == DelayedThreads::All), "{late:?}");
        let lengths: BTreeSet<u64> = late.iter().map(|delay| delay.nanoseconds).collect();
        assert_eq!(lengths.len(), DELAYS.len(), "{late:?}");
        let others = delays.iter().find(|delay| delay.threads == DelayedThreads::Others).unwrap();
        assert!((others.probability - 1.0).abs() < 1e-9, "they may come there once");
    }

    #[test]
    fn each_copy_of_the_code_is_delayed_by_itself_and_threads_start_late() {
        let mut known = Known { promise: 0.5, crossed: 1, copies: 3, ..Known::default() };
        let delays: Vec<_> = (0..6).map(|_| known.delay("a", BUDGET)).collect();
        let copies: Vec<_> = delays.iter().map(|delay| delay.copy).collect();
        assert_eq!(copies, [None, Some(2), None, Some(1), Some(0), None]);
        let late: Vec<_> = delays.iter().map(|delay| delay.late_starts).collect();
        assert_eq!(late, [false, false, true, false, false, false]);
    }

    #[test]
    fn delays_get_shorter_where_the_program_fails_without_a_defect() {
        let fails = |delay: &PlannedDelay| {
            let seen = SeenGap { delays: 1, ..gap(&delay.gap, 0.5) };
            Learnt { gaps: vec![seen], failed: true, ..Learnt::default() }
        };
        let delays = delays_of_one(40, fails);
        assert_eq!(delays.len() as u32, MAX_SHORTENED + 1, "{delays:?}");
        let lengths: Vec<u64> = delays.iter().map(|delay| delay.nanoseconds).collect();
        assert_eq!(lengths[0], DELAYS[0]);
        assert_eq!(lengths[1], DELAYS[1] / SHORTENING);
    }

    #[test]
    fn a_program_that_fails_in_any_case_says_nothing_about_delays() {
        let mut schedule = Schedule::new(7, Shard::WHOLE);
        let gaps = || vec![gap("a", 0.5)];
        let failed = || Learnt { gaps: gaps(), failed: true, ..Learnt::default() };
        schedule.learn(&Treatment::Observe, &failed());
        schedule.set_budget(BUDGET);
        let treatment = schedule.next(2, 10);
        let seen = SeenGap { delays: 1, ..gap("a", 0.5) };
        schedule.learn(&treatment, &Learnt { gaps: vec![seen], ..failed() });
        assert_eq!(schedule.gaps["a"].shortened, 0);
    }

    #[test]
    fn a_program_that_fails_without_delays_says_nothing_about_delays() {
        let delay = Treatment::Delay(Vec::new());
        let mut failures = Failures::new();
        assert!(!failures.add(&Treatment::Observe, false, false));
        assert!(failures.add(&delay, true, false));
        assert!(!failures.add(&delay, true, true), "a defect explains it");
        assert!(!failures.add(&Treatment::Starve, true, false));
        assert!(!failures.add(&delay, true, false));
    }

    #[test]
    fn gaps_that_take_no_delay_are_left_alone() {
        let refused = SeenGap { is_refused: true, ..gap("a", 0.9) };
        let mut schedule = observed(vec![refused, gap("b", 0.1)]);
        assert_eq!(delayed(&schedule.next(2, 100)), ["b"]);
    }

    #[test]
    fn without_gaps_runs_are_chaotic() {
        let mut schedule = observed(Vec::new());
        let all: Vec<Treatment> = (2..8).map(|run| schedule.next(run, 10)).collect();
        assert!(all.contains(&Treatment::Starve) && all.contains(&Treatment::Move), "{all:?}");
        assert!(!all.iter().any(|one| matches!(one, Treatment::Delay(_) | Treatment::Observe)));
    }

    #[test]
    fn shards_divide_the_gaps() {
        let mut seen = BTreeMap::new();
        for index in 0..3 {
            let mut schedule = Schedule::new(7, Shard { index, count: 3 });
            let gaps = (0..30).map(|n| gap(&format!("g{n}"), 0.5)).collect();
            schedule.learn(&Treatment::Observe, &Learnt { gaps, ..Learnt::default() });
            schedule.set_budget(BUDGET);
            for run in 2..100 {
                let Treatment::Delay(delays) = schedule.next(run, 1) else { continue };
                for delay in delays {
                    assert_eq!(*seen.entry(delay.gap).or_insert(index), index);
                }
            }
        }
        assert_eq!(seen.len(), 30);
    }

    #[test]
    fn a_hunt_that_goes_on_decides_as_if_it_had_not_stopped() {
        let result = |treatment: &Treatment| {
            let mut gaps = vec![gap("a", 0.5), gap("b", 0.45), gap("c", 0.1)];
            if let Treatment::Delay(delays) = treatment {
                for seen in &mut gaps {
                    seen.delays = u64::from(delays.iter().any(|delay| delay.gap == seen.id));
                }
            }
            Learnt { gaps, ..Learnt::default() }
        };
        let mut whole = observed(result(&Treatment::Observe).gaps);
        let mut decided = vec![Treatment::Observe];
        for run in 2..20 {
            let treatment = whole.next(run, 30 - run);
            whole.learn(&treatment, &result(&treatment));
            decided.push(treatment);
        }
        let mut resumed = Schedule::new(7, Shard::WHOLE);
        for treatment in &decided {
            resumed.resume(treatment, &result(treatment));
        }
        resumed.set_budget(BUDGET);
        for run in 20..30 {
            let treatment = whole.next(run, 30 - run);
            assert_eq!(resumed.next(run, 30 - run), treatment);
            whole.learn(&treatment, &result(&treatment));
            resumed.learn(&treatment, &result(&treatment));
        }
    }
}
