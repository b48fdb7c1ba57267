//! Programs that are killed while they are held.

use std::io;

use super::Tracer;
use crate::in_process::error::InProcessError;
use linux::{
    proc,
    supervisor::{Ending, Event, Supervisor},
    tracee,
};

impl Tracer {
    /// Returns the end of the first program if it was killed where it stood, as this error of sharing memory says.
    pub fn end_if_killed(&mut self, error: &InProcessError) -> Option<Ending> {
        let InProcessError::System { error, .. } = error else { return None };
        self.end_if_gone(error)
    }

    /// Returns the end of the first program if a held thread has gone away, which it does when it is killed only.
    pub(super) fn end_if_gone(&mut self, error: &io::Error) -> Option<Ending> {
        if !proc::is_gone(error) {
            return None;
        }
        // Nothing waits without an end for a process that does not go.
        tracee::send_signal(self.first, libc::SIGKILL);
        while self.ending.is_none() {
            let event = self.supervisor.next_event().ok()?;
            self.handle(event).ok()?;
        }
        self.ending
    }
}

/// Kills a process, and waits for its end, which it returns.
pub(super) fn kill(supervisor: &mut Supervisor, process: u32) -> Option<Ending> {
    tracee::send_signal(process, libc::SIGKILL);
    let mut end = None;
    while !supervisor.is_empty()
        && let Ok(event) = supervisor.next_event()
    {
        if let Event::End { process: ended, ending } = event
            && ended == process
        {
            end = Some(ending);
        }
    }
    end
}
