//! Detaching of many probes at once.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use linux::{apart, priority};

const MAX_THREADS: usize = 64;

/// Links that are being closed. When this is dropped, they are gone.
///
/// The kernel waits for a grace period at each link, and for all that wait at once together: there is a thread for
/// each share of the links. Before that it takes one lock for each probe (`kernel/events/uprobes.c`,
/// `register_for_each_vma`), which goes round among the threads. They run at high priority: if they had to wait for a
/// processor each time, a busy program would run into its probes for most of a second.
#[derive(Debug)]
pub struct PendingDetach {
    threads: Vec<JoinHandle<()>>,
    /// Number of threads that have not closed their links.
    left: Arc<AtomicUsize>,
}

impl PendingDetach {
    /// Begins to close links.
    #[must_use]
    pub fn start(mut links: Vec<OwnedFd>) -> Self {
        let share = links.len().div_ceil(MAX_THREADS).max(1);
        let mut shares = Vec::new();
        while !links.is_empty() {
            let rest = links.split_off(share.min(links.len()));
            shares.push(std::mem::replace(&mut links, rest));
        }
        let left = Arc::new(AtomicUsize::new(shares.len()));
        let close = |share: Vec<OwnedFd>| {
            let left = Closing(Arc::clone(&left));
            let close = move || {
                priority::hurry();
                apart::close(share);
                drop(left);
            };
            // Without a thread they are closed here, one after the other.
            thread::Builder::new().name("avtrace-detach".to_owned()).spawn(close).ok()
        };
        let threads = shares.into_iter().filter_map(close).collect();
        Self { threads, left }
    }

    /// Returns whether all links are closed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

impl Drop for PendingDetach {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // It does nothing that could fail.
            let _ = thread.join();
        }
    }
}

/// Some links that are not closed; counts when it is dropped, also where there is no thread.
struct Closing(Arc<AtomicUsize>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{ErrorKind, Read as _},
    };

    use super::*;

    #[test]
    fn all_are_closed_in_the_end() {
        let (ends, others): (Vec<_>, Vec<_>) =
            (0..2 * MAX_THREADS + 1).map(|_| std::io::pipe().unwrap()).unzip();
        let pending = PendingDetach::start(others.into_iter().map(OwnedFd::from).collect());
        let left = Arc::clone(&pending.left);
        drop(pending);
        assert_eq!(left.load(Ordering::Acquire), 0);
        for end in ends {
            let mut file = File::from(OwnedFd::from(end));
            let error = file.read_exact(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "nobody has the other end");
        }
        assert!(PendingDetach::start(Vec::new()).is_done());
    }
}
