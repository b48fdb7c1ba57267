//! End of a traced program, and its description for reports and recordings.

use checker::format;

use super::program_id::ProgramId;
use linux::tracee::Ending;
use report::Subject;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The process ended.
    Ended(Ending),
    /// The process has replaced it.
    Replaced,
    /// The program still ran when the tracing ended.
    Running,
}

impl ProgramEnd {
    /// Returns the exit status or the signal of the process, as far as it has ended.
    const fn exit_code_and_signal(self) -> (Option<i32>, Option<i32>) {
        match self {
            Self::Ended(Ending::Exited(status)) => (Some(status), None),
            Self::Ended(Ending::Killed(signal)) => (None, Some(signal)),
            Self::Replaced | Self::Running => (None, None),
        }
    }
}

/// Returns the description of the process for a report.
pub(super) fn subject(id: &ProgramId, end: ProgramEnd) -> Subject {
    let (exit_code, signal) = end.exit_code_and_signal();
    Subject::Process {
        pid: id.pid,
        argv: id.argv.clone(),
        exit_code,
        signal,
        parent: id.parent,
        program: id.exec_generation,
        replaced: end == ProgramEnd::Replaced,
        name: None,
    }
}

/// Returns the description of the process for a recording.
pub(super) fn recorded_process(id: &ProgramId, end: ProgramEnd) -> format::Process {
    let (exit_code, signal) = end.exit_code_and_signal();
    format::Process { pid: Some(id.pid), argv: id.argv.clone(), exit_code, signal }
}
