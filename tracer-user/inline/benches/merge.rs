//! Reading, merging and decoding of full rings: time of a record.
//!
//! The rings are filled by the thread that reads them, so that their slots are in its cache as far as they fit.

use std::{
    hint::black_box,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use abi::{AccessDescriptor, AccessRecord, CallRecord, Header, Kind, Record, ReturnRecord, SiteId};
use divan::{Bencher, counter::ItemsCount};
use inline::{
    arena::{Arena, ArenaLayout, Segment, ThreadStart},
    encoding::{RecordSite, encode},
    layout::{Mode, SLOT_BYTES},
    memory::{ProcessAddress, SharedWords, WORD},
    merge::{Merge, Patience, Surroundings},
    ring::Ring,
    sites::SiteTable,
    tracer::{Note, Notes},
};

fn main() {
    divan::main();
}

/// Slots of a ring.
const SLOTS: u64 = 4096;

/// Records of a batch at most, as the reader makes them.
const BATCH: usize = 4096;

/// Kinds of records, by the numbers of their sites: eight accesses in ten records.
const KINDS: [Kind; 3] = [Kind::Access, Kind::Acquire, Kind::Release];

struct Clocks;

impl Surroundings for Clocks {
    fn now(&mut self) -> u64 {
        u64::MAX
    }

    fn barrier(&mut self) {}

    fn elapsed(&mut self) -> Duration {
        Duration::ZERO
    }

    fn wake(&mut self) {}
}

/// Full rings, and who reads them.
struct Full {
    merge: Merge<Arc<[AtomicU64]>>,
    notes: Notes,
    sites: SiteTable,
    records: Vec<Record>,
}

/// Fills so many rings; threads make `burst` records at a time before another one's come.
fn full(rings: u64, burst: u64) -> Full {
    let layout = ArenaLayout { words: 0, cells: 0, slots: SLOTS, threads: rings };
    let words = layout.file_size() / WORD;
    let memory: Arc<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
    let mut arena = Arena::new(layout, ProcessAddress(0), &memory);
    let mut sites = SiteTable::default();
    for (number, kind) in (0..).zip(KINDS) {
        sites.add(SiteId(number), RecordSite { kind, point: 0x40_1000 });
    }
    let notes = Notes::default();
    for tid in 0..rings as u32 {
        let none = ProcessAddress(0);
        let mode = Mode::Lossless;
        let start = ThreadStart { tid, epoch: 0, stack: (none, none), mode };
        let segment = arena.start(start, &memory).expect("there is room");
        let ring = Box::new(Ring::new(segment, mode));
        notes.add(Note::Started { tid, process: 1, ring });
        fill(&memory, segment, |n| (n / burst * rings + u64::from(tid)) * burst + n % burst);
    }
    let merge = Merge::new(memory, Patience::default(), true);
    Full { merge, notes, sites, records: Vec::with_capacity(BATCH) }
}

fn fill(memory: &Arc<[AtomicU64]>, segment: Segment, order: impl Fn(u64) -> u64) {
    for n in 0..SLOTS {
        let kind = [Kind::Acquire, Kind::Release].get(n as usize % 10).copied();
        let record = record(kind.unwrap_or(Kind::Access), n);
        let encoded = encode(&record, order(n)).expect("a kind with slots");
        for (number, slot) in encoded.numbered(n) {
            let at = segment.slots().plus(number % SLOTS * SLOT_BYTES);
            let [a, b, c] = slot.frames;
            let words = [slot.head, slot.order, slot.argument, slot.sp, slot.extra, a, b, c];
            for (place, word) in (0..).zip(words) {
                memory.store(at.plus(place * WORD), word);
            }
        }
    }
    memory.store(segment.block, SLOTS);
}

fn record(kind: Kind, n: u64) -> Record {
    let number = KINDS.iter().position(|&known| known == kind).unwrap_or(0) as u32;
    let header = Header { kind: kind as u32, site: SiteId(number), ..Header::default() };
    let (address, sp) = (0x7000_0000 + n * 8, 0x7ffd_0000);
    match kind {
        Kind::Access => Record::Access(AccessRecord {
            header,
            flags: u32::from(AccessDescriptor::WRITE) | AccessRecord::HAS_VALUE,
            address,
            size: 8,
            sp,
            value: n,
            frames: [0, 0x40_2000, 0x40_3000, 0, 0, 0],
            ..AccessRecord::default()
        }),
        Kind::Acquire => Record::Return(
            kind,
            ReturnRecord { header, argument: address, sp, ..Default::default() },
        ),
        _ => Record::Call(kind, CallRecord { header, argument: address, sp, ..Default::default() }),
    }
}

/// Reads full rings to their ends.
fn read(bencher: Bencher<'_, '_>, rings: u64, burst: u64) {
    bencher
        .with_inputs(|| full(rings, burst))
        .input_counter(move |_| ItemsCount::new(rings * SLOTS))
        .bench_refs(|full| {
            let Full { merge, notes, sites, records } = full;
            loop {
                records.clear();
                let batch = merge.batch(&mut Clocks, sites, notes, records, BATCH);
                if batch.records == 0 {
                    break;
                }
                black_box(&records);
            }
        });
}

/// The threads' records come in bursts.
#[divan::bench(args = [1, 4, 16])]
fn bursts(bencher: Bencher<'_, '_>, rings: u64) {
    read(bencher, rings, 32);
}

/// Each record is of another thread than the one before.
#[divan::bench(args = [1, 4, 16])]
fn turns(bencher: Bencher<'_, '_>, rings: u64) {
    read(bencher, rings, 1);
}
