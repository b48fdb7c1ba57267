//! Threads of a run: one reads records, one checks them, and a third looks up names for programs that are over. The
//! thread that starts a pipeline holds the program meanwhile, or waits for its end.
//!
//! The courses of runs (`kernel_run`, `inline_run`, `attach_run`, `attach_inline`) differ in where records come from,
//! in the thread that plans, and in what ends the run. The rest is here, once.

use std::{sync::Arc, thread::JoinHandle};

use super::{
    error::RunError,
    options::RunOptions,
    processes::ProcessTracker,
    program_id::ProgramId,
    recording_numbers::RecordingNumbers,
    threads::{joined, spawn},
    traced_program::TracedProgram,
};
use crate::progress::Steps;
use capture::{
    backend::Backend,
    kernel::reader::{Batches, Reader},
};
use linux::cut::Cut;
use report::Limitation;

/// Threads that read and check the records of a run.
pub(super) struct Pipeline {
    reader: Reader,
    checker: JoinHandle<Result<ProcessTracker, RunError>>,
    cut: Cut,
}

impl Pipeline {
    /// Starts to check what a reader passes on. `track` runs in the checker's thread, and plans there if the caller has
    /// not done so. `kept` is dropped when the thread ends, after a panic as well, once its probes are detached.
    pub(super) fn start(
        reader: Reader,
        batches: Batches,
        cut: &Cut,
        kept: impl Send + 'static,
        track: impl FnOnce() -> Result<ProcessTracker, RunError> + Send + 'static,
    ) -> Result<Self, RunError> {
        let checker = spawn("avtrace-checker", move || {
            let _kept = kept;
            Ok(track()?.follow(batches))
        })?;
        Ok(Self { reader, checker, cut: cut.clone() })
    }

    /// Waits until all records are checked. Probes may record nothing any more.
    ///
    /// # Errors
    ///
    /// The error of the function that made the tracker.
    pub(super) fn finish(self) -> Result<ProcessTracker, RunError> {
        let undecodable = self.reader.finish();
        let mut tracker = joined(self.checker)?;
        let unread = Limitation::UndecodableRecords { count: undecodable };
        tracker.limit((undecodable > 0).then_some(unread));
        tracker.limit(self.cut.is_asked().then_some(Limitation::CutShort));
        Ok(tracker)
    }
}

/// Plans and attaches everything to the first program of a process, and starts its recording with the next number.
pub(super) fn prepare_first(
    options: &Arc<RunOptions>,
    backend: &mut Backend,
    id: ProgramId,
    numbers: &RecordingNumbers,
) -> Result<TracedProgram, RunError> {
    let mut first = TracedProgram::prepare(options, backend, id, true, &Steps::on_terminal())?;
    first.start_recorder(numbers.next());
    first.recorder_error().map_or(Ok(first), |error| Err(error.into()))
}
