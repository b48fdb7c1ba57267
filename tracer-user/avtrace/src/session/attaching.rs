//! Parts that all attached processes share, whichever back end captures: the turns of attaching and the
//! announcement.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use super::{
    attach_error::AttachError, attach_target::AttachTarget, capture_end::CaptureEnd,
    end_signals::EndSignals, error::RunError, live_report::LiveReports, options::RunOptions,
    processes::ProcessTracker, recording_numbers::RecordingNumbers, traced_program::TracedProgram,
};
use crate::status_line::StatusLine;
use capture::backend::Backend;

/// Parts that are the same for all processes that are attached to.
pub(super) struct Shared {
    pub(super) options: Arc<RunOptions>,
    pub(super) end_signals: EndSignals,
    pub(super) numbers: RecordingNumbers,
    /// Held by the thread that reads a program's code and attaches to it: it takes much memory.
    pub(super) turn: Mutex<Turns>,
    /// Number of processes that are not attached to yet, and may be still.
    pub(super) pending: AtomicUsize,
    pub(super) status: StatusLine,
}

/// A process that is not attached to yet. When the last one of these is dropped, the status line begins, and all
/// output goes through it.
pub(super) struct Pending(Arc<Shared>);

impl Pending {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.0.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.status.begin();
        }
    }
}

/// Turns of attaching to one process after the other.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// A process is attached to.
    pub(super) has_begun: bool,
}

impl Shared {
    /// Waits for the turn to attach to a process.
    ///
    /// # Errors
    ///
    /// When the end was asked for meanwhile, unless it is the first one, which has a report in any case.
    pub(super) fn turn(&self, pid: u32) -> Result<MutexGuard<'_, Turns>, RunError> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.has_begun
            && self.end_signals.is_asked().map_err(RunError::system("cannot wait for the end"))?
        {
            return Err(AttachError::EndedBefore { pid }.into());
        }
        Ok(turn)
    }

    /// Starts to track what a process does, until the end of the capture is asked for.
    pub(super) fn track(
        &self,
        backend: Backend,
        first: TracedProgram,
        end: CaptureEnd,
        live_reports: LiveReports,
    ) -> Result<ProcessTracker, RunError> {
        let tracker = ProcessTracker::new(&self.options, backend, first)?;
        Ok(tracker.until(end).with_reports(live_reports).with_numbers(self.numbers.clone()))
    }
}

/// Announces that the process is traced from here on.
pub(super) fn announce(target: &AttachTarget, argv: &[String], status: &StatusLine) {
    if target.quiet {
        return;
    }
    let pid = target.pid;
    let command = argv.join(" ");
    let command = report::printable(&command);
    let (command, until) = (report::cut_message(&command), described_end(target));
    status.print(&format!("avtrace: attached to process {pid} (`{command}`) {until}\n"));
    if target.is_stopped() {
        status.print(&format!(
            "avtrace: process {pid} is stopped, and records nothing before it goes on (`kill -CONT {pid}`)\n"
        ));
    }
}

/// Returns the end of the tracing, in words.
fn described_end(target: &AttachTarget) -> String {
    let duration = target.duration.map(|duration| format!("for {duration:?}; "));
    format!("{}Ctrl-C detaches", duration.unwrap_or_else(|| "until it ends; ".to_owned()))
}
