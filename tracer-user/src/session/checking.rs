//! The checker's thread: consumes batches of records, feeds the checker and the recorder, and arms watchpoints whose
//! addresses the program tells while it runs.

use std::{collections::BTreeMap, io, thread};

use checker::{Checker, Davida, Options, event::EventNumber, finding::Findings};

use super::{record::Recorder, watches};
use crate::{
    kernel::Kernel,
    live::{
        reader::Batches,
        source::{Item, ObservedValue, Source},
    },
};

/// A running check.
#[derive(Debug)]
pub struct Checking {
    thread: thread::JoinHandle<Checked>,
}

/// What a check leaves behind.
#[derive(Debug)]
pub struct Checked {
    /// What was found; only counts when nothing was checked.
    pub findings: Findings,
    /// The recording, to be ended.
    pub recorder: Option<Recorder>,
    /// The source, which knows what ids stand for.
    pub source: Source,
    /// The kernel side.
    pub kernel: Kernel,
    /// About variables that could not be watched.
    pub late_watch_notes: Vec<String>,
    /// Values that were observed around the findings' events.
    pub values: BTreeMap<EventNumber, ObservedValue>,
}

/// Observed values that are kept for the report at most.
const MAX_KEPT: usize = 1 << 20;

impl Checking {
    /// Starts to check, with `options`, and to record what the reader passes on, either or both.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn start(
        batches: Batches,
        source: Source,
        kernel: Kernel,
        options: Option<Options>,
        recorder: Option<Recorder>,
    ) -> io::Result<Self> {
        let thread = thread::Builder::new()
            .name("avtrace-checker".to_owned())
            .spawn(move || check(batches, source, kernel, options, recorder))?;
        Ok(Self { thread })
    }

    /// Waits for the end; the reader must have been told to finish.
    ///
    /// # Panics
    ///
    /// When the checker's thread has.
    #[must_use]
    pub fn finish(self) -> Checked {
        match self.thread.join() {
            Ok(checked) => checked,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn check(
    batches: Batches,
    mut source: Source,
    mut kernel: Kernel,
    options: Option<Options>,
    mut recorder: Option<Recorder>,
) -> Checked {
    let mut checker = options.map(|options| Box::new(Davida::new(options)));
    let mut items = Vec::new();
    let (mut late_watch_notes, mut values) = (Vec::new(), BTreeMap::new());
    let mut witnesses = 0;
    batches.for_each(|records| {
        items.clear();
        for record in records {
            source.record(record, &mut |item| items.push(item));
        }
        if let Some(recorder) = &mut recorder {
            recorder.record(&source, &items);
        }
        let mut found = 0;
        if let Some(checker) = &mut checker {
            for item in &items {
                match item {
                    // A lenient checker counts what does not fit and goes on.
                    Item::Event(event) => drop(checker.event(event)),
                    Item::Gap => checker.gap(),
                }
            }
            found = checker.counts().distinct_witnesses;
        }
        if found != witnesses && values.len() < MAX_KEPT {
            values.extend(source.recent_values());
        }
        witnesses = found;
        for (site, registers) in source.take_shared() {
            late_watch_notes.extend(watches::arm_late(&mut source, &mut kernel, site, &registers));
        }
    });
    late_watch_notes.sort();
    late_watch_notes.dedup();
    let findings = match (checker, &recorder) {
        (Some(checker), _) => checker.finish(),
        (None, Some(recorder)) => Findings { counts: recorder.counts(), ..Findings::default() },
        (None, None) => Findings::default(),
    };
    Checked { findings, recorder, source, kernel, late_watch_notes, values }
}
