//! Lines for standard error, written by a thread of their own: whoever prints does not wait for a pipe that nobody
//! reads, or for a terminal that is held.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

/// Number of texts that wait to be written.
const WAITING: usize = 256;

/// Queue of texts, and the thread that writes them once it is started.
#[derive(Debug, Default)]
pub struct Printer {
    /// `None` before it is started, and once it has ended: then who prints writes.
    texts: Mutex<Option<Sender<String>>>,
    /// Disconnected when all is written; without a value before it is started.
    written: OnceLock<Receiver<()>>,
    /// Number of texts for which there was no room.
    lost: Arc<AtomicU64>,
}

impl Printer {
    /// Starts the thread, once, which writes by `write`. Without a thread who prints writes.
    pub fn start(&self, mut write: impl FnMut(&str) + Send + 'static) {
        let (texts, waiting) = bounded::<String>(WAITING);
        let (writing, written) = bounded(0);
        if self.written.set(written).is_err() {
            return;
        }
        let thread = thread::Builder::new().name("avtrace-printer".to_owned());
        let started = thread.spawn({
            let lost = Arc::clone(&self.lost);
            move || {
                let _writing: Sender<()> = writing;
                for text in waiting {
                    write(&text);
                    let count = lost.swap(0, Ordering::Relaxed);
                    if count > 0 {
                        write(&format!(
                            "avtrace: warning: {count} messages were not printed, as nobody has read standard error: \
                             the report has all\n"
                        ));
                    }
                }
            }
        });
        *self.texts() = started.is_ok().then_some(texts);
    }

    /// Has a text be written later. Returns it if it is to be written by who prints.
    pub fn print(&self, text: String) -> Option<String> {
        let texts = self.texts();
        let Some(sender) = &*texts else { return Some(text) };
        match sender.try_send(text) {
            Ok(()) => None,
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(TrySendError::Disconnected(text)) => Some(text),
        }
    }

    /// Ends the thread once it has written all texts, for which this waits so long. Returns whether it has.
    pub fn end(&self, patience: Duration) -> bool {
        drop(self.texts().take());
        let Some(written) = self.written.get() else { return true };
        written.recv_timeout(patience).is_err_and(|error| error.is_disconnected())
    }

    fn texts(&self) -> MutexGuard<'_, Option<Sender<String>>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_prints_does_not_wait_and_lost_texts_are_counted() {
        let (go_on, may_write) = bounded::<()>(0);
        let (writing, is_writing) = bounded::<()>(1);
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let printer = Printer::default();
        assert_eq!(printer.print("early".to_owned()), Some("early".to_owned()), "no thread yet");
        printer.start({
            let seen = Arc::clone(&seen);
            move |text| {
                let _ = writing.send(());
                // Once nobody holds it back any more it is disconnected.
                let _ = may_write.recv();
                seen.lock().expect("the texts").push(text.to_owned());
            }
        });
        assert_eq!(printer.print("first".to_owned()), None);
        is_writing.recv().expect("it writes");
        for number in 0..WAITING + 3 {
            assert_eq!(printer.print(number.to_string()), None);
        }
        assert!(!printer.end(Duration::ZERO), "it waits still");
        assert_eq!(printer.print("later".to_owned()), Some("later".to_owned()));
        drop((go_on, is_writing));
        assert!(printer.end(Duration::from_secs(60)));
        let seen = seen.lock().expect("the texts");
        assert_eq!((seen.len(), &*seen[0], &*seen[2]), (WAITING + 2, "first", "0"));
        assert!(seen[1].contains("3 messages were not printed"), "{}", seen[1]);
        assert_eq!(seen[WAITING + 1], (WAITING - 1).to_string());
        printer.start(|_| panic!("it has ended"));
        assert_eq!(printer.print("last".to_owned()), Some("last".to_owned()));
    }

    #[test]
    fn one_that_was_not_started_ends() {
        assert!(Printer::default().end(Duration::ZERO));
    }
}
