//! Progress bar for input that takes long to read. It is shown on a terminal only.

use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time before the bar is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Progress of reading one input.
#[derive(Debug)]
pub struct Progress(Option<Bar>);

#[derive(Debug)]
struct Bar {
    /// Bar, updated from the beginning, so that its rate is right once it is shown.
    bar: ProgressBar,
    /// Time at which to show it; `None` once it is shown.
    from: Option<Instant>,
}

impl Progress {
    /// Creates the bar for an input of `length` bytes, if that is known, on standard error if that is a
    /// terminal.
    #[must_use]
    pub fn on_terminal(name: &str, length: Option<u64>) -> Self {
        Self(stderr().is_terminal().then(|| Bar {
            bar: bar(&crate::report::printable(name), length),
            from: Some(Instant::now() + PATIENCE),
        }))
    }

    /// Creates a bar that is never shown.
    #[must_use]
    pub fn hidden() -> Self {
        Self(None)
    }

    /// Notes that `position` bytes have been read, and `events` events in them.
    pub fn advance(&mut self, position: u64, events: u64) {
        let Some(Bar { bar, from }) = &mut self.0 else { return };
        if from.is_some_and(|from| Instant::now() >= from) {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            *from = None;
        }
        if from.is_none() {
            bar.set_message(format!("{} M events", events / 1_000_000));
        }
        bar.set_position(position);
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Some(Bar { bar, .. }) = self.0 {
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
    bar.set_draw_target(ProgressDrawTarget::hidden());
    // The template is ours, so it is well-formed; a plain bar is no loss.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(crate::report::cut_middle(name, 30).into_owned());
    bar
}
