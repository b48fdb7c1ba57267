//! Progress messages of a slow start: the code of large programs is read before they run. Printed to a terminal only,
//! and only when it takes long.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Time without a message: shorter starts print none.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// Present step.
pub struct Progress(Option<Arc<Shared>>);

struct Shared {
    step: Mutex<Step>,
    changed: Condvar,
}

#[derive(Default)]
struct Step {
    what: String,
    is_told: bool,
    is_over: bool,
}

impl Progress {
    /// Creates messages on standard error, if that is a terminal.
    #[must_use]
    pub fn on_terminal() -> Self {
        if io::stderr().is_terminal() { Self::to(io::stderr(), SILENT_FOR) } else { Self::silent() }
    }

    /// Says nothing.
    #[must_use]
    pub const fn silent() -> Self {
        Self(None)
    }

    /// Says what is being done when this much time has passed, and each further step.
    fn to(mut out: impl Write + Send + 'static, patience: Duration) -> Self {
        let shared = Arc::new(Shared { step: Mutex::default(), changed: Condvar::new() });
        let from = Instant::now() + patience;
        let teller = Arc::clone(&shared);
        let print = move || {
            let mut step = teller.step();
            while !step.is_over {
                let left = from.saturating_duration_since(Instant::now());
                let is_new = !step.is_told && !step.what.is_empty();
                step = if left.is_zero() && is_new {
                    // Nothing is left to do when the terminal is closed.
                    let _ = writeln!(out, "avtrace: {} ...", step.what);
                    step.is_told = true;
                    step
                } else if left.is_zero() {
                    teller.changed.wait(step).unwrap_or_else(PoisonError::into_inner)
                } else {
                    let waited = teller.changed.wait_timeout(step, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                };
            }
        };
        // Without a thread there are no messages, which is no reason not to start.
        let started = thread::Builder::new().name("avtrace-progress".to_owned()).spawn(print);
        Self(started.ok().map(|_| shared))
    }

    /// This is done from now on.
    pub fn step(&self, what: impl FnOnce() -> String) {
        if let Some(shared) = &self.0 {
            *shared.step() = Step { what: what(), ..Step::default() };
            shared.changed.notify_one();
        }
    }
}

impl Shared {
    fn step(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.step().is_over = true;
            shared.changed.notify_one();
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Progress").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

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
    fn steps_are_told_once_patience_is_over() {
        let (sender, lines) = channel();
        let progress = Progress::to(Lines(sender), Duration::ZERO);
        let next_line = || {
            let mut line = String::new();
            while !line.ends_with('\n') {
                line += &lines.recv().expect("a line");
            }
            line
        };
        progress.step(|| "reading".to_owned());
        assert_eq!(next_line(), "avtrace: reading ...\n");
        progress.step(|| "attaching".to_owned());
        assert_eq!(next_line(), "avtrace: attaching ...\n");
        drop(progress);
        assert_eq!(lines.recv().ok(), None, "nothing more");
    }

    #[test]
    fn what_is_soon_over_is_not_told() {
        let (sender, lines) = channel();
        let progress = Progress::to(Lines(sender), Duration::from_secs(3600));
        progress.step(|| "reading".to_owned());
        drop(progress);
        assert_eq!(lines.recv().ok(), None);
    }
}
