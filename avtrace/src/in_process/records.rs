//! Stream of a program's records: the merge of its threads' rings and of what the tracer has noted, in the order in
//! which they happened, as batches.

use std::{
    io,
    mem::offset_of,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use abi::{PlanNumber, Record};
use crossbeam_channel::Receiver;
use inline::{
    arena::CONTROL,
    layout::{Clock, Control},
    merge::{Merge, Patience},
    sites::SiteTable,
    tracer::Notes,
};

use super::{image::Image, ring_sites::site_of_plan};
use crate::{
    live::{
        reader::{Batches, Outlet, Reader},
        ring_surroundings::RingSurroundings,
    },
    sys::{reader_futex::HeldFutex, shared_memory::SharedMemory},
};

/// Records in a batch at most: they stay in a processor's cache until they are checked.
const BATCH: usize = 1 << 10;

/// Batches in flight at most: threads wait beyond that.
const BATCHES: usize = 1 << 3;

/// Records for which it is worth to look again at once. Each look interrupts the program's threads by a barrier.
const MANY: usize = 1 << 9;

/// Sleep when there is nothing to read: doubled from the first duration to the second. A thread whose ring is full
/// waits for as long.
const SLEEP: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(1));

/// Place of the reader's futex in the file of rings, in bytes.
const READER: usize = CONTROL.0 as usize + offset_of!(Control, reader);

/// Records of one program of a process.
#[derive(Debug)]
pub struct Stream {
    process: u32,
    rings: Arc<SharedMemory>,
    /// Memory that the program shares; `None` where it has no probes.
    image: Option<Arc<Image>>,
    pub(super) notes: Notes,
    /// Sites of the program's plan, by its number.
    sites: Mutex<(PlanNumber, SiteTable)>,
    /// Set when nothing will be noted any more.
    is_closed: AtomicBool,
    /// Set when it is read.
    is_read: AtomicBool,
    clock: Clock,
    /// For the order of the tracer's records.
    surroundings: RingSurroundings,
    counters: Arc<Counters>,
}

/// Counts of a run so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of lost events.
    pub lost: AtomicU64,
    /// Number of times that threads waited for the reader.
    pub waits: AtomicU64,
}

impl Stream {
    /// Creates the stream of a program that shares memory.
    pub(super) fn new(image: &Arc<Image>, counters: &Arc<Counters>) -> Self {
        let rings = Arc::clone(&image.rings);
        Self::over((image.process, image.clock), rings, Some(Arc::clone(image)), counters)
    }

    /// Creates the stream of a program without probes: the tracer's records.
    pub(super) fn without_rings(process: u32, counters: &Arc<Counters>) -> io::Result<Self> {
        const PAGE: u64 = 4096;
        let rings = Arc::new(SharedMemory::new(PAGE)?);
        Ok(Self::over((process, Clock::Tsc), rings, None, counters))
    }

    fn over(
        (process, clock): (u32, Clock),
        rings: Arc<SharedMemory>,
        image: Option<Arc<Image>>,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            process,
            surroundings: RingSurroundings::new(Arc::clone(&rings), clock),
            clock,
            rings,
            image,
            notes: Notes::default(),
            sites: Mutex::default(),
            is_closed: AtomicBool::new(false),
            is_read: AtomicBool::new(false),
            counters: Arc::clone(counters),
        }
    }

    /// Adds a record of what the tracer has just observed.
    pub(super) fn record(&self, record: Record) {
        self.notes.record(record, || self.surroundings.order());
    }

    /// Notes that no record will follow.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Returns whether no record will follow.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until the stream is read: threads wait for a reader only if there is one.
    pub(super) fn await_reader(&self) {
        while !self.is_read.load(Ordering::Acquire) {
            thread::sleep(SLEEP.0);
        }
    }

    /// Returns the sites whose records are in the rings.
    fn sites(&self) -> MutexGuard<'_, (PlanNumber, SiteTable)> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the sites of the program's plan, which has this number.
    pub(super) fn change_sites(&self, plan: PlanNumber, change: impl FnOnce(&mut SiteTable)) {
        let mut sites = self.sites();
        if sites.0 != plan {
            *sites = (plan, SiteTable::new(plan));
        }
        change(&mut sites.1);
    }
}

/// Starts to read the streams of a process, one after the other.
///
/// # Errors
///
/// When no thread can be started.
pub fn read(streams: Receiver<Arc<Stream>>, sees_memory: bool) -> io::Result<(Reader, Batches)> {
    Reader::start_with(BATCHES, move |outlet, stop| {
        let mut unreadable = 0;
        // Before the end of all streams a next one may come.
        while !stop.load(Ordering::Acquire) || !streams.is_empty() {
            match streams.recv_timeout(SLEEP.1) {
                Ok(stream) => unreadable += read_stream(&stream, sees_memory, outlet, stop),
                Err(_) if stop.load(Ordering::Acquire) => {}
                Err(_) => thread::sleep(SLEEP.0),
            }
        }
        unreadable
    })
}

/// Reads a stream to its end. Returns the number of records that could not be decoded.
fn read_stream(stream: &Stream, sees_memory: bool, outlet: &Outlet, stop: &AtomicBool) -> u64 {
    // Without it nobody waits for this thread: events are lost where rings are full.
    let _held = HeldFutex::hold(Arc::clone(&stream.rings), READER);
    stream.is_read.store(true, Ordering::Release);
    let mut here = RingSurroundings::new(Arc::clone(&stream.rings), stream.clock);
    let rings = Arc::clone(&stream.rings);
    let mut merge = Merge::new(rings, stream.process, Patience::default(), sees_memory);
    let Counters { lost, waits } = &*stream.counters;
    let [lost_before, waits_before] = [lost, waits].map(|count| count.load(Ordering::Relaxed));
    let mut sleep = SLEEP.0;
    loop {
        // Read before the rings are: what was recorded before is then still found.
        let is_last = stop.load(Ordering::Acquire) || stream.is_closed();
        let mut batch = outlet.buffer();
        let result = merge.batch(&mut here, &stream.sites().1, &stream.notes, (&mut batch, BATCH));
        let losses = merge.losses();
        lost.store(lost_before + losses.full + losses.unpublished, Ordering::Relaxed);
        if let Some(image) = &stream.image {
            let mut arena = image.arena();
            merge.take_drained().into_iter().for_each(|segment| arena.release(segment));
        }
        for record in &mut batch {
            let site = &mut record.header_mut().site;
            *site = site_of_plan(*site);
        }
        if batch.is_empty() {
            waits.store(waits_before + merge.waits(), Ordering::Relaxed);
        }
        if !batch.is_empty() {
            sleep = SLEEP.0;
            let is_worth_it = batch.len() >= MANY || is_last;
            if !outlet.send(batch) {
                return losses.unreadable;
            }
            if !is_worth_it {
                thread::sleep(sleep);
            }
        } else if is_last && !result.has_more {
            return losses.unreadable;
        } else {
            thread::sleep(sleep);
            sleep = (sleep * 2).min(SLEEP.1);
        }
    }
}
