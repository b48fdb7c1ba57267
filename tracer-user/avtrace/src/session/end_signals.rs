//! Signals that ask for the end of tracing processes that go on.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    thread,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    low_level::pipe,
};

use linux::cut::{self, Cut};

/// Request for the end, by a signal or by this process itself.
#[derive(Debug)]
pub struct EndSignals {
    asked: UnixStream,
    asker: UnixStream,
    cut: Cut,
}

/// A way to ask for the end.
#[derive(Debug)]
pub struct EndAsker(UnixStream);

impl EndSignals {
    /// Installs the handlers. A second signal cuts the checking short, and a third one ends this process.
    pub fn install() -> io::Result<Self> {
        let (asked, asker) = UnixStream::pair()?;
        let (repeated, repeater) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            pipe::register(signal, asker.try_clone()?)?;
            pipe::register(signal, repeater.try_clone()?)?;
        }
        let cut = Cut::default();
        let asked_for = cut.clone();
        let insists = move || await_repetitions(&repeated, &asked_for);
        thread::Builder::new().name("avtrace-signals".to_owned()).spawn(insists)?;
        Ok(Self { asked, asker, cut })
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
