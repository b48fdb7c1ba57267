//! Stream of a program's records: the merge of its threads' rings and of what the tracer has noted, in the order in
//! which they happened, as batches.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    mem::offset_of,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use abi::{Header, Kind, PlanNumber, Record, SiteId, SwitchRecord};
use crossbeam_channel::Receiver;
use inline::{
    arena::CONTROL,
    layout::{Clock, Control},
    merge::{Merge, Patience},
    sites::SiteTable,
    tracer::Notes,
};

use super::ring_surroundings::RingSurroundings;
use super::{image::Image, ring_sites::site_of_plan};
use crate::kernel::reader::{Batches, Outlet, Reader};
use linux::{cut::Cut, reader_futex::HeldFutex, shared_memory::SharedMemory};

/// Records in a batch at most: they stay in a processor's cache until they are checked.
const BATCH: usize = 1 << 10;

/// Batches in flight at most: threads wait beyond that.
const BATCHES: usize = 1 << 3;

/// Records for which it is worth to look again at once. Each look interrupts the program's threads by a barrier.
const MANY: usize = 1 << 9;

/// Sleep when no record is there: doubled from the first duration to the second. A thread whose ring is full
/// waits for as long.
const SLEEP: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(1));

/// Interval at which new streams are looked for once all have ended.
const LOOK: Duration = Duration::from_millis(10);

/// Place of the reader's futex in the file of rings, in bytes.
const READER: usize = CONTROL.0 as usize + offset_of!(Control, reader);

/// Counts of all streams.
#[derive(Debug, Default)]
pub(super) struct RecordCounts {
    /// Those that were handed on.
    pub(super) records: AtomicU64,
    /// Number of lost events.
    pub(super) lost: AtomicU64,
    /// Number of times that threads waited for the reader.
    pub(super) waits: AtomicU64,
}

/// Records of one program of a process, and of children that it has forked, which share its memory with avtrace.
#[derive(Debug)]
pub struct Stream {
    rings: Arc<SharedMemory>,
    /// Memory that the program shares; `None` where it has no probes.
    image: Option<Arc<Image>>,
    pub(super) notes: Notes,
    /// Sites of the plans, as they are in the rings.
    sites: Mutex<SiteTable>,
    plans: Mutex<BTreeMap<u32, PlanNumber>>,
    /// Set when no record will follow.
    is_closed: AtomicBool,
    is_read: AtomicBool,
    clock: Clock,
    /// For the order of the tracer's records.
    surroundings: RingSurroundings,
    counts: Arc<RecordCounts>,
}

impl Stream {
    /// Creates the stream of a program that shares memory.
    pub(super) fn new(image: &Arc<Image>, counts: &Arc<RecordCounts>) -> Self {
        let rings = Arc::clone(&image.rings);
        Self::over(image.clock, rings, Some(Arc::clone(image)), Arc::clone(counts))
    }

    /// Creates the stream of a program without probes: the tracer's records.
    pub(super) fn without_rings(counts: &Arc<RecordCounts>) -> io::Result<Self> {
        const PAGE: u64 = 4096;
        let rings = Arc::new(SharedMemory::new(PAGE)?);
        Ok(Self::over(Clock::Tsc, rings, None, Arc::clone(counts)))
    }

    fn over(
        clock: Clock,
        rings: Arc<SharedMemory>,
        image: Option<Arc<Image>>,
        counts: Arc<RecordCounts>,
    ) -> Self {
        Self {
            surroundings: RingSurroundings::new(Arc::clone(&rings), clock),
            clock,
            rings,
            image,
            notes: Notes::default(),
            sites: Mutex::default(),
            plans: Mutex::default(),
            is_closed: AtomicBool::new(false),
            is_read: AtomicBool::new(false),
            counts,
        }
    }

    /// Adds a record of what the tracer has just observed.
    pub(super) fn record(&self, record: Record) {
        self.notes.record(record, || self.surroundings.order());
    }

    /// Adds records that these groups of access probes rest from now on, or record again, in all processes of the
    /// stream.
    pub(super) fn note_switch(&self, groups: &BTreeSet<u16>, is_off: bool) {
        let processes: Vec<u32> = self.plans().keys().copied().collect();
        for process in processes {
            for &group in groups {
                let header = header(Kind::Switch, process, 0);
                let (group, is_on) = (group.into(), u32::from(!is_off));
                self.record(Record::Switch(SwitchRecord { header, group, is_on }));
            }
        }
    }

    /// Adds the begin or the end of a window of capture.
    pub(super) fn note_window(&self, begins: bool) {
        self.notes.window(begins, || self.surroundings.order());
    }

