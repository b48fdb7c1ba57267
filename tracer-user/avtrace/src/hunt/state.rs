//! State that the runs of a hunt share: counts, limits, and the defects that are known.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::{
    FIRST_LIMIT, HuntError, HuntOptions, Observer, Progress, limit_after,
    planner::Planner,
    results::{FIRST_REPORT, FoundDefect, Results},
    run::{RunResult, Verdict, open_fingerprint},
    schedule::{Learnt, Schedule},
};
use report::{Class, Report};

/// Number of runs that avtrace could not trace after which a hunt without other runs ends.
const MOST_UNTRACED: u64 = 3;

/// State that all runs of a hunt share.
pub(super) struct HuntState<'a> {
    pub(super) schedule: Schedule,
    pub(super) planner: Planner,
    pub(super) results: &'a mut Results,
    pub(super) next: u64,
    pub(super) progress: Progress,
    /// Likeliest class of each open defect, by its fingerprint.
    pub(super) classes: HashMap<String, Class>,
    untraced: u64,
    /// Set once a run has ended or shown a defect: the limits and budgets of further runs follow from it.
    pub(super) is_observed: bool,
    /// Limit of the further runs.
    pub(super) limit: Duration,
    /// Runs of this hunt, without those of the hunt that it goes on from.
    pub(super) runs_here: u64,
    undelayed: Undelayed,
    pub(super) error: Option<HuntError>,
}

/// Time of runs without the delays in them.
#[derive(Default)]
struct Undelayed {
    ns: u64,
    runs: u64,
}

/// Returns the limit after a further run. A run that took long raises it: the machine may have other work now, and the
/// program has not failed because it is slower than in the first run.
pub(super) fn raised(limit: Duration, result: &RunResult) -> Duration {
    match result.verdict {
        Verdict::TimedOut | Verdict::Untraced(_) => limit,
        // Each that takes long would raise it for the next one.
        _ => limit.max(limit_after(result.elapsed_ns).min(FIRST_LIMIT)),
    }
}

/// Returns whether a run had to be killed, and shows no defect as the cause.
pub(super) fn hung(result: &RunResult, found: &[(String, Class)]) -> bool {
    result.verdict == Verdict::TimedOut && found.iter().all(|(_, class)| *class == Class::ByDesign)
}

impl<'a> HuntState<'a> {
    /// Creates the state of a hunt that goes on from the runs in `results`.
    pub(super) fn new(
        options: &HuntOptions,
        results: &'a mut Results,
        observer: &dyn Observer,
    ) -> Result<Self, HuntError> {
        let mut state = Self {
            schedule: Schedule::new(options.seed, options.shard),
            planner: Planner::new(options.share, results.gaps()?),
            next: 1,
            progress: Progress::default(),
            classes: HashMap::new(),
            untraced: 0,
            is_observed: false,
            limit: options.limit.unwrap_or(FIRST_LIMIT),
            runs_here: 0,
            undelayed: Undelayed::default(),
            error: None,
            results,
        };
        state.schedule.know(&state.planner.seen_gaps());
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
                let report = state.results.get(FIRST_REPORT)?;
                state.adopt(options, &result, report.as_ref());
            } else if options.limit.is_none() {
                state.limit = raised(state.limit, &result);
            }
        }
        Ok(state)
    }

    /// Counts a run with its open defects, and returns the facts for the schedule.
    pub(super) fn count(&mut self, result: &RunResult, found: &[(String, Class)]) -> Learnt {
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

    /// Adopts the limit and the budget that follow from the first run.
    pub(super) fn adopt(
        &mut self,
        options: &HuntOptions,
        first: &RunResult,
        report: Option<&Report>,
    ) {
        self.is_observed = true;
        if first.verdict != Verdict::TimedOut {
            self.limit = options.limit.unwrap_or_else(|| limit_after(first.elapsed_ns));
        }
        self.planner.adopt(options, first, report);
        self.set_budget(options, first);
        let (limit, can_starve) = (self.limit, self.planner.can_starve);
        tracing::debug!(run = first.number, ?limit, can_starve, "limits follow from this run");
    }

    /// Adds the time of a run to the mean, and sets the budget of delays: a share of the whole time, delays included.
    pub(super) fn set_budget(&mut self, options: &HuntOptions, result: &RunResult) {
        self.undelayed.ns += result.elapsed_ns.saturating_sub(result.delayed_ns);
        self.undelayed.runs += 1;
        let mean = self.undelayed.ns as f64 / self.undelayed.runs as f64;
        self.schedule.set_budget((mean * options.share / (1.0 - options.share)) as u64);
    }

    /// Returns the error of a run that ends the hunt. The results do not get this run.
    pub(super) fn refusal(
        &self,
        result: &RunResult,
        found: &[(String, Class)],
    ) -> Option<HuntError> {
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
