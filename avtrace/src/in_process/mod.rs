//! Capture in the traced process itself, without BPF: the tracer holds the process by ptrace, probes are machine code
//! that writes to rings in shared memory. The code of probes and the protocol of rings are in the crate `inline`.
//!
//! Two threads take part. The tracer's thread ([`Tracer`]), which ptrace binds to the process, has the events of threads
//! and processes. The checker's thread ([`InProcess`]) plans, writes probes while the process stands still, and takes
//! the records in their order, also those that the tracer makes.

mod attach;
mod image;
mod libraries;
mod records;
mod targets;
mod tracer;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use abi::{CLASSES, Class};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use self::{image::Image, records::Stream};
pub use self::{
    records::read,
    tracer::{Followed, Tracer},
};
use crate::{kernel::Lost, sys::wake::Waker};

/// Reason for which there can be no probes in a process.
#[derive(Debug, thiserror::Error)]
pub enum InProcessError {
    /// The program gives the GS base a meaning of its own.
    #[error(
        "the program uses the GS base for itself, which `--capture inline` needs: use `--capture kernel`, as root"
    )]
    UsesGs,
    /// Filters of system calls let nothing through.
    #[error(
        "the program runs in strict seccomp mode, where `--capture inline` cannot map memory: use `--capture kernel`, as root"
    )]
    StrictSeccomp,
    /// The process denies memory that was writable and becomes executable.
    #[error(
        "the program is started with `PR_SET_MDWE`, which denies new code: use `--capture kernel`, as root"
    )]
    DeniesWriteExecute,
    /// The program would lose the privileges that its file gives.
    #[error(
        "the program's file is set-user-ID, set-group-ID or has capabilities, which it loses when a user traces it: run \
         avtrace as root"
    )]
    Privileged,
    /// An option is for the kernel side.
    #[error("`{option}` is not possible with `--capture inline`: use `--capture kernel`, as root")]
    NeedsKernel {
        /// The option.
        option: &'static str,
    },
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The program has no memory in common with avtrace.
    #[error("the program shares no memory with avtrace")]
    NoMemory,
}

/// State that both threads share.
#[derive(Debug, Default)]
struct Shared {
    /// Program that the process runs; `None` before its entry point, and where it has no probes.
    program: Mutex<Option<Program>>,
    /// Reason why it has no probes.
    refusal: Mutex<Option<InProcessError>>,
    /// Number of the latest stop of the process.
    stops: AtomicU32,
    /// Number of lost events.
    lost: Arc<AtomicU64>,
}

/// Memory shared with a program, and its records.
type Program = (Arc<Image>, Arc<Stream>);

impl Shared {
    fn program(&self) -> MutexGuard<'_, Option<Program>> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self) -> MutexGuard<'_, Option<InProcessError>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a new stop.
    fn next_stop(&self) -> u32 {
        self.stops.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Request of the checker's thread to the tracer's.
#[derive(Debug)]
enum Request {
    /// Let the program start.
    Start,
    /// Stop all threads, and return the next instruction of each.
    Hold(Sender<Vec<u64>>),
    /// Let them go on.
    Resume,
}

/// Probes in a process, as the thread that plans them has them.
#[derive(Debug)]
pub struct InProcess {
    shared: Arc<Shared>,
    requests: Sender<Request>,
    waker: Waker,
    /// Next instructions of the threads, which are held or stand at the entry point.
    places: Vec<u64>,
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
    /// worst to lose.
    #[must_use]
    pub fn lost(&self) -> Lost {
        let lost = self.shared.lost.load(Ordering::Relaxed);
        CLASSES.map(|class| (class, if class == Class::Sync { lost } else { 0 }))
    }

    fn program(&self) -> Result<Program, InProcessError> {
        let refused = || self.shared.refusal().take().unwrap_or(InProcessError::NoMemory);
        self.shared.program().clone().ok_or_else(refused)
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
fn connect() -> (InProcess, Arc<Shared>, Receiver<Request>) {
    let shared = Arc::<Shared>::default();
    let (requests, received) = crossbeam_channel::unbounded();
    let waker = Waker::of_this_thread();
    let places = Vec::new();
    (InProcess { shared: Arc::clone(&shared), requests, waker, places }, shared, received)
}
