//! Stops of whole processes: no thread of a frozen one runs code of the program.

use std::io;

use super::{State, Supervisor, request};
use crate::sys::status::wait_for_any;

impl Supervisor {
    /// Stops all threads of a process. Events that come meanwhile are returned later by
    /// [`next_event`](Self::next_event).
    ///
    /// One that waits in the kernel for a child that shares its memory does not stop, and runs no code either: it stops
    /// on its way out.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn freeze(&mut self, process: u32) -> io::Result<()> {
        let process = process as i32;
        self.frozen.insert(process);
        // Those that a thread creates on its way to the stop are held anyway.
        for (&id, thread) in self.threads.iter().filter(|(_, thread)| thread.process == process) {
            if thread.state == State::Running {
                request::interrupt(id)?;
            }
        }
        while self.runs(process) {
            // A signal to this thread is noticed by whoever has sent it.
            if let Some((id, status)) = wait_for_any()? {
                self.take(id, status)?;
            }
        }
        Ok(())
    }

    /// Returns whether a process is frozen.
    #[must_use]
    pub fn is_frozen(&self, process: u32) -> bool {
        self.frozen.contains(&(process as i32))
    }

    fn runs(&self, process: i32) -> bool {
        let mut threads = self.threads.values().filter(|thread| thread.process == process);
        threads.any(|thread| {
            // One that ends runs no code either; a main thread is not reported before the others have ended.
            thread.state == State::Running && !thread.is_in_vfork && !thread.has_ended
        })
    }

    /// Lets all threads of a frozen process go on, but those of events that have not been returned.
    ///
    /// # Errors
    ///
    /// When ptrace fails.
    pub fn thaw(&mut self, process: u32) -> io::Result<()> {
        self.frozen.remove(&(process as i32));
        let mut waiting: Vec<i32> = self.pending.iter().flat_map(|event| event.threads()).collect();
        waiting.extend(&self.held);
        waiting.extend(self.expected.values().map(|birth| birth.parent));
        for id in self.threads(process).into_iter().map(u32::cast_signed) {
            if !waiting.contains(&id) {
                self.go_on(id)?;
            }
        }
        Ok(())
    }
}
