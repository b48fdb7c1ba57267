//! Probes in a process, for the thread that plans: stops and state of the process. What is written to it is in
//! `attach`.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use abi::{CLASSES, Class};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use inline::clock::ClockChoice;
use symbolize::ProcessAddr;

use super::{
    error::InProcessError,
    libraries,
    shared::{Program, Request, Shared},
};
use crate::{
    kernel::{Lost, ProbePoint},
    sys::wake::Waker,
};

/// Probes in a process, as the thread that plans them has them.
#[derive(Debug)]
pub struct InProcess {
    shared: Arc<Shared>,
    requests: Sender<Request>,
    waker: Waker,
    /// Next instructions of the threads, which are held or stand at the entry point.
    pub(super) places: Vec<u64>,
    /// Number of modules of the program in which code that sets the GS base was looked for.
    pub(super) modules_checked: usize,
}

/// Hold of all threads of the process. When it is dropped they go on.
#[derive(Debug)]
pub struct Hold {
    shared: Arc<Shared>,
    requests: Sender<Request>,
}

impl InProcess {
    /// Lets the program start, which was held at its entry point.
    pub fn start(&self) {
        // Without a tracer it has ended.
        let _ = self.requests.send(Request::Start);
    }

    /// Stops all threads of the process, or finds them stopped; `None` when the process has ended.
    pub fn hold(&mut self) -> Option<Hold> {
        /// Interval of the signals that end the tracer's wait: it may have begun just after one.
        const AGAIN: Duration = Duration::from_millis(1);
        let (answer, answers) = bounded(1);
        self.requests.send(Request::Hold(answer)).ok()?;
        loop {
            // A tracer that has ended answers no more.
            let _ = self.waker.wake();
            match answers.recv_timeout(AGAIN) {
                Ok(places) => {
                    self.places = places;
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        Some(Hold { shared: Arc::clone(&self.shared), requests: self.requests.clone() })
    }

    /// Returns the number of the latest stop of the process.
    #[must_use]
    pub fn stops(&self) -> u32 {
        self.shared.stops.load(Ordering::Acquire)
    }

    /// Returns the number of lost events. Of which class they were is not known: they count as synchronisation, the
    /// worst to lose. Those of threads without rings are not among them.
    #[must_use]
    pub fn lost(&self) -> Lost {
        let lost = self.shared.counters.lost.load(Ordering::Relaxed);
        CLASSES.map(|class| (class, if class == Class::Sync { lost } else { 0 }))
    }

    /// Returns the number of threads for which no ring was left.
    #[must_use]
    pub fn threads_without_rings(&self) -> u64 {
        self.shared.muted_threads.load(Ordering::Relaxed)
    }

    /// Returns the number of times that threads had to wait for the reader.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.shared.counters.waits.load(Ordering::Relaxed)
    }

    /// Returns the clock of the order of records, once a program has shared memory.
    #[must_use]
    pub fn clock(&self) -> Option<ClockChoice> {
        self.shared.clock().clone()
    }

    /// Returns the program that the process runs.
    pub(super) fn program(&self) -> Result<Program, InProcessError> {
        let refused = || self.shared.refusal().take().unwrap_or(InProcessError::NoMemory);
        self.shared.program().clone().ok_or_else(refused)
    }
}

impl InProcess {
    /// Makes the process stop when its dynamic linker has changed its libraries.
    ///
    /// # Errors
    ///
    /// When the linker's function cannot be replaced.
    pub fn attach_linker(&self, point: &ProbePoint, address: ProcessAddr) -> io::Result<()> {
        let (image, stream) = self.program().map_err(io::Error::other)?;
        libraries::attach((&image, &stream), &self.shared, point, address)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((image, _)) = &*self.shared.program() {
            libraries::open_gate(image);
        }
        // Without a tracer nobody is held.
        let _ = self.requests.send(Request::Resume);
    }
}

/// Creates both ends: what the checker's thread has, and what the tracer's has, which is the calling one.
pub(super) fn connect() -> (InProcess, Arc<Shared>, Receiver<Request>) {
    let shared = Arc::<Shared>::default();
    let (requests, received) = crossbeam_channel::unbounded();
    let waker = Waker::of_this_thread();
    let places = Vec::new();
    (
        InProcess { shared: Arc::clone(&shared), requests, waker, places, modules_checked: 0 },
        shared,
        received,
    )
}
