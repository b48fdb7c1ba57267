//! Result of a run.

use super::{
    error::RunError,
    finished_program::ProgramReport,
    launching::first_program,
    options::RunOptions,
    program_end::{self, ProgramEnd},
    record::Recorder,
    signals::ForwardedSignals,
};
use crate::{first_pass::FirstPassFile, names};
use linux::{ids::NsPid, tracee::Ending};
use report::{self, Limitation, NotSeen};

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub ending: Ending,
    /// Each program that was traced, in the order of their ends: more than one when the process replaced its program,
    /// or children were followed.
    pub programs: Vec<ProgramReport>,
    /// Has signals end this process meanwhile: a report may wait for its reader without end.
    pub signals: Option<ForwardedSignals>,
}

impl Outcome {
    /// Leaves out the programs of a script in which no region ran: most are the shell's tools. Without any other the
    /// first process's last program stays.
    #[must_use]
    pub(super) fn without_idle_programs(mut self) -> Self {
        let is_checked = |ProgramReport { report, .. }: &ProgramReport| {
            report.counts.transactions > report.counts.unary_transactions || report.has_findings()
        };
        if self.programs.iter().any(is_checked) {
            self.programs.retain(is_checked);
        } else {
            let is_last = |program: &ProgramReport| {
                matches!(
                    program.report.subject,
                    report::Subject::Process { parent: None, replaced: false, .. }
                )
            };
            let last = self.programs.iter().position(is_last);
            self.programs = last.map(|at| self.programs.swap_remove(at)).into_iter().collect();
        }
        self
    }
}

/// Returns the outcome for a program that ran nothing of its own. Where the dynamic linker refused it, the linker has
/// printed the reason; where a signal killed it, the report says so as for any program.
pub(super) fn ended_early(
    options: &RunOptions,
    pid: u32,
    ending: Ending,
) -> Result<Outcome, RunError> {
    let limitations = vec![Limitation::EndedBeforeEntry];
    let (id, end) = (first_program(options, pid, NsPid(pid)), ProgramEnd::Ended(ending));
    let context = report::Context {
        not_seen: NotSeen { limitations, ..NotSeen::default() },
        ..report::Context::new(program_end::subject(&id, end))
    };
    let findings = checker::finding::Findings::default();
    let report = report::assemble(&findings, &mut names::NoNames, context);
    let process = program_end::recorded_process(&id, end);
    let recorded = match &options.record {
        Some(to) => {
            let recorder = Recorder::create(to, 0, &process)?;
            let path = recorder.path().to_owned();
            let recorded = recorder.finish(None, &process, &report);
            Some(recorded.map(|events| (path, events)))
        }
        None => None,
    };
    let first_pass = options.first_pass.then(FirstPassFile::default);
    let programs = vec![ProgramReport { report, recorded, first_pass }];
    Ok(Outcome { ending, programs, signals: None })
}
