//! Numbers of the recordings of one run: each program has one of its own.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Numbers of recordings, from 0: shared between the threads that trace processes.
#[derive(Clone, Debug, Default)]
pub struct RecordingNumbers(Arc<AtomicUsize>);

impl RecordingNumbers {
    /// Creates numbers of which the first is taken.
    #[must_use]
    pub fn after_first() -> Self {
        Self(Arc::new(AtomicUsize::new(1)))
    }

    #[must_use]
    pub fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
