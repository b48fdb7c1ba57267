//! Results of a program: its findings and coverage once nothing of it is traced any more, then its report.

use std::path::PathBuf;

use checker::{event::EventNumber, finding::Findings, format};

use super::{ProgramEnd, ProgramId, TracedProgram};
use crate::{
    kernel::Kernel,
    names::live::LiveNames,
    report::{self, Limitation, NotSeen, Report, Subject, UntracedProcess},
    session::{
        coverage::{
            accesses,
            limitations::{lost_since, not_seen, unprobed, unrecorded_hits},
        },
        record::{RecordError, Recorder},
        traps::Known,
    },
    sys::tracee::Ending,
};

/// A program that is not traced any more; names are still to be looked up.
#[derive(Debug)]
pub struct FinishedProgram {
    findings: Findings,
    names: LiveNames,
    context: report::Context,
    recorder: Option<Result<Recorder, RecordError>>,
    process: format::Process,
}

/// Results of a program.
#[derive(Debug)]
pub struct ProgramReport {
    /// Findings and coverage; counts and coverage alone when nothing was checked.
    pub report: Report,
    /// Path of the recording and number of its events, if there was to be one.
    pub recorded: Option<Result<(PathBuf, EventNumber), RecordError>>,
}

impl TracedProgram {
    /// Ends it. Nothing of it may be detached before.
    #[must_use]
    pub fn finish(mut self, kernel: &mut Kernel, end: ProgramEnd) -> FinishedProgram {
        self.flush(kernel);
        let lost = lost_since(self.lost_before, kernel.lost());
        self.limitations.extend(lost.as_ref().err().cloned());
        let process = self.process(end);
        let mut watched = Vec::new();
        if let Some(controller) = self.controller.take() {
            let (over_budget, shares) = controller.finish(kernel, &self.plan.access_groups);
            self.limitations.extend(over_budget);
            watched = shares;
        }
        let memory = accesses::memory(&self.plan.access_groups, &watched);
        self.summary.busiest = self.busiest_function();
        let trap = self.explain_traps(kernel, end);
        let Self {
            id,
            source,
            code,
            plan,
            options,
            skipped,
            mut summary,
            mut limitations,
            values,
            ..
        } = self;
        if plan.sees_memory {
            let (allocations, frees) = source.memory().calls();
            (summary.allocations, summary.frees) = (Some(allocations), Some(frees));
        }
        if id.parent.is_none()
            && let Ok(lost) = &lost
        {
            limitations.extend(unrecorded_hits(kernel, &source, lost));
        }
        limitations.extend(plan.unmatched.iter().map(|(_, error)| error.into()));
        // Of one that only starts another, as `env` does, there is nothing to say.
        if end == ProgramEnd::Replaced {
            let shares_memory =
                Limitation::UntracedProcess { reason: UntracedProcess::SharesMemory };
            limitations.retain(|limitation| *limitation != shares_memory);
        } else if let Some(program) = plan.stripped.clone() {
            limitations.push(Limitation::StrippedProgram { program });
        }
        if matches!(end, ProgramEnd::Ended(_)) && !source.threads().has_seen_exit() {
            limitations.push(Limitation::NothingRecorded);
        }
        if end == ProgramEnd::Running {
            limitations.push(Limitation::StillRunning);
        }
        limitations.sort_by_cached_key(Limitation::to_string);
        limitations.dedup();
        let findings = match (self.checker, &self.recorder) {
            (Some(mut checker), _) => checker.finish(),
            (None, Some(Ok(recorder))) => Findings::from_counts(recorder.counts()),
            (None, _) => Findings::default(),
        };
        let context = report::Context {
            not_seen: NotSeen {
                unprobed_calls: (!plan.access_groups.is_empty()).then(|| unprobed(&plan.uncovered)),
                ..not_seen(
                    &source,
                    code.symbolizer(),
                    lost.as_ref().map_or(&[], |lost| &lost[..]),
                    skipped,
                    limitations,
                )
            },
            summary: summary.with_elapsed(self.started.elapsed()),
            memory,
            trap,
            nesting: options.checker.map(|options| options.regions).unwrap_or_default(),
            ..report::Context::new(subject(&id, end))
        };
        let names = LiveNames::new(source, plan.sites, code.into_symbolizer(), values);
        FinishedProgram { findings, names, context, recorder: self.recorder, process }
    }

    /// Returns the cause of a death by `SIGTRAP`. Adds a limitation for the signals that the process handled.
    fn explain_traps(&mut self, kernel: &Kernel, end: ProgramEnd) -> Option<report::TrapDeath> {
        let code = Known {
            symbolizer: self.code.symbolizer(),
            probes: &self.probes,
            // Child processes inherit none.
            has_watchpoints: self.id.parent.is_none() && kernel.has_watchpoints(),
        };
        self.limitations.extend(self.traps.handled(&code));
        (end == ProgramEnd::Ended(Ending::Killed(libc::SIGTRAP))).then(|| self.traps.death(&code))
    }

    /// Returns the busiest region, if it is a function: a region by markers is intended.
    fn busiest_function(&self) -> Option<report::Busiest> {
        let (region, events) = self.busiest.found()?;
        let (name, _) = self.source.regions().name(region)?;
        let is_function = self.plan.functions.iter().any(|function| function.name == name);
        is_function.then(|| report::Busiest { region: name.to_owned(), events })
    }
}

impl FinishedProgram {
    /// Looks names up, and writes them to the recording.
    #[must_use]
    pub fn report(self) -> ProgramReport {
        let Self { findings, mut names, mut context, recorder, process } = self;
        for share in context.memory.iter_mut().flat_map(|memory| &mut memory.watched) {
            share.name = share.address.and_then(|address| names.memory(address, share.length));
        }
        let report = report::assemble(&findings, &mut names, context);
        let recorded = recorder.map(|recorder| {
            let recorder = recorder?;
            let path = recorder.path().to_owned();
            let events = recorder.finish(Some(&mut names), &process, &report.not_seen)?;
            Ok((path, events))
        });
        ProgramReport { report, recorded }
    }
}

/// Returns the description of the process for a report.
pub(in crate::session) fn subject(id: &ProgramId, end: ProgramEnd) -> Subject {
    let (exit_code, signal) = exit_code_and_signal(end);
    Subject::Process {
        pid: id.pid,
        argv: id.argv.clone(),
        exit_code,
        signal,
        parent: id.parent,
        program: id.exec_generation,
        replaced: end == ProgramEnd::Replaced,
    }
}

pub(in crate::session) const fn exit_code_and_signal(
    end: ProgramEnd,
) -> (Option<i32>, Option<i32>) {
    match end {
        ProgramEnd::Ended(Ending::Exited(status)) => (Some(status), None),
        ProgramEnd::Ended(Ending::Killed(signal)) => (None, Some(signal)),
        ProgramEnd::Replaced | ProgramEnd::Running => (None, None),
    }
}