    /// Returns the counts of all streams.
    pub(super) fn counts(&self) -> &RecordCounts {
        &self.counts
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
    pub(super) fn sites(&self) -> MutexGuard<'_, SiteTable> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plans(&self) -> MutexGuard<'_, BTreeMap<u32, PlanNumber>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on records of a process are of this plan.
    pub(super) fn set_plan(&self, process: u32, plan: PlanNumber) {
        if self.plans().insert(process, plan) != Some(plan) {
            // Of a process that has ended.
            self.sites().forget(plan);
        }
    }
}

/// Starts to read the streams of all processes, each in a thread of its own. A process is in one stream at a time, and
/// the next one has no record before that of its start, in the one before, has been dealt with: between streams there
/// is no order to keep. What is left when reading is cut short is not read.
///
/// # Errors
///
/// When no thread can be started.
pub fn read(
    streams: Receiver<Arc<Stream>>,
    sees_memory: bool,
    cut: &Cut,
) -> io::Result<(Reader, Batches)> {
    Reader::start_with(BATCHES, cut, move |outlet, stop| {
        thread::scope(|scope| {
            let mut readers = Vec::new();
            // Before the end of all streams a next one may come.
            while !stop.load(Ordering::Acquire) || !streams.is_empty() {
                let Ok(stream) = streams.recv_timeout(LOOK) else { continue };
                let outlet = outlet.clone();
                let read = {
                    let stream = Arc::clone(&stream);
                    move || read_stream(&stream, sees_memory, &outlet, stop)
                };
                let name = "avtrace-rings".to_owned();
                match thread::Builder::new().name(name).spawn_scoped(scope, read) {
                    Ok(reader) => readers.push(reader),
                    // Events are lost where rings are full.
                    Err(_) => stream.is_read.store(true, Ordering::Release),
                }
            }
            readers.into_iter().map(|reader| reader.join().unwrap_or(0)).sum()
        })
    })
}

/// Reads a stream to its end. Returns the number of records that could not be decoded.
fn read_stream(stream: &Stream, sees_memory: bool, outlet: &Outlet, stop: &AtomicBool) -> u64 {
    // Without it nobody waits for this thread: events are lost where rings are full.
    let _held = HeldFutex::hold(Arc::clone(&stream.rings), READER);
    stream.is_read.store(true, Ordering::Release);
    let mut here = RingSurroundings::new(Arc::clone(&stream.rings), stream.clock);
    let mut merge = Merge::new(Arc::clone(&stream.rings), Patience::default(), sees_memory);
    let (mut sleep, mut lost, mut waits) = (SLEEP.0, 0, 0);
    loop {
        // Read before the rings are: what was recorded before is then still found.
        let is_last = stop.load(Ordering::Acquire) || stream.is_closed();
        if is_last {
            merge.end();
        }
        let mut batch = outlet.buffer();
        let result = merge.batch(&mut here, &stream.sites(), &stream.notes, &mut batch, BATCH);
        stream.counts.records.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let losses = merge.losses();
        let lost_now =
            [losses.unpublished, losses.late].into_iter().fold(losses.full, u64::saturating_add);
        let lost_before = std::mem::replace(&mut lost, lost_now);
        stream.counts.lost.fetch_add(lost - lost_before, Ordering::Relaxed);
        if let Some(image) = &stream.image {
            let mut arena = image.arena();
            merge.take_drained().into_iter().for_each(|segment| arena.release(segment));
        }
        // Threads wait where batches are full.
        if batch.is_empty() || batch.len() >= BATCH {
            let waits_before = std::mem::replace(&mut waits, merge.waits());
            stream.counts.waits.fetch_add(waits - waits_before, Ordering::Relaxed);
        }
        if !batch.is_empty() {
            name_plans(stream, &mut batch);
            sleep = SLEEP.0;
            let is_worth_it = batch.len() >= MANY || is_last;
            if !outlet.send(batch) {
                return losses.unreadable;
            }
            if !is_worth_it {
                thread::sleep(sleep);
            }
        } else if outlet.is_cut() || is_last && !result.has_more {
            return losses.unreadable;
        } else {
            thread::sleep(sleep);
            sleep = (sleep * 2).min(SLEEP.1);
        }
    }
}

pub(super) const fn header(kind: Kind, process: u32, tid: u32) -> Header {
    Header { kind: kind as u32, tid, site: SiteId::NONE, lost: 0, process }
}

const fn has_site(record: &Record) -> bool {
    !matches!(
        record,
        Record::Fork(_)
            | Record::Exit(_)
            | Record::ChildProcess(_)
            | Record::Stop(..)
            | Record::Watchpoint(_)
            | Record::Switch(_)
    )
}

/// Gives the sites of records the plans of their processes.
fn name_plans(stream: &Stream, batch: &mut [Record]) {
    let plans = stream.plans();
    let mut latest = None;
    for record in batch.iter_mut().filter(|record| has_site(record)) {
        let header = record.header();
        let plan = match latest {
            Some((process, plan)) if process == header.process => plan,
            _ => {
                let known = plans.get(&header.process).copied();
                let plan = known.unwrap_or_else(|| header.site.plan());
                latest = Some((header.process, plan));
                plan
            }
        };
        // Of deferred accesses the numbers are known.
        if let Record::Owned(owned) = record {
            for last in [&mut owned.write, &mut owned.read] {
                last.site = site_of_plan(last.site, plan);
            }
        } else {
            let header = record.header_mut();
            header.site = site_of_plan(header.site, plan);
        }
    }
}
