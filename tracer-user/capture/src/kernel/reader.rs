//! The reader thread: takes records out of the ring buffer and passes them on in batches. It decodes and decides
//! nothing else, so that the buffer never fills because of what happens to the events.

use std::{
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use abi::Record;
use aya::maps::{MapData, RingBuf};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use linux::{cut::Cut, test_number};

const BATCH: usize = 4096;
/// Batches in flight at most: the reader waits beyond that, and the ring buffer takes the rest.
const BATCHES: usize = 64;
/// Sleep when no record is there: doubled from the first duration to the second.
const SLEEP: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(10));

/// A running reader thread.
#[derive(Debug)]
pub struct Reader {
    stop: Arc<AtomicBool>,
    /// Number of records that could not be decoded, once it has ended.
    ended: Receiver<u64>,
    cut: Cut,
}

/// The sending end.
#[derive(Clone, Debug)]
pub struct Outlet {
    full: Sender<Vec<Record>>,
    empty: Receiver<Vec<Record>>,
    /// Time that passes before each batch is passed on.
    delay: Duration,
    cut: Cut,
}

impl Outlet {
    /// Returns an empty batch.
    #[must_use]
    pub fn buffer(&self) -> Vec<Record> {
        self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH))
    }

    /// Returns whether reading is cut short: the remaining records are not read.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut.is_asked()
    }

    /// Passes a batch on. Returns whether anybody receives it.
    #[must_use]
    pub fn send(&self, batch: Vec<Record>) -> bool {
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
        self.full.send(batch).is_ok()
    }
}

/// Returns the time that the reader waits with each batch. Tests of overload make it slow, by milliseconds.
fn delay() -> Duration {
    test_number::get("AVTRACE_TEST_READER_DELAY_MS").map_or(Duration::ZERO, Duration::from_millis)
}

/// The receiving end.
#[derive(Debug)]
pub struct Batches {
    full: Receiver<Vec<Record>>,
    empty: Sender<Vec<Record>>,
    cut: Cut,
}

impl Reader {
    /// Starts to read, until that is cut short.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn start(events: RingBuf<MapData>, cut: &Cut) -> std::io::Result<(Self, Batches)> {
        Self::start_with(BATCHES, cut, move |outlet, stop| read(events, outlet, stop))
    }

    /// Starts a thread that reads by `read`, with at most this number of batches in flight, until it is cut short.
    /// `read` returns the number of undecodable records, once the flag is set and all records are read.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn start_with(
        batches: usize,
        cut: &Cut,
        read: impl FnOnce(&Outlet, &AtomicBool) -> u64 + Send + 'static,
    ) -> std::io::Result<(Self, Batches)> {
        let stop = Arc::new(AtomicBool::new(false));
        let (full, received) = bounded(batches);
        let (recycle, empty) = bounded(batches);
        let stopped = Arc::clone(&stop);
        let outlet = Outlet { full, empty, delay: delay(), cut: cut.clone() };
        let (end, ended) = bounded(1);
        thread::Builder::new()
            .name("avtrace-reader".to_owned())
            // The receiver may be gone when reading is cut short.
            .spawn(move || end.send(read(&outlet, &stopped)))?;
        Ok((
            Self { stop, ended, cut: cut.clone() },
            Batches { full: received, empty: recycle, cut: cut.clone() },
        ))
    }

    /// Reads the remaining records, ends, and returns the number of undecodable ones. Probes must have stopped
    /// recording by then.
    #[must_use]
    pub fn finish(self) -> u64 {
        /// Interval at which it is looked whether reading is cut short.
        const LOOK: Duration = Duration::from_millis(20);
        self.stop.store(true, Ordering::Release);
        while !self.cut.is_asked() {
            match self.ended.recv_timeout(LOOK) {
                Ok(undecodable) => return undecodable,
                Err(RecvTimeoutError::Timeout) => {}
                // It has panicked.
                Err(RecvTimeoutError::Disconnected) => return 0,
            }
        }
        self.ended.try_recv().unwrap_or(0)
    }
}

impl Batches {
    /// Calls `consume` with each batch, and with an empty slice at least every `often`, until the reader has ended or
    /// reading is cut short.
    ///
    /// # Panics
    /// After the number of records that a test sets.
    pub fn for_each(self, often: Duration, mut consume: impl FnMut(&[Record])) {
        let last = test_number::get("AVTRACE_TEST_PANIC_AFTER").unwrap_or(u64::MAX);
        let mut count = 0;
        while !self.cut.is_asked() {
            match self.full.recv_timeout(often) {
                Ok(mut batch) => {
                    consume(&batch);
                    count += batch.len() as u64;
                    assert!(count < last, "on purpose, by AVTRACE_TEST_PANIC_AFTER");
                    batch.clear();
                    // When the reader has ended there is nobody to use the memory again.
                    let _ = self.empty.try_send(batch);
                }
                Err(RecvTimeoutError::Timeout) => consume(&[]),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn read(mut events: RingBuf<MapData>, outlet: &Outlet, stop: &AtomicBool) -> u64 {
    let mut undecodable = 0;
    let mut sleep = SLEEP.0;
    loop {
        // Read before the buffer is: what was recorded before the flag was set is then still found.
        let last_round = stop.load(Ordering::Acquire);
        let mut batch = outlet.buffer();
        while batch.len() < BATCH
            && let Some(bytes) = events.next()
        {
            match Record::decode(&bytes) {
                Some(record) => batch.push(record),
                None => undecodable += 1,
            }
        }
        if !batch.is_empty() {
            sleep = SLEEP.0;
            if !outlet.send(batch) {
                return undecodable;
            }
        } else if last_round || outlet.is_cut() {
            return undecodable;
        } else {
            rest(&events, sleep);
            sleep = (sleep * 2).min(SLEEP.1);
        }
    }
}

/// Sleeps, but a long sleep ends at once when there is a record that somebody waits for. Most records wake nobody: to
/// sleep a little lets them come in numbers.
fn rest(events: &RingBuf<MapData>, sleep: Duration) {
    match PollTimeout::try_from(sleep) {
        Ok(timeout) if sleep >= Duration::from_millis(1) => {
            let mut polled = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
            // Whatever it returns: the buffer is looked at next.
            let _ = poll(&mut polled, timeout);
        }
        _ => thread::sleep(sleep),
    }
}
