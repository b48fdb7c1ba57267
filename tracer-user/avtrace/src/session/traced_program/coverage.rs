//! Coverage of a program, for its report: skipped probes, limitations, counts, signals that breakpoints caused.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use abi::TrapRecord;
use x86::placement::Cost;

use crate::session::{
    coverage::limitations::lost_since,
    traps::{Known, Traps},
};
use capture::{backend::Backend, kernel::Lost};
use plan::plan::skipped::{ProbePurpose, SkipReason, SkippedProbe};
use report::{Busiest, Limitation, Summary, TrapDeath};

#[derive(Debug)]
pub(super) struct Coverage {
    skipped: Vec<SkippedProbe>,
    limitations: Vec<Limitation>,
    summary: Summary,
    traps: Traps,
    lost_before: Option<Lost>,
    started: Instant,
}

/// Coverage of a program that is over.
pub(super) struct FinalCoverage {
    pub(super) skipped: Vec<SkippedProbe>,
    /// Sorted, each once.
    pub(super) limitations: Vec<Limitation>,
    pub(super) summary: Summary,
    pub(super) elapsed: Duration,
}

impl Coverage {
    /// Starts now: what the kernel side lost before does not count.
    pub(super) fn new(backend: &Backend) -> Self {
        Self {
            skipped: Vec::new(),
            limitations: Vec::new(),
            summary: Summary::default(),
            traps: Traps::default(),
            lost_before: backend.lost(),
            started: Instant::now(),
        }
    }

    /// Takes over what is true of a child that was forked: it has the probes of its parent, and no watchpoints.
    pub(super) fn inherit(&mut self, parent: &Self) {
        self.skipped.clone_from(&parent.skipped);
        self.summary = Summary { watchpoints: Some(0), ..parent.summary.clone() };
        if parent.summary.watchpoints.is_some_and(|watchpoints| watchpoints > 0) {
            self.limit(Limitation::UnwatchedChild);
        }
    }

    pub(super) fn limit(&mut self, limitation: Limitation) {
        self.limitations.push(limitation);
    }

    pub(super) fn extend(&mut self, limitations: impl IntoIterator<Item = Limitation>) {
        self.limitations.extend(limitations);
    }

    /// Removes a limitation that has turned out to be none.
    pub(super) fn lift(&mut self, limitation: &Limitation) {
        self.limitations.retain(|other| other != limitation);
    }

    /// Returns the probes that are not there and the limitations, as far as both are known while the program runs.
    pub(super) fn so_far(&self) -> (Vec<SkippedProbe>, Vec<Limitation>) {
        let mut limitations = self.limitations.clone();
        limitations.push(Limitation::StillRunning);
        (self.skipped.clone(), limitations)
    }

    /// Adds a probe that is not there.
    pub(super) fn skip(&mut self, purpose: ProbePurpose, reason: SkipReason) {
        self.skipped.push(SkippedProbe { purpose, reason });
    }

    /// Takes the reasons why delays are not there, by their identifiers: they show no events.
    pub(super) fn take_delays(&mut self) -> BTreeMap<String, String> {
        let delays = self
            .skipped
            .extract_if(.., |probe| matches!(probe.purpose, ProbePurpose::Delay { .. }));
        let named = delays.filter_map(|SkippedProbe { purpose, reason }| match purpose {
            ProbePurpose::Delay { id } => Some((id, reason.to_string())),
            _ => None,
        });
        named.collect()
    }

    /// Adds the probes that a plan could not place.
    pub(super) fn skip_all(&mut self, skipped: &mut Vec<SkippedProbe>) {
        self.skipped.append(skipped);
    }

    /// Counts attached probes by their costs.
    pub(super) fn count_probes(&mut self, costs: impl Iterator<Item = Cost> + Clone) {
        let count = |wanted| costs.clone().filter(|cost| *cost == wanted).count() as u64;
        *self.summary.probes_emulated.get_or_insert(0) +=
            count(Cost::Emulated) + count(Cost::Displaced);
        *self.summary.probes_single_stepped.get_or_insert(0) += count(Cost::SingleStepped);
    }

    pub(super) fn set_watchpoints(&mut self, count: u64) {
        self.summary.watchpoints = Some(count);
    }

    /// Sets the numbers of blocks that allocators gave out and took back.
    pub(super) fn set_allocations(&mut self, allocations: u64, frees: u64) {
        (self.summary.allocations, self.summary.frees) = (Some(allocations), Some(frees));
    }

    /// Sets the function that makes most of the events.
    pub(super) fn set_busiest(&mut self, busiest: Option<Busiest>) {
        self.summary.busiest = busiest;
    }

    /// Adds a `SIGTRAP` that the process received.
    pub(super) fn add_trap(&mut self, record: &TrapRecord) {
        self.traps.add(record);
    }

    /// Adds the limitation for the signals that the process handled.
    pub(super) fn add_handled_traps(&mut self, code: &Known<'_>) {
        self.limitations.extend(self.traps.handled(code));
    }

    /// Returns the cause of the process's death by `SIGTRAP`.
    pub(super) fn death_by_trap(&self, code: &Known<'_>) -> TrapDeath {
        self.traps.death(code)
    }

    /// Returns the events lost since the start, or the limitation that this is not known.
    pub(super) fn lost_so_far(&self, backend: &Backend) -> Result<Lost, Limitation> {
        lost_since(self.lost_before, backend.lost())
    }

    /// Returns the events lost since the start; a limitation is added where that is not known.
    pub(super) fn lost(&mut self, backend: &Backend) -> Option<Lost> {
        match self.lost_so_far(backend) {
            Ok(lost) => Some(lost),
            Err(limitation) => {
                self.limit(limitation);
                None
            }
        }
    }

    pub(super) fn finish(self) -> FinalCoverage {
        let Self { skipped, mut limitations, summary, started, .. } = self;
        limitations.sort_by_cached_key(Limitation::to_string);
        limitations.dedup();
        FinalCoverage { skipped, limitations, summary, elapsed: started.elapsed() }
    }
}
