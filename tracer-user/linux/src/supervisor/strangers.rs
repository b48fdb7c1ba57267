//! Threads of traced processes that the kernel does not announce: they were created with `CLONE_UNTRACED`.

use std::io;

use super::{
    Supervisor, ThreadState, TracedThread, request,
    seize::{is_worker, needs_no_tracer},
};
use crate::proc;

impl Supervisor {
    /// Returns a thread of a process that should be traced, but is not.
    #[must_use]
    pub fn stranger(&self, process: u32) -> Option<u32> {
        // A process that has ended has no threads.
        let threads = proc::threads(process).unwrap_or_default();
        // A thread that the kernel is yet to announce has this tracer from its first instruction on.
        threads.into_iter().find(|&thread| {
            let id = thread as i32;
            !self.threads.contains_key(&id)
                && !is_worker(process, thread)
                && !needs_no_tracer(process, thread)
        })
    }

    /// Traces the threads of a frozen process that should be traced and are not, and stops them.
    ///
    /// # Errors
    ///
    /// When one may not be traced.
    pub fn adopt_strangers(&mut self, process: u32) -> io::Result<()> {
        while let Some(thread) = self.stranger(process) {
            match request::seize(thread as i32, self.options) {
                Ok(()) => {
                    let state = TracedThread::new(process as i32, ThreadState::Running);
                    self.threads.insert(thread as i32, state);
                    tracing::info!(process, thread, "a thread was seized that was never announced");
                    self.freeze(process)?;
                }
                Err(error) if proc::is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
