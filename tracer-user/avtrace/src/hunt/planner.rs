//! Plans of runs: delays at the gaps that runs have shown, and at the start of threads.

use plan::random::Random;
use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::{
    HuntOptions, MAX_THREAD_STARTS,
    run::{FoundGap, RunResult, THREAD_START, delay_id},
    schedule::{PlannedDelay, SeenGap, Treatment},
};
use plan::perturbation::{Affinity, Delay, DelayedThreads, Perturbation, Starvation, VERSION};
use report::{CaptureBackend, Report};

/// Longest time that a thread gets no processor, in milliseconds.
const LONGEST_STARVATION_MS: u32 = 200;

/// Facts about the program from which the plans of its runs are made.
pub(super) struct Planner {
    /// Gaps that runs have shown, by their identifiers.
    gaps: HashMap<String, FoundGap>,
    /// Places for delays at the start of threads.
    thread_starts: BTreeSet<(String, u64)>,
    /// Share of the program's own time that delays may take. It allows for the time of avtrace.
    share: f64,
    /// Time of the program in the first run.
    program: Duration,
    /// Set if the back end can hold threads. The kernel back end has no tracer that could.
    pub(super) can_starve: bool,
}

impl Planner {
    /// Creates a planner that knows the gaps of earlier runs.
    pub(super) fn new(share: f64, gaps: Vec<FoundGap>) -> Self {
        Self {
            gaps: gaps.into_iter().map(|gap| (gap.id.clone(), gap)).collect(),
            thread_starts: BTreeSet::new(),
            share,
            program: Duration::ZERO,
            can_starve: false,
        }
    }

    /// Returns the gaps that runs have shown.
    pub(super) fn seen_gaps(&self) -> Vec<SeenGap> {
        self.gaps.values().map(|gap| gap.seen.clone()).collect()
    }

    /// Adopts the times and the back end of the first run.
    pub(super) fn adopt(
        &mut self,
        options: &HuntOptions,
        first: &RunResult,
        report: Option<&Report>,
    ) {
        self.program = Duration::from_nanos(first.program_ns);
        let capture = report.and_then(|report| report.capture.as_ref());
        self.can_starve = capture.is_some_and(|of| of.backend == CaptureBackend::Inline);
        // The start-up time of avtrace counts as time of the run, since the user waits for it as well.
        self.share = match first.program_ns {
            0 => options.share,
            own => (first.elapsed_ns as f64 * options.share / own as f64).clamp(options.share, 1.0),
        };
    }

    /// Adds the gaps of a run. Gaps at one place share the delays that threads had there.
    pub(super) fn credit_gaps(&mut self, result: &mut RunResult) {
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

    /// Returns the delays of threads at their start and before they could come in, beside those at a gap.
    fn late_starts(&self, planned: &PlannedDelay) -> impl Iterator<Item = Delay> {
        let starts = self.thread_starts.iter().take(MAX_THREAD_STARTS);
        let gap = self.gaps.get(&planned.gap);
        let remotes = gap.into_iter().flat_map(|gap| &gap.remotes_at);
        let all = starts.chain(remotes.filter(|at| !self.thread_starts.contains(*at)));
        all.enumerate().map(|(copy, (module, address))| Delay {
            id: delay_id(THREAD_START, copy),
            module: module.clone(),
            address: *address,
            nanoseconds: (planned.nanoseconds / 2).max(1),
            hits: planned.hits,
            probability: 0.5,
            threads: DelayedThreads::All,
        })
    }

    pub(super) fn plan(
        &self,
        options: &HuntOptions,
        number: u64,
        treatment: &Treatment,
    ) -> Perturbation {
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
