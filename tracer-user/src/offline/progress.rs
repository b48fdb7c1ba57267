//! A progress bar on a terminal, for input that takes a while. Nothing is shown anywhere else.

use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is done sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far the reading of one input has got.
#[derive(Debug)]
pub struct Progress {
    /// When to begin to show a bar; `None` where nobody would see it.
    from: Option<Instant>,
    bar: Option<ProgressBar>,
    name: String,
    length: Option<u64>,
}

impl Progress {
    /// For an input of `length` bytes, if that is known, on standard error if that is a terminal.
    #[must_use]
    pub fn on_terminal(name: &str, length: Option<u64>) -> Self {
        let from = stderr().is_terminal().then(|| Instant::now() + PATIENCE);
        Self { from, bar: None, name: crate::report::printable(name).into_owned(), length }
    }

    /// Shows nothing.
    #[must_use]
    pub fn hidden() -> Self {
        Self { from: None, bar: None, name: String::new(), length: None }
    }

    /// `position` bytes have been read, and `events` events in them.
    pub fn advance(&mut self, position: u64, events: u64) {
        let Some(from) = self.from else { return };
        if self.bar.is_none() && Instant::now() < from {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| bar(&self.name, self.length));
        bar.set_position(position);
        bar.set_message(format!("{} M events", events / 1_000_000));
    }

    /// Takes the bar away.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(name: &str, length: Option<u64>) -> ProgressBar {
    let template = match length {
        Some(_) => {
            "{prefix} [{wide_bar}] {percent}% of {total_bytes}, {msg}, {bytes_per_sec}, {eta} left"
        }
        None => "{prefix} {bytes}, {msg}, {bytes_per_sec}, {elapsed}",
    };
    let bar = match length {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::no_length(),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    // The template is ours, so it is well-formed; a plain bar is no loss.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(crate::report::cut_middle(name, 30).into_owned());
    bar
}
