//! State and requests between the thread that plans and the tracer's.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use abi::PlanNumber;
use crossbeam_channel::Sender;
use inline::clock::ClockChoice;

use super::withdrawal::Withdrawal;
use super::{
    error::InProcessError,
    image::Image,
    records::{RecordCounts, Stream},
};

/// State that both threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Programs that the processes run; none before its entry point, and where it has no probes.
    programs: Mutex<BTreeMap<u32, Program>>,
    /// Reasons why processes have no probes.
    refusals: Mutex<BTreeMap<u32, InProcessError>>,
    /// Reasons why probes were taken out of processes that went on, and errors of taking them out.
    withdrawn: Mutex<BTreeMap<u32, Withdrawn>>,
    /// Number of the latest stop of a process.
    stops: AtomicU32,
    /// Counts of the programs' records.
    pub(super) counts: Arc<RecordCounts>,
    /// Number of threads for which no ring was left.
    pub(super) muted_threads: AtomicU64,
    /// Number of threads in which the ranges of their process are not watched.
    pub(super) unwatched_threads: AtomicU64,
    clock: Mutex<Option<ClockChoice>>,
    /// Plans with probes that can be switched off.
    switched: Mutex<BTreeMap<PlanNumber, Switched>>,
}

/// Probes of a plan that can be switched off in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switched {
    /// Groups of access probes.
    pub accesses: bool,
    /// All probes together, between windows of capture.
    pub windows: bool,
}

/// Memory shared with a program, and its records.
pub(super) type Program = (Arc<Image>, Arc<Stream>);

/// Reason why probes were taken out of a process that went on, and the error if that has failed.
pub(super) type Withdrawn = (Withdrawal, Option<String>);

impl Shared {
    pub(super) fn programs(&self) -> MutexGuard<'_, BTreeMap<u32, Program>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn program(&self, process: u32) -> Option<Program> {
        self.programs().get(&process).cloned()
    }

    pub(super) fn refusals(&self) -> MutexGuard<'_, BTreeMap<u32, InProcessError>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reasons why probes were taken out of processes that went on.
    pub(super) fn withdrawn(&self) -> MutexGuard<'_, BTreeMap<u32, Withdrawn>> {
        self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the plans with probes that can be switched off.
    pub(super) fn switched(&self) -> MutexGuard<'_, BTreeMap<PlanNumber, Switched>> {
        self.switched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the clock of the order of records, once a program has shared memory.
    pub(super) fn clock(&self) -> MutexGuard<'_, Option<ClockChoice>> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stops(&self) -> u32 {
        self.stops.load(Ordering::Acquire)
    }

    pub(super) fn next_stop(&self) -> u32 {
        self.stops.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Threads of a process.
pub(super) type Places = Vec<Place>;

/// Place of a thread that stands still.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The thread.
    pub thread: u32,
    /// Its next instruction.
    pub next: u64,
    /// Its stack pointer.
    pub stack: u64,
}

/// Request of the checker's thread to the tracer's.
#[derive(Debug)]
pub(super) enum Request {
    Start,
    /// Stop all threads of a process.
    Hold {
        /// The process.
        process: u32,
        /// Number of the stop for which it is held.
        stop: u32,
        /// Receives its threads; `None` where it has ended, or runs another program.
        answer: Sender<Option<Places>>,
    },
    /// Have a stopped thread go on elsewhere.
    Move {
        /// The thread.
        thread: u32,
        /// Its next instruction.
        to: u64,
        /// Receives whether that was possible.
        answer: Sender<bool>,
    },
    /// Watch memory in a process.
    Watch {
        /// The process.
        process: u32,
        /// Address and length; `None` prepares for later ones.
        range: Option<(u64, u64)>,
        /// The process stands at the entry point of its program.
        at_entry: bool,
        /// Receives whether that was possible.
        answer: Sender<io::Result<()>>,
    },
    /// Hold a thread until it is fed.
    Starve {
        /// The thread.
        thread: u32,
        /// Receives whether that is possible.
        answer: Sender<bool>,
    },
    Feed {
        /// The thread.
        thread: u32,
        /// Receives that it was done.
        answer: Sender<()>,
    },
    /// Let the threads of a process go on.
    Resume {
        /// The process.
        process: u32,
        /// Receives that it was done.
        answer: Sender<()>,
    },
    /// Have a process that is held, and has no probes, go on without a tracer.
    LeaveAlone {
        /// The process.
        process: u32,
        /// Receives that it was done.
        answer: Sender<()>,
    },
    /// Let all processes go on: nobody plans any more.
    Leave {
        /// Receives that it was done.
        answer: Sender<()>,
    },
    /// Follow the processes no more.
    End {
        /// Receives that it will be done.
        answer: Sender<()>,
    },
}
