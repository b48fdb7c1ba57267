//! Reports on running programs: after new findings, and when a signal asks.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{end_signals::EndAsker, traced_program::TracedProgram};
use crate::status_line::StatusLine;
use capture::backend::Backend;
use report::Report;

/// Time between two looks at what is new, as a multiple of the time that the last one took: no more than this share of
/// the checker's time goes into it.
const PAUSE: u32 = 20;

/// Shortest time between two looks at what is new.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Interval at which the progress is noted.
const PROGRESS: Duration = Duration::from_millis(250);

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
    progress: Progress,
}

/// Progress of one session, as the status has it.
struct Progress {
    status: StatusLine,
    /// Number of events and of lost ones that the status has.
    events: u64,
    lost: u64,
    next: Instant,
}

impl fmt::Debug for LiveReports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LiveReports").finish_non_exhaustive()
    }
}

impl LiveReports {
    /// Creates the reports that `receiver` gets. `end` is asked for when it has enough.
    #[must_use]
    pub fn new(
        receiver: Receiver,
        is_asked_for: Arc<AtomicBool>,
        end: EndAsker,
        status: StatusLine,
    ) -> Self {
        let now = Instant::now();
        let progress = Progress { status, events: 0, lost: 0, next: now };
        Self { receiver, is_asked_for, end, next_look: now, progress }
    }

    /// Makes the reports that are due.
    pub fn tick(&mut self, programs: &mut [TracedProgram], backend: &Backend) {
        if self.is_asked_for.swap(false, Ordering::AcqRel) {
            for program in &mut *programs {
                self.pass(Occasion::Asked, program, backend);
            }
        }
        let started = Instant::now();
        self.progress.tick(started, programs, backend);
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

impl Progress {
    /// Adds the events since the last call to the status line, some times a second.
    fn tick(&mut self, now: Instant, programs: &[TracedProgram], backend: &Backend) {
        if now < self.next {
            return;
        }
        self.next = now + PROGRESS;
        let events: u64 = programs.iter().map(TracedProgram::events).sum();
        let lost = backend
            .lost()
            .map_or(self.lost, |lost| lost.iter().map(|(_, count)| count).sum::<u64>());
        self.status.add(events.saturating_sub(self.events), lost.saturating_sub(self.lost));
        (self.events, self.lost) = (events, lost);
    }
}
