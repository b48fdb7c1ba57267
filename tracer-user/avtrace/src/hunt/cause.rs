//! Causes of failures: defects that failing runs showed and passing runs did not. One run is decided by chance as well;
//! many are not, whatever the facts about the code say.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

use super::run::Verdict;
use checker::defect::Reason;
use report::{Class, Defect, Evidence, HuntedDefect, reason};

/// Largest probability that one of the defects is in these failing runs, and in no passing run, by chance.
const CHANCE: f64 = 0.05;

/// Hunt, of several, and number of the run in it.
type RunOfHunt = (usize, u64);

/// Runs by their ends, and the defects that they showed.
#[derive(Default)]
pub(super) struct Outcomes {
    failing: BTreeSet<RunOfHunt>,
    /// Runs that died by an error in the program, which no limit of time explains.
    faulty: BTreeSet<RunOfHunt>,
    passing: BTreeSet<RunOfHunt>,
    /// By fingerprint.
    shown: HashMap<String, BTreeSet<RunOfHunt>>,
}

impl Outcomes {
    /// Adds a run.
    pub(super) fn ended(&mut self, run: RunOfHunt, verdict: &Verdict) {
        match verdict {
            Verdict::Untraced(_) => {}
            Verdict::Passed => drop(self.passing.insert(run)),
            failed => {
                self.failing.insert(run);
                if failed.is_fault() {
                    self.faulty.insert(run);
                }
            }
        }
    }

    /// Adds a defect that a run showed.
    pub(super) fn showed(&mut self, run: RunOfHunt, fingerprint: &str) {
        self.shown.entry(fingerprint.to_owned()).or_default().insert(run);
    }
}

/// Raises the class of the defects that explain failing runs. It takes the failing runs without a likely defect,
/// raises the defect that is in most of them, and goes on with the rest. A defect with evidence of locks alone becomes
/// possible, unless a run died by a fault: the delay may only have made the program late. A region in which the
/// program died is no cause: no passing run has one.
pub(super) fn raise_causes(ended: &Outcomes, defects: &mut [Defect]) {
    let none = BTreeSet::new();
    let shown = |defect: &Defect| ended.shown.get(&defect.fingerprint).unwrap_or(&none);
    let mut unexplained = ended.failing.clone();
    let is_harmless = |defect: &&Defect| suspicion(defect) == Suspicion::Harmless;
    let likely = defects.iter().filter(|defect| defect.class == Class::Likely);
    for defect in likely.filter(|defect| !is_harmless(defect)) {
        unexplained.retain(|run| !shown(defect).contains(run));
    }
    let is_candidate = |&index: &usize| {
        let defect = &defects[index];
        defect.class != Class::Likely && shown(defect).is_disjoint(&ended.passing)
    };
    let mut candidates: Vec<usize> = (0..defects.len()).filter(is_candidate).collect();
    let number = candidates.len() as f64;
    loop {
        let explains = |index: usize| shown(&defects[index]).intersection(&unexplained).count();
        let best = candidates.iter().copied().max_by_key(|&index| {
            let Defect { class, evidence, .. } = defects[index];
            (explains(index), Reverse((class, evidence != Evidence::Data, index)))
        });
        let Some(index) = best else { return };
        let chance = chance(explains(index), unexplained.len(), ended.passing.len());
        if chance * number > CHANCE {
            return;
        }
        candidates.retain(|&candidate| candidate != index);
        let of = shown(&defects[index]);
        let is_fault = !of.is_disjoint(&ended.faulty);
        unexplained.retain(|run| !of.contains(run));
        raise(&mut defects[index], is_fault);
    }
}

fn raise(defect: &mut Defect, is_fault: bool) {
    let is_sure = defect.evidence == Evidence::Data || is_fault;
    defect.class = if is_sure { Class::Likely } else { Class::Possible };
    let shares = defect.hunted.as_ref().map(|hunted| (hunted.failing, hunted.passing));
    let (failing, passing) = shares.unwrap_or_default();
    let fact = Reason::OnlyInFailingRuns {
        failing: failing.runs,
        of_failing: failing.of,
        of_passing: passing.of,
    };
    defect.reasons.insert(0, reason(&fact));
}

/// Relation of a defect to the failures of a program, the closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspicion {
    /// Failing runs showed it, and no other.
    Cause,
    Open,
    /// Most passing runs showed it.
    Harmless,
}

/// Returns the relation of a defect to failures. Without failures there is none.
pub(super) fn suspicion(defect: &Defect) -> Suspicion {
    match &defect.hunted {
        Some(HuntedDefect { failing, passing, .. }) if failing.of > 0 && passing.of > 0 => {
            match (failing.runs, passing.runs) {
                (1.., 0) => Suspicion::Cause,
                (_, passed) if 2 * passed > passing.of => Suspicion::Harmless,
                _ => Suspicion::Open,
            }
        }
        _ => Suspicion::Open,
    }
}

/// Returns the probability that `number` runs, drawn by chance from failing and passing ones, are all failing.
fn chance(number: usize, failing: usize, passing: usize) -> f64 {
    let drawn = 0..number.min(failing);
    drawn.map(|index| (failing - index) as f64 / (failing + passing - index) as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_runs_are_chance() {
        assert_eq!(chance(0, 4, 10), 1.0);
        assert!((chance(3, 4, 10) - 4.0 / 364.0).abs() < 1e-9, "3 of 4 failing, 0 of 10 passing");
        assert!(chance(3, 12, 8) > CHANCE);
        assert!(chance(12, 12, 8) < CHANCE / 100.0);
        assert_eq!(chance(5, 5, 0), 1.0, "nothing passed");
    }
}
