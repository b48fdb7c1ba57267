//! Reports on what was found so far, while programs run: when something new was found, and when a signal asks.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{end_signals::EndAsker, traced_program::TracedProgram};
use crate::{backend::Backend, report::Report};

/// Time between two looks at what is new, as a multiple of the time that the last one took: no more than this share of
/// the checker's time goes into it.
const PAUSE: u32 = 20;

/// Shortest time between two looks at what is new.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Occasion of a report on a program that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// Something was found since the last report.
    Found,
    /// A signal has asked for it.
    Asked,
}

/// Receiver of reports on programs that run. Returns whether the tracing is to go on.
pub type Receiver = Box<dyn FnMut(Occasion, Report) -> bool + Send>;

/// Reports while programs run.
pub struct LiveReports {
    receiver: Receiver,
    /// Set by a signal.
    is_asked_for: Arc<AtomicBool>,
    /// Asked when the receiver has enough.
    end: EndAsker,
    next_look: Instant,
}

impl fmt::Debug for LiveReports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LiveReports").finish_non_exhaustive()
    }
}

impl LiveReports {
    /// Creates the reports that `receiver` gets. `end` is asked for when it has enough.
    #[must_use]
    pub fn new(receiver: Receiver, is_asked_for: Arc<AtomicBool>, end: EndAsker) -> Self {
        Self { receiver, is_asked_for, end, next_look: Instant::now() }
    }

    /// Makes the reports that are due.
    pub fn tick(&mut self, programs: &mut [TracedProgram], backend: &Backend) {
        if self.is_asked_for.swap(false, Ordering::AcqRel) {
            for program in &mut *programs {
                self.pass(Occasion::Asked, program, backend);
            }
        }
        let started = Instant::now();
        if started < self.next_look {
            return;
        }
        for program in programs {
            if program.has_news() {
                self.pass(Occasion::Found, program, backend);
            }
        }
        self.next_look = Instant::now() + SHORTEST_PAUSE.max(started.elapsed() * PAUSE);
    }

    fn pass(&mut self, occasion: Occasion, program: &mut TracedProgram, backend: &Backend) {
        let goes_on =
            program.report_so_far(backend).is_none_or(|report| (self.receiver)(occasion, report));
        if !goes_on {
            self.end.ask();
        }
    }
}
