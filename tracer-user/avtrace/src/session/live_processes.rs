//! Processes that have not ended, as far as their records have been seen: shared between the thread that reads records
//! and the one that waits for the end.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Processes that have not ended.
#[derive(Clone, Debug, Default)]
pub struct LiveProcesses(Arc<Mutex<BTreeSet<u32>>>);

impl LiveProcesses {
    pub fn insert(&self, pid: u32) {
        self.lock().insert(pid);
    }

    pub fn remove(&self, pid: u32) {
        self.lock().remove(&pid);
    }

    /// Returns the processes at this moment.
    #[must_use]
    pub fn now(&self) -> BTreeSet<u32> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
