//! Wait for the end of a tracing, whose reasons are descriptors that become readable.

use std::{io, os::fd::BorrowedFd, time::Instant};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// Waits until one of these is readable, or for this moment. Returns whether one is.
pub(super) fn await_end(readable: &[BorrowedFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    loop {
        let polled = |&descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let mut polled: Vec<PollFd<'_>> = readable.iter().map(polled).collect();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Longer than the kernel's longest wait: once more.
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut polled, timeout) {
            Ok(0) if until.is_some_and(|until| Instant::now() < until) => {}
            Err(Errno::EINTR) => {}
            Ok(readable) => return Ok(readable > 0),
            Err(error) => return Err(error.into()),
        }
    }
}
