//! Runs that repeat one of a hunt: with the same plan, or in another build of the program with delays at the same
//! gaps.

use std::{collections::BTreeSet, io, time::Duration};

use super::{
    FIRST_LIMIT, HuntError, MAX_THREAD_STARTS, Observer, Progress, RunResult, Verdict,
    child::{Launch, Request},
    limit_after,
    results::{END, Replay, Results},
    run::{FoundGap, THREAD_START, delay_id, gap_of},
};
use plan::perturbation::{Delay, Perturbation};
use report::HuntEnd;

#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Run of the hunt that is repeated.
    pub run: u64,
    pub times: u64,
    /// Time after which a repetition is killed; `None` for a limit that follows from the runs of the hunt.
    pub limit: Option<Duration>,
}

/// Repeats a run of the hunt in `results`, and stores the repetitions in `repeats`. If the program is still of the
/// same build, `results` gets the number of repetitions in which the defects of the run show again.
///
/// # Errors
///
/// When the results have no such run, or it cannot be repeated.
pub fn replay(
    options: &ReplayOptions,
    launch: &Launch,
    results: &mut Results,
    repeats: &mut Results,
    observer: &dyn Observer,
) -> Result<(), HuntError> {
    let ReplayOptions { run, times, limit } = *options;
    let (treatment, plan) = results.plan(run)?.ok_or(HuntError::NoRun(run))?;
    let limit = match (limit, results.longest_elapsed()?) {
        (Some(limit), _) => limit,
        (None, Some(longest)) => limit_after(longest),
        (None, None) => FIRST_LIMIT,
    };
    let is_same = results.header()?.build == repeats.header()?.build;
    tracing::debug!(run, times, ?limit, is_same_build = is_same, "a run is repeated");
    let plan = match is_same {
        true => plan,
        false => plan_of_build(run, &plan, &results.gaps()?, launch, limit, observer)?,
    };
    let mut progress = Progress::default();
    for repetition in 1..=times {
        progress.repeats = true;
        observer.progress(&progress);
        let request = Request { number: repetition, plan: &plan, limit };
        let Some(result) = launch.run(request, &|| observer.is_stopped())? else { break };
        if let Verdict::Untraced(error) = &result.verdict {
            return Err(HuntError::Untraced { error: error.clone(), status: result.status });
        }
        let result = RunResult { treatment: treatment.clone(), ..result };
        repeats.add(&result)?;
        if is_same {
            store_replay(results, run, &result)?;
        }
        progress.runs += 1;
        progress.failed += u64::from(result.verdict.is_failure());
    }
    repeats.set(END, &HuntEnd::AllRuns)?;
    Ok(())
}

/// Makes a plan for another build of the program: the gaps have other addresses in it, which a run shows.
fn plan_of_build(
    run: u64,
    plan: &str,
    known: &[FoundGap],
    launch: &Launch,
    limit: Duration,
    observer: &dyn Observer,
) -> Result<String, HuntError> {
    let damaged = |error: serde_json::Error| HuntError::Start(io::Error::other(error));
    let mut plan: Perturbation = serde_json::from_str(plan).map_err(damaged)?;
    if plan.delays.is_empty() {
        return serde_json::to_string(&plan).map_err(damaged);
    }
    let delays = std::mem::take(&mut plan.delays);
    let (starvation, affinity) = (plan.starvation.take(), plan.affinity.take());
    let text = serde_json::to_string(&plan).map_err(damaged)?;
    let request = Request { number: 0, plan: &text, limit };
    let seen = launch.run(request, &|| observer.is_stopped())?;
    let (gaps, starts): (Vec<_>, Vec<_>) =
        seen.into_iter().map(|result| (result.gaps, result.thread_starts)).unzip();
    let seen: Vec<FoundGap> = gaps.into_iter().flatten().collect();
    let starts: BTreeSet<(String, u64)> = starts.into_iter().flatten().collect();
    let found = |id: &str| {
        // The compiler may have put it into another function: then its lines decide.
        let label = known.iter().find(|gap| gap.id == id).map(|gap| &gap.label);
        let same = seen.iter().find(|gap| gap.id == id);
        same.or_else(|| seen.iter().find(|gap| Some(&gap.label) == label))
    };
    let gaps = delays.iter().filter_map(|delay| found(gap_of(&delay.id)));
    let remotes: BTreeSet<(String, u64)> =
        gaps.flat_map(|gap| gap.remotes_at.iter().cloned()).collect();
    // This build may have another number of copies of the code.
    for delay in delays {
        let gap = gap_of(&delay.id);
        if plan.delays.iter().any(|known| gap_of(&known.id) == gap) {
            continue;
        }
        let places: Vec<&(String, u64)> = match gap {
            THREAD_START => {
                let starts_at = starts.iter().take(MAX_THREAD_STARTS);
                starts_at.chain(remotes.iter().filter(|at| !starts.contains(*at))).collect()
            }
            _ => found(gap).into_iter().flat_map(FoundGap::places).collect(),
        };
        plan.delays.extend(places.into_iter().enumerate().map(|(copy, (module, address))| Delay {
            id: delay_id(gap, copy),
            module: module.clone(),
            address: *address,
            ..delay.clone()
        }));
    }
    tracing::debug!(run, delays = plan.delays.len(), "the plan has places of the new build");
    (plan.starvation, plan.affinity) = (starvation, affinity);
    if plan.delays.is_empty() {
        return Err(HuntError::NoGaps(run));
    }
    serde_json::to_string(&plan).map_err(damaged)
}

pub(super) fn store_replay(
    results: &mut Results,
    run: u64,
    result: &RunResult,
) -> Result<(), HuntError> {
    let fingerprints = result.fingerprints().map(str::to_owned).collect();
    results.add_replay(&Replay { run, fingerprints }, &result.verdict)?;
    Ok(())
}
