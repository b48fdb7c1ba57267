//! Requests to the tracer's thread and their answers, for the threads that ask it.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::shared::Request;
use linux::wake::Waker;

/// Means of asking the tracer's thread.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    requests: Sender<Request>,
    waker: Waker,
}

impl Asking {
    /// Connects the calling thread, which becomes the tracer, with the threads that ask it.
    pub(super) fn connect() -> (Self, Receiver<Request>) {
        let (requests, received) = crossbeam_channel::unbounded();
        (Self { requests, waker: Waker::of_this_thread() }, received)
    }

    pub(super) fn start(&self) {
        // Without a tracer it has ended.
        let _ = self.requests.send(Request::Start);
    }

    pub(super) fn is_of_this_thread(&self) -> bool {
        self.waker.is_of_this_thread()
    }

    /// Asks, and waits for the answer; `None` when the tracer has ended.
    pub(super) fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Option<T> {
        /// Interval of the signals that end the tracer's wait: it may have begun just after one.
        const AGAIN: Duration = Duration::from_millis(1);
        let (answer, answers) = bounded(1);
        self.requests.send(request(answer)).ok()?;
        loop {
            // A tracer that has ended answers no more.
            let _ = self.waker.wake();
            match answers.recv_timeout(AGAIN) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}
