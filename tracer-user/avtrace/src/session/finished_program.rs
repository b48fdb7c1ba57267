//! Program that is over: its findings and coverage, then its report.

use std::{path::PathBuf, thread::JoinHandle};

use checker::{Suspects, event::EventNumber, finding::Findings, format};
use crossbeam_channel::Sender;
use symbolize::Symbolizer;

use super::{
    record::{RecordError, Recorder},
    system_error::SystemError,
    threads::{joined, spawn},
};
use crate::{first_pass::FirstPassFile, names::live::LiveNames};
use events::{source::Source, values::RetainedValues};
use plan::plan::Site;
use report::{self, Limitation, Report};

/// A program that is not traced any more; names are still to be looked up.
#[derive(Debug)]
pub struct FinishedProgram {
    pub(super) findings: Findings,
    pub(super) source: Source,
    pub(super) sites: Vec<Site>,
    pub(super) symbolizer: Symbolizer,
    pub(super) values: RetainedValues,
    pub(super) context: report::Context,
    pub(super) recorder: Option<Result<Recorder, RecordError>>,
    pub(super) process: format::Process,
    /// Participants of imprecise cycles, in a first pass.
    pub(super) suspects: Option<Suspects>,
}

/// Results of a program.
#[derive(Debug)]
pub struct ProgramReport {
    /// Findings and coverage; counts and coverage alone when nothing was checked.
    pub report: Report,
    /// Path of the recording and number of its events, if there was to be one.
    pub recorded: Option<Result<(PathBuf, EventNumber), RecordError>>,
    /// Result of a first pass, if it was to be one.
    pub first_pass: Option<FirstPassFile>,
}

impl FinishedProgram {
    /// Looks names up, and writes them to the recording.
    #[must_use]
    pub fn report(self) -> ProgramReport {
        let Self { findings, source, sites, symbolizer, values, .. } = self;
        let Self { mut context, recorder, process, suspects, .. } = self;
        let mut names = LiveNames::new(&source, &sites, &symbolizer, &values);
        for share in context.memory.iter_mut().flat_map(|memory| &mut memory.watched) {
            share.name = share.address.and_then(|address| names.memory(address, share.length));
        }
        let mut report = report::assemble(&findings, &mut names, context);
        let recorded = recorder.map(|recorder| {
            let recorder = recorder?;
            let path = recorder.path().to_owned();
            let events = recorder.finish(Some(&mut names), &process, &report)?;
            Ok((path, events))
        });
        if let Some(Err(error)) = &recorded {
            let error = RecordError::to_string(error);
            report.not_seen.limitations.push(Limitation::RecordingFailed { error });
        }
        let lost = report.counts.lost_events;
        let first_pass = suspects.map(|suspects| FirstPassFile::new(&suspects, &names, lost));
        ProgramReport { report, recorded, first_pass }
    }
}

/// Thread that looks up names for programs that are over, while others still run.
#[derive(Debug)]
pub(super) struct Reporting {
    finished: Sender<FinishedProgram>,
    thread: JoinHandle<Vec<ProgramReport>>,
}

impl Reporting {
    /// Starts the thread.
    pub(super) fn start() -> Result<Self, SystemError> {
        let (finished, received) = crossbeam_channel::unbounded();
        let work = move || received.iter().map(FinishedProgram::report).collect();
        Ok(Self { finished, thread: spawn("avtrace-reports", work)? })
    }

    /// Passes on a program that is over.
    pub(super) fn add(&self, program: FinishedProgram) {
        // A thread that has panicked receives nothing, and its panic is passed on in the end.
        let _ = self.finished.send(program);
    }

    /// Waits for the reports on all programs, in the order of their ends.
    pub(super) fn finish(self) -> Vec<ProgramReport> {
        drop(self.finished);
        joined(self.thread)
    }
}
