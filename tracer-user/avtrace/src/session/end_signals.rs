//! Signals that ask for the end of tracing processes that go on.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::{
    SigId,
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    low_level::{self, pipe},
};

use linux::cut::{self, Cut};

/// Request for the end, by a signal or by this process itself.
#[derive(Debug)]
pub struct EndSignals {
    asked: UnixStream,
    asker: UnixStream,
    cut: Cut,
    waiter: Mutex<Option<Waiter>>,
}

/// Thread that counts signals, and the handlers that wake it.
#[derive(Debug)]
struct Waiter {
    handlers: Vec<SigId>,
    signals: UnixStream,
    thread: JoinHandle<()>,
}

/// A way to ask for the end.
#[derive(Debug)]
pub struct EndAsker(UnixStream);

impl EndSignals {
    /// Installs the handlers. A second signal cuts the checking short, and a third one ends this process.
    pub fn install() -> io::Result<Self> {
        let (asked, asker) = UnixStream::pair()?;
        let (repeated, repeater) = UnixStream::pair()?;
        let mut handlers = Vec::new();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            handlers.push(pipe::register(signal, asker.try_clone()?)?);
            handlers.push(pipe::register(signal, repeater.try_clone()?)?);
        }
        let cut = Cut::default();
        let asked_for = cut.clone();
        let signals = repeated.try_clone()?;
        let insists = move || await_repetitions(&repeated, &asked_for);
        let thread = thread::Builder::new().name("avtrace-signals".to_owned()).spawn(insists)?;
        let waiter = Mutex::new(Some(Waiter { handlers, signals, thread }));
        Ok(Self { asked, asker, cut, waiter })
    }

    /// Removes the handlers and ends their thread, so that this process can fork. The signals are ignored from then on.
    pub fn uninstall(&self) {
        let waiter = self.waiter.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Waiter { handlers, signals, thread }) = waiter else { return };
        for handler in handlers {
            low_level::unregister(handler);
        }
        // Without it the thread would wait on, and this process would not fork.
        if signals.shutdown(Shutdown::Both).is_ok() {
            // It has no panic.
            let _ = thread.join();
        }
    }

    /// Returns the request to cut the checking short.
    #[must_use]
    pub const fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Returns what becomes readable once the end is asked for, and stays so.
    #[must_use]
    pub fn asked(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }

    /// Returns whether the end is asked for.
    pub fn is_asked(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(self.asked(), PollFlags::POLLIN)];
        Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
    }

    /// Returns a way to ask for the end.
    pub fn asker(&self) -> io::Result<EndAsker> {
        self.asker.try_clone().map(EndAsker)
    }
}

/// Reads a byte for each signal.
fn await_repetitions(mut signals: &UnixStream, cut: &Cut) {
    let mut signal = [0];
    for count in 1.. {
        if !matches!(signals.read(&mut signal), Ok(1)) {
            return;
        }
        match count {
            1 => {}
            2 => cut.ask(),
            _ => cut::exit(),
        }
    }
}

impl EndAsker {
    /// Asks for the end.
    pub fn ask(&mut self) {
        // Nobody reads it when the tracing ends already.
        let _ = self.0.write_all(&[0]);
    }
}
