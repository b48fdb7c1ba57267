//! Progress of what takes long, for people: printed on standard error, if that is a terminal, and only once it has
//! taken a while.

use std::{
    fmt,
    io::{IsTerminal as _, Write, stderr},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use report::{cut_middle, printable};

/// Time before the steps of a start are printed.
const START_PATIENCE: Duration = Duration::from_secs(2);

/// Time before a bar is shown.
const BAR_PATIENCE: Duration = Duration::from_secs(1);

/// Steps of a start: the code of large programs is read before they run.
///
/// Each is a whole line, not a bar: programs that run already, signals and errors may end a start at any time, and find
/// no half a line. The thread that prints has ended when this is dropped, so nothing is printed afterwards.
#[derive(Debug)]
pub struct Steps(Option<(Sender<String>, JoinHandle<()>)>);

impl Steps {
    /// Creates messages on standard error, if that is a terminal.
    #[must_use]
    pub fn on_terminal() -> Self {
        if stderr().is_terminal() { Self::to(stderr(), START_PATIENCE) } else { Self::silent() }
    }

    /// Creates steps that are not printed.
    #[must_use]
    pub const fn silent() -> Self {
        Self(None)
    }

    /// Prints the present step when this much time has passed, and each further one.
    fn to(out: impl Write + Send + 'static, patience: Duration) -> Self {
        let from = Instant::now() + patience;
        let (sender, steps) = unbounded();
        let thread = thread::Builder::new().name("avtrace-progress".to_owned());
        // Without a thread there are no messages, which is no reason not to start.
        let started = thread.spawn(move || print(&steps, from, out));
        Self(started.ok().map(|thread| (sender, thread)))
    }

    /// Begins a step.
    pub fn step(&self, what: impl FnOnce() -> String) {
        if let Some((sender, _)) = &self.0 {
            // The thread receives until the sender is dropped.
            let _ = sender.send(what());
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

fn print(steps: &Receiver<String>, from: Instant, mut out: impl Write) {
    let mut present = None;
    loop {
        match steps.recv_deadline(from) {
            Ok(step) => present = Some(step),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
    for step in present.into_iter().chain(steps) {
        // Nothing is left to do when the terminal is closed.
        let _ = writeln!(out, "avtrace: {step} ...");
    }
}

/// Bar for an input that is being read. It is removed when this is dropped.
#[derive(Debug)]
pub struct ReadBar(PatientBar);

impl ReadBar {
    /// Creates the bar for an input of `length` bytes, if that is known, on standard error if that is a terminal.
    #[must_use]
    pub fn on_terminal(name: &str, length: Option<u64>) -> Self {
        let template = match length {
            Some(_) => {
                "{prefix} [{wide_bar}] {percent}% of {total_bytes}, {msg}, {bytes_per_sec}, {eta} left"
            }
            None => "{prefix} {bytes}, {msg}, {bytes_per_sec}, {elapsed}",
        };
        Self(PatientBar::on_terminal(name, length, template))
    }

    /// Creates a bar that is never shown.
    #[must_use]
    pub fn hidden() -> Self {
        Self(PatientBar { bar: ProgressBar::hidden(), from: None })
    }

    /// Notes that `position` bytes have been read, and `events` events in them.
    pub fn advance(&mut self, position: u64, events: u64) {
        let bar = self.0.shown_if_due();
        if !bar.is_hidden() {
            bar.set_message(format!("{} M events", events / 1_000_000));
        }
        bar.set_position(position);
    }
}

/// Bar for runs of a program. It is removed when this is dropped.
#[derive(Debug)]
pub struct RunBar(PatientBar);

impl RunBar {
    /// Creates the bar for at most `limit` runs, on standard error if that is a terminal.
    #[must_use]
    pub fn on_terminal(name: &str, limit: u64) -> Self {
        let template = "{prefix} [{wide_bar}] {pos} of at most {len} runs, {rate}, {elapsed}";
        Self(PatientBar::on_terminal(name, Some(limit), template))
    }

    /// Notes that this many runs have begun.
    pub fn advance(&mut self, runs: u64) {
        self.0.shown_if_due().set_position(runs);
    }
}

/// Bar that is shown once it has lasted a while, and removed when it is dropped.
#[derive(Debug)]
struct PatientBar {
    /// Updated from the beginning, so that its rate is right once it is shown.
    bar: ProgressBar,
    /// Time at which to show it; `None` once it is shown, or if it never is.
    from: Option<Instant>,
}

impl PatientBar {
    fn on_terminal(name: &str, length: Option<u64>, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        // The template is ours, so it is well-formed; a plain bar is no loss.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
                // Formatting into a string does not fail.
                let _ = write!(text, "{:.1}/s", state.per_sec());
            };
            bar.set_style(style.progress_chars("=> ").with_key("rate", rate));
        }
        bar.set_prefix(cut_middle(&printable(name), 30).into_owned());
        Self { bar, from: stderr().is_terminal().then(|| Instant::now() + BAR_PATIENCE) }
    }

    /// Returns the bar, which is shown from now on if its time has come.
    fn shown_if_due(&mut self) -> &ProgressBar {
        if self.from.is_some_and(|from| Instant::now() >= from) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            self.from = None;
        }
        &self.bar
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::mpsc::{Sender, channel},
    };

    use super::*;

    struct Lines(Sender<String>);

    impl Write for Lines {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let text_length = text.len();
            self.0.send(String::from_utf8_lossy(text).into_owned()).map_err(io::Error::other)?;
            Ok(text_length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn steps_are_printed_once_patience_is_over() {
        let (sender, lines) = channel();
        let steps = Steps::to(Lines(sender), Duration::ZERO);
        let next_line = || {
            let mut line = String::new();
            while !line.ends_with('\n') {
                line += &lines.recv().expect("a line");
            }
            line
        };
        steps.step(|| "reading".to_owned());
        assert_eq!(next_line(), "avtrace: reading ...\n");
        steps.step(|| "attaching".to_owned());
        assert_eq!(next_line(), "avtrace: attaching ...\n");
        drop(steps);
        assert_eq!(lines.recv().ok(), None, "nothing more");
    }

    #[test]
    fn what_is_soon_over_is_not_printed() {
        let (sender, lines) = channel();
        let steps = Steps::to(Lines(sender), Duration::from_secs(3600));
        steps.step(|| "reading".to_owned());
        drop(steps);
        assert_eq!(lines.recv().ok(), None);
    }
}
