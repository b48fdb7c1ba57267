//! Signals that ask for the end of tracing processes that go on.

use std::{
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    low_level::pipe,
};

/// Request for the end, by a signal or by this process itself.
#[derive(Debug)]
pub struct EndSignals {
    asked: UnixStream,
    asker: UnixStream,
}

/// A way to ask for the end.
#[derive(Debug)]
pub struct EndAsker(UnixStream);

impl EndSignals {
    /// Installs the handlers.
    ///
    /// # Errors
    ///
    /// When they cannot be installed.
    pub fn install() -> io::Result<Self> {
        let (asked, asker) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            pipe::register(signal, asker.try_clone()?)?;
        }
        Ok(Self { asked, asker })
    }

    /// Returns what becomes readable once the end is asked for, and stays so.
    #[must_use]
    pub fn asked(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }

    /// Returns whether the end is asked for.
    ///
    /// # Errors
    ///
    /// Those of `poll`.
    pub fn is_asked(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(self.asked(), PollFlags::POLLIN)];
        Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
    }

    /// Returns a way to ask for the end.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn asker(&self) -> io::Result<EndAsker> {
        self.asker.try_clone().map(EndAsker)
    }
}

impl EndAsker {
    /// Asks for the end.
    pub fn ask(&mut self) {
        // Nobody reads it when the tracing ends already.
        let _ = self.0.write_all(&[0]);
    }
}
