//! Checks one trace: passes its events to a checker, and turns the findings into a report. The caller
//! selects the algorithm; reading is in `read`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use checker::Checker;
use checker::deadlock;
use checker::event::{Event, EventNumber, LocationId, Op};
use checker::finding::Findings;
use checker::format::{Batch, Compression, Format, Gap, Names, ObservedValue, Summary};
use checker::gap::Observer;
use checker::predict;

use super::algorithms::Algorithm;
use super::input::{Input, InputError};
use super::names::TraceNames;
use super::read::{self, Consumer, Stopped};
use super::recording::{self, RecordedRun};
use super::segments::{Joined, Recording, SegmentsStopped};
use super::stats::Stats;
use crate::progress::ReadBar;
use report::{self, Limitation, NotSeen, Report, Subject};

/// Options of a check.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Algorithm.
    pub algorithm: &'static Algorithm,
    /// Options of the checker. A recording of a running program is always checked leniently, as it was or
    /// would have been while the program ran.
    pub options: checker::Options,
    /// List the gaps of regions.
    pub gaps: bool,
    /// Look for potential deadlocks.
    pub deadlocks: bool,
    /// Predict defects.
    pub predict: bool,
}

/// Result of a check.
#[derive(Debug)]
pub struct Checked {
    /// Report of the findings.
    pub report: Report,
    /// Reason why only a part of the trace was checked.
    pub incomplete: Option<String>,
    /// Figures.
    pub stats: Stats,
}

/// Number of observed values that are remembered, of the latest accesses.
const MAX_VALUES: usize = 1 << 13;
/// Limit of observed values that are stored for the report.
const MAX_KEPT_VALUES: usize = 1 << 20;

/// Checks a trace.
///
/// # Errors
/// When the trace cannot be read, or an event does not fit and the request is not lenient. Earlier findings are
/// discarded then.
pub fn check(input: &Input, request: &Request, bar: &mut ReadBar) -> Result<Checked, InputError> {
    let started = Instant::now();
    let lenient = request.options.lenient;
    let mut reader = input.reader(lenient)?;
    let mut run = Run::new(request);
    let incomplete = read::to_end(input, &mut reader, lenient, bar, &mut run).map_err(
        |stopped| match stopped {
            Stopped::Read(error) => error,
            Stopped::Consumer(error) => reader.event_error(error),
        },
    )?;
    if reader.summary().events == 0
        && incomplete.is_none()
        && let Some(error) = input.without_events(&reader)
    {
        return Err(error);
    }
    run.checker(reader.names());
    let Run { checker, others, values, begins, .. } = run;
    let findings = checker.map(|mut checker| checker.finish()).unwrap_or_default();
    let stats = Stats {
        format: reader.format(),
        compression: reader.compression(),
        bytes: reader.position(),
        ..stats(reader.names(), reader.summary(), &findings, started)
    };
    let mut not_seen = recording::read_not_seen(reader.names());
    not_seen.limitations.extend(limitations(&stats, incomplete.as_deref(), lenient));
    let names = TraceNames::new(reader.into_names(), values.kept, begins);
    let report = report(input.name(), request, &findings, not_seen, others, names);
    Ok(Checked { report, incomplete, stats })
}

/// Checks a recording in segments as one trace.
///
/// # Errors
/// When a segment cannot be read.
pub fn check_recording(
    recorded: &Recording,
    request: &Request,
    bar: &mut ReadBar,
) -> Result<Checked, InputError> {
    let started = Instant::now();
    let lenient = request.options.lenient;
    let mut run = Run::new(request);
    let joined = recorded.read(lenient, bar, &mut run).map_err(|stopped| match stopped {
        SegmentsStopped::Input(error) => error,
        SegmentsStopped::Consumer(error) => {
            InputError::Event { name: recorded.name().to_owned(), error }
        }
    })?;
    let Joined { names, incomplete, summary, bytes } = joined;
    run.checker(&names);
    let Run { checker, others, values, begins, .. } = run;
    let findings = checker.map(|mut checker| checker.finish()).unwrap_or_default();
    let stats = Stats { bytes, ..stats(&names, summary, &findings, started) };
    let mut not_seen = recording::read_not_seen(&names);
    not_seen.limitations.extend(limitations(&stats, incomplete.as_deref(), lenient));
    let names = TraceNames::new(names, values.kept, begins);
    let report = report(recorded.name(), request, &findings, not_seen, others, names);
    Ok(Checked { report, incomplete, stats })
}

/// State of a running check.
struct Run<'request> {
    request: &'request Request,
    /// Created after the first part of the trace was read, since the trace's own description decides how.
    checker: Option<Box<dyn Checker>>,
    others: Observers,
    values: Values,
    /// Location of each region's first begin.
    begins: Vec<Option<LocationId>>,
}

impl<'r> Run<'r> {
    fn new(request: &'r Request) -> Self {
        let others = Observers::new(request);
        let (values, begins) = (Values::default(), Vec::new());
        Self { request, checker: None, others, values, begins }
    }

    fn checker(&mut self, names: &Names) -> &mut dyn Checker {
        let Request { algorithm, mut options, .. } = *self.request;
        let checker = self.checker.get_or_insert_with(|| {
            options.lenient |= recording::is_live(names);
            tracing::debug!(algorithm = algorithm.name, lenient = options.lenient, "checker");
            (algorithm.start)(options)
        });
        &mut **checker
    }

