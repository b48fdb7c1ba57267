//! Line on a terminal that says how the tracing of running processes goes, rewritten in place. Nothing of it goes
//! elsewhere: not to a file, not to a pipe.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printer::Printer;

/// Interval at which the line is written anew.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time for which the end waits for a reader of standard error.
const PATIENCE: Duration = Duration::from_secs(1);

/// Status of a tracing, and the line that shows it, if there is one.
#[derive(Clone, Debug)]
pub struct StatusLine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bar: ProgressBar,
    has_terminal: bool,
    printer: Printer,
    counts: Counts,
    has_begun: AtomicBool,
    /// Ends the thread that writes the line when it is dropped.
    writer: Mutex<Option<(Sender<()>, thread::JoinHandle<()>)>>,
}

/// Figures of the status so far.
#[derive(Debug, Default)]
struct Counts {
    events: AtomicU64,
    lost: AtomicU64,
    defects: AtomicU64,
}

impl StatusLine {
    /// Creates the line on standard error, if that is a terminal.
    #[must_use]
    pub fn on_terminal() -> Self {
        Self::new(stderr().is_terminal())
    }

    /// Creates a line that is never shown.
    #[must_use]
    pub fn hidden() -> Self {
        Self::new(false)
    }

    fn new(has_terminal: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        // The template is ours, so it is well-formed; it cuts the message to the width of the terminal.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Self(Arc::new(Shared {
            printer: Printer::default(),
            bar,
            has_terminal,
            counts: Counts::default(),
            has_begun: AtomicBool::new(false),
            writer: Mutex::new(None),
        }))
    }

    /// Has lines be printed by a thread from now on, so that who prints waits for nobody. Before this there is no
    /// thread, so that this process can fork.
    pub fn start_printer(&self) {
        let bar = self.0.bar.clone();
        self.0.printer.start(move |text| write_above(&bar, text));
    }

    /// Ends the thread that prints; who prints writes from now on. Returns whether it has ended.
    #[must_use]
    pub fn end_printer(&self) -> bool {
        self.0.printer.end(PATIENCE)
    }

    pub fn add(&self, events: u64, lost: u64) {
        let Counts { events: all_events, lost: all_lost, .. } = &self.0.counts;
        all_events.fetch_add(events, Ordering::Relaxed);
        all_lost.fetch_add(lost, Ordering::Relaxed);
    }

    /// Sets the number of defects that were found.
    pub fn set_defects(&self, count: u64) {
        self.0.counts.defects.store(count, Ordering::Relaxed);
    }

    /// Shows the line from now on: other lines go through [`print`](Self::print). Once.
    pub fn begin(&self) {
        if !self.0.has_terminal || self.0.has_begun.swap(true, Ordering::AcqRel) {
            return;
        }
        self.0.bar.set_draw_target(ProgressDrawTarget::stderr());
        let (end, ended) = bounded(0);
        let (shared, begun) = (Arc::clone(&self.0), Instant::now());
        let thread = thread::Builder::new().name("avtrace-status".to_owned());
        // Without a thread there is no line, which is no reason to end.
        let writer = thread.spawn(move || shared.write(begun, &ended)).ok();
        *self.writer() = writer.map(|writer| (end, writer));
    }

    /// Prints whole lines on standard error, above the line if there is one. Once the
    /// [printer has started](Self::start_printer), and before the [end](Self::end), it does not wait for whoever reads
    /// them.
    pub fn print(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(text) = self.0.printer.print(text.to_owned()) {
            write_above(&self.0.bar, &text);
        }
    }

    /// Prints what has not been printed, as far as somebody reads it soon, and removes the line.
    pub fn end(&self) {
        if !self.0.printer.end(PATIENCE) {
            // Whoever holds the line up holds that thread up as well.
            return;
        }
        let writer = self.writer().take();
        if let Some((end, writer)) = writer {
            drop(end);
            // Its panic has been printed.
            let _ = writer.join();
        }
        self.0.bar.finish_and_clear();
    }

    fn writer(&self) -> std::sync::MutexGuard<'_, Option<(Sender<()>, thread::JoinHandle<()>)>> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes whole lines on standard error, above the line of a bar.
fn write_above(bar: &ProgressBar, text: &str) {
    // Nothing is left to do when standard error is closed.
    bar.suspend(|| drop(stderr().write_all(text.as_bytes())));
}

impl Shared {
    /// Writes the line until the end.
    fn write(&self, begun: Instant, ended: &Receiver<()>) {
        let mut last = (begun, 0);
        loop {
            let events = self.counts.events.load(Ordering::Relaxed);
            let now = Instant::now();
            let rate = rate(events.saturating_sub(last.1), now - last.0);
            last = (now, events);
            self.bar.set_message(self.counts.line(rate, now - begun));
            match ended.recv_timeout(INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

impl Counts {
    /// Returns the line for these figures.
    fn line(&self, rate: u64, elapsed: Duration) -> String {
        let count = |count: &AtomicU64| HumanCount(count.load(Ordering::Relaxed));
        let (events, lost, defects) =
            (count(&self.events), count(&self.lost), self.defects.load(Ordering::Relaxed));
        let seconds = elapsed.as_secs();
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let found = if defects == 1 { "defect" } else { "defects" };
        format!(
            "avtrace: {hours:02}:{minutes:02}:{seconds:02}, {events} events ({} a second), {lost} lost, {defects} \
             {found} so far",
            HumanCount(rate)
        )
    }
}

/// Returns the events in a second.
fn rate(events: u64, time: Duration) -> u64 {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    events.saturating_mul(1000).checked_div(milliseconds).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_all_figures() {
        let status = StatusLine::hidden();
        status.add(1_234_567, 3);
        status.add(1, 0);
        status.set_defects(1);
        assert_eq!(
            status.0.counts.line(2000, Duration::from_secs(3661)),
            "avtrace: 01:01:01, 1,234,568 events (2,000 a second), 3 lost, 1 defect so far"
        );
        assert_eq!(rate(500, Duration::from_millis(250)), 2000);
        assert_eq!(rate(500, Duration::ZERO), 0);
    }

    #[test]
    fn a_line_that_is_hidden_has_no_thread() {
        let status = StatusLine::hidden();
        status.begin();
        assert!(status.writer().is_none());
        status.end();
    }
}
