//! State and requests between the thread that plans and the tracer's.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use crossbeam_channel::Sender;
use inline::clock::ClockChoice;

use super::{
    error::InProcessError,
    image::Image,
    records::{Counters, Stream},
};

/// State that both threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Program that the process runs; `None` before its entry point, and where it has no probes.
    program: Mutex<Option<Program>>,
    /// Reason why it has no probes.
    refusal: Mutex<Option<InProcessError>>,
    /// Number of the latest stop of the process.
    pub(super) stops: AtomicU32,
    /// Counts of the readers.
    pub(super) counters: Arc<Counters>,
    /// Number of threads for which no ring was left.
    pub(super) muted_threads: AtomicU64,
    /// Clock of the order of records.
    clock: Mutex<Option<ClockChoice>>,
}

/// Memory shared with a program, and its records.
pub(super) type Program = (Arc<Image>, Arc<Stream>);

impl Shared {
    /// Returns the program that the process runs.
    pub(super) fn program(&self) -> MutexGuard<'_, Option<Program>> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason why it has no probes.
    pub(super) fn refusal(&self) -> MutexGuard<'_, Option<InProcessError>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the clock of the order of records, once a program has shared memory.
    pub(super) fn clock(&self) -> MutexGuard<'_, Option<ClockChoice>> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a new stop.
    pub(super) fn next_stop(&self) -> u32 {
        self.stops.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Request of the checker's thread to the tracer's.
#[derive(Debug)]
pub(super) enum Request {
    /// Let the program start.
    Start,
    /// Stop all threads, and return the next instruction of each.
    Hold(Sender<Vec<u64>>),
    /// Let them go on.
    Resume,
}