    /// Looks for the begins of new regions: they are in the events that were read with them.
    fn find_begins(&mut self, batch: &Batch<'_>) {
        let known = self.begins.len();
        if batch.names.region_count() == known {
            return;
        }
        self.begins.resize(batch.names.region_count(), None);
        for event in batch.events {
            if let Op::Begin(region) | Op::Follow(Some(region)) = event.op
                && region.index() >= known
                && let Some(begin) = self.begins.get_mut(region.index())
            {
                begin.get_or_insert(event.location);
            }
        }
    }
}

impl Consumer for Run<'_> {
    type Error = checker::EventError;

    const DONE: &'static str = "checked";

    fn events(&mut self, batch: &Batch<'_>) -> Result<(), Self::Error> {
        self.find_begins(batch);
        batch.events.iter().for_each(|event| self.others.event(event));
        let checker = self.checker(batch.names);
        checker.events(batch.events)?;
        let found = checker.stored_violations();
        self.values.add(batch.values, found);
        Ok(())
    }

    fn gap(&mut self, _gap: Gap, names: &Names) -> Result<(), Self::Error> {
        self.others.gap();
        self.checker(names).gap();
        Ok(())
    }
}

/// Observers beside the checker.
struct Observers {
    gaps: Option<Observer>,
    deadlocks: Option<deadlock::Observer>,
    predictions: Option<predict::Observer>,
}

impl Observers {
    fn new(request: &Request) -> Self {
        Self {
            gaps: request.gaps.then(Observer::default),
            deadlocks: request.deadlocks.then(deadlock::Observer::default),
            predictions: request.predict.then(predict::Observer::default),
        }
    }

    fn event(&mut self, event: &Event) {
        self.gaps.iter_mut().for_each(|gaps| gaps.event(event));
        self.deadlocks.iter_mut().for_each(|deadlocks| deadlocks.event(event));
        self.predictions.iter_mut().for_each(|predictions| predictions.event(event));
    }

    fn gap(&mut self) {
        self.gaps.iter_mut().for_each(Observer::gap);
        self.deadlocks.iter_mut().for_each(deadlock::Observer::gap);
        self.predictions.iter_mut().for_each(predict::Observer::gap);
    }
}

/// Values before and after accesses: of the latest accesses, and of accesses that may belong to findings.
#[derive(Default)]
struct Values {
    recent: VecDeque<ObservedValue>,
    kept: BTreeMap<EventNumber, ObservedValue>,
    witnesses: u64,
}

impl Values {
    fn add(&mut self, values: &[ObservedValue], witnesses: u64) {
        self.recent.extend(values);
        let surplus = self.recent.len().saturating_sub(MAX_VALUES);
        self.recent.drain(..surplus);
        if witnesses != self.witnesses && self.kept.len() < MAX_KEPT_VALUES {
            self.kept.extend(self.recent.drain(..).map(|value| (value.event, value)));
        }
        self.witnesses = witnesses;
    }
}

/// Returns the figures of a trace in avtrace's own format.
fn stats(names: &Names, read: Summary, findings: &Findings, started: Instant) -> Stats {
    Stats {
        format: Format::Avt,
        compression: Compression::None,
        bytes: 0,
        read,
        counts: findings.counts,
        names: [
            names.region_count(),
            names.variable_count(),
            names.lock_count(),
            names.sync_count(),
            names.location_count(),
        ],
        elapsed: started.elapsed(),
    }
}

/// Returns the limitations of the trace itself.
fn limitations(stats: &Stats, incomplete: Option<&str>, lenient: bool) -> Vec<Limitation> {
    let incomplete =
        incomplete.map(|reason| Limitation::IncompleteTrace { reason: reason.to_owned() });
    let skipped = stats
        .read
        .first_skipped_line
        .map(|first| Limitation::SkippedLines { count: stats.read.skipped_lines, first });
    // In a recording of a running program that is to be expected.
    let ignored = (lenient && stats.counts.ignored_events > 0)
        .then_some(Limitation::IgnoredEvents { count: stats.counts.ignored_events });
    [incomplete, skipped, ignored].into_iter().flatten().collect()
}

fn report(
    path: &str,
    request: &Request,
    findings: &Findings,
    not_seen: NotSeen,
    others: Observers,
    mut names: TraceNames,
) -> Report {
    let (exit_code, signal) = names.ending();
    let subject = Subject::Trace { path: path.to_owned(), exit_code, signal };
    let RecordedRun { capture, memory, trap, perturbation } = names.run();
    let context = report::Context {
        algorithm: request.algorithm.name.to_owned(),
        relation: request.options.relation,
        nesting: request.options.regions,
        with_instances: request.options.instances,
        not_seen,
        gaps: others.gaps.map(|gaps| gaps.gaps()),
        deadlocks: others.deadlocks.map(|deadlocks| deadlocks.deadlocks()),
        predictions: others.predictions.map(predict::Observer::predictions),
        capture,
        memory,
        trap,
        perturbation,
        ..report::Context::new(subject)
    };
    let mut report = report::assemble(findings, &mut names, context);
    report.not_seen.limitations.extend(names.missing_sources());
    report
}
