//! Checking and recording of a program's events as they come.

use checker::{
    Davida, DeferredChecker, FirstPass, Suspects,
    event::{Event, RegionId},
    finding::Findings,
    format,
    gap::{Gap, Observer},
};
use symbolize::Symbolizer;

use crate::session::{
    options::RunOptions,
    record::{RecordError, RecordTo, Recorder},
};
use events::{
    busiest::Busiest,
    deferred::EpochTimestamps,
    source::Source,
    stream::{Item, Mark},
    values::RetainedValues,
};
use plan::plan::Site;

/// Maximal number of observed values stored for the report.
const MAX_RETAINED_VALUES: usize = 1 << 20;

/// Checker and recorder of a program.
#[derive(Default)]
pub(super) struct Checking {
    checker: Option<Box<dyn DeferredChecker + Send>>,
    gaps: Option<Box<Observer>>,
    first_pass: Option<Box<FirstPass>>,
    recorder: Option<Result<Recorder, RecordError>>,
    epochs: EpochTimestamps,
    values: RetainedValues,
    busiest: Busiest,
    /// Number of violations stored so far.
    witnesses: u64,
    /// Number of those at the last look at them.
    reported: u64,
}

/// Results of checking and recording.
pub(super) struct Checked {
    pub(super) findings: Findings,
    pub(super) recorder: Option<Result<Recorder, RecordError>>,
    pub(super) values: RetainedValues,
    /// Gaps of regions, if they were observed.
    pub(super) gaps: Option<Vec<Gap>>,
    /// Participants of imprecise cycles, in a first pass.
    pub(super) suspects: Option<Suspects>,
}

impl Checking {
    /// Checks and observes what the options of a run say.
    pub(super) fn new(options: &RunOptions) -> Self {
        let checked = options.checker.filter(|_| !options.first_pass);
        let checker = checked.map(|options| Box::new(Davida::new(options)) as Box<_>);
        let gaps = options.observes_gaps().then(Box::default);
        let first_pass = options.first_pass.then(Box::default);
        Self { checker, gaps, first_pass, ..Self::default() }
    }

    /// Starts to record the events of a process at this place among all, from 0.
    pub(super) fn start_recorder(
        &mut self,
        to: &RecordTo,
        order: usize,
        process: &format::Process,
    ) {
        self.recorder = Some(Recorder::create(to, order, process));
    }

    /// Notes that events came before the first one: a recording begins with a gap.
    pub(super) fn begin_within(&mut self) {
        if let Some(Ok(recorder)) = &mut self.recorder {
            recorder.begin_within();
        }
    }

    /// Takes the error with which the start of the recording failed.
    pub(super) fn recorder_error(&mut self) -> Option<RecordError> {
        self.recorder.take_if(|recorder| recorder.is_err()).and_then(Result::err)
    }

    /// Checks and records the events that a source has.
    pub(super) fn consume(&mut self, source: &mut Source, sites: &[Site], symbolizer: &Symbolizer) {
        if let Some(Ok(recorder)) = &mut self.recorder {
            recorder.record(source, sites, symbolizer);
        }
        if let Some(gaps) = &mut self.gaps {
            observe(source, &mut **gaps, Observer::event, Observer::gap);
        }
        if let Some(first_pass) = &mut self.first_pass {
            observe(source, &mut **first_pass, FirstPass::event, FirstPass::gap);
        }
        let mut found = 0;
        if let Some(checker) = &mut self.checker {
            for item in source.stream().items() {
                match item {
                    Item::Events(events) => {
                        events.iter().for_each(|event| self.busiest.count(event));
                        // A lenient checker counts what does not fit and goes on.
                        let _ = checker.events(events);
                    }
                    Item::Mark(Mark::Gap) => {
                        self.busiest.gap();
                        checker.gap();
                        self.epochs.clear();
                    }
                    Item::Mark(Mark::Epoch(epoch)) => self.epochs.open_epoch(&**checker, epoch),
                    Item::Mark(Mark::Deferred(access)) => {
                        self.epochs.insert(&mut **checker, access);
                    }
                }
            }
            found = checker.stored_violations();
        }
        source.consume();
        if found != self.witnesses && !self.values.are_many(MAX_RETAINED_VALUES) {
            self.values.add(source.watches_mut().take_new_values());
        }
        self.witnesses = found;
    }

    /// Returns whether violations were stored since the last call.
    pub(super) const fn has_news(&mut self) -> bool {
        std::mem::replace(&mut self.reported, self.witnesses) != self.witnesses
    }

    /// Returns what was found so far, if anything is checked, and the values of accesses that were stored.
    pub(super) fn so_far(&self) -> Option<(Findings, &RetainedValues)> {
        self.checker.as_ref().map(|checker| (checker.findings(), &self.values))
    }

    /// Returns the region with most of the events, and their number.
    pub(super) fn busiest(&self) -> Option<(RegionId, u64)> {
        self.busiest.found()
    }

    pub(super) fn finish(self) -> Checked {
        let Self { checker, recorder, values, gaps, first_pass, .. } = self;
        let findings = match (checker, &recorder) {
            (Some(mut checker), _) => checker.finish(),
            (None, Some(Ok(recorder))) => Findings::from_counts(recorder.counts()),
            (None, _) => Findings::default(),
        };
        let gaps = gaps.map(|gaps| gaps.gaps());
        let suspects = first_pass.map(|mut first_pass| first_pass.finish());
        Checked { findings, recorder, values, gaps, suspects }
    }
}

/// Passes the events and gaps that a source has on to an observer by these functions of it.
fn observe<O>(source: &mut Source, observer: &mut O, event: fn(&mut O, &Event), gap: fn(&mut O)) {
    for item in source.stream().items() {
        match item {
            Item::Events(events) => events.iter().for_each(|one| event(observer, one)),
            Item::Mark(Mark::Gap) => gap(observer),
            Item::Mark(_) => {}
        }
    }
}
