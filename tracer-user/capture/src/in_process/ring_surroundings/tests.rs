//! Real threads that record what they do under a lock, while their rings are merged.

use std::{
    hint::spin_loop,
    mem::size_of,
    sync::{
        Barrier, Mutex,
        atomic::Ordering::{Acquire, Relaxed, Release},
    },
    thread,
};

use abi::{CallRecord, Header, Kind, Record, ReturnRecord, SiteId};
use inline::{
    arena::{Arena, ArenaLayout, Segment, ThreadStart},
    encoding::{RecordSite, encode},
    layout::{Mode, SLOT_BYTES, ThreadBlock},
    memory::ProcessAddress,
    merge::{Losses, Merge, Patience},
    ring::Ring,
    sites::SiteTable,
    tracer::{Note, Notes},
};

use super::*;

const THREADS: u32 = 4;
const ROUNDS: u64 = 5_000;
const LOCK: u64 = 0x1000;

const SITES: [(u32, Kind); 2] = [(1, Kind::Acquire), (2, Kind::Release)];

/// Thread that records as a trampoline does.
struct Writer {
    surroundings: RingSurroundings,
    segment: Segment,
}

impl Writer {
    fn word(&self, at: u64) -> &AtomicU64 {
        &(*self.surroundings.memory).as_ref()[(at / WORD) as usize]
    }

    fn field(&self, offset: usize) -> &AtomicU64 {
        self.word(self.segment.block.0 + offset as u64)
    }

    fn record(&self, kind: Kind, number: u64) {
        let order = self.surroundings.order();
        let n = self.field(offset_of!(ThreadBlock, reserved)).load(Relaxed);
        self.field(offset_of!(ThreadBlock, reserved)).store(n + 1, Release);
        while n + 1 > self.field(offset_of!(ThreadBlock, limit)).load(Acquire) {
            thread::yield_now();
        }
        let header = Header { site: SiteId(site_of(kind)), ..Header::default() };
        let sp = number;
        let record = match kind {
            Kind::Acquire => Record::Return(
                kind,
                ReturnRecord { header, argument: LOCK, sp, ..ReturnRecord::default() },
            ),
            _ => Record::Call(
                kind,
                CallRecord { header, argument: LOCK, sp, ..CallRecord::default() },
            ),
        };
        let encoded = encode(&record, order).expect("a kind with slots");
        for (n, slot) in encoded.numbered(n) {
            let slots = self.segment.block.0 + size_of::<ThreadBlock>() as u64;
            let at = slots + n % self.segment.capacity * SLOT_BYTES;
            let words = [slot.order, slot.argument, slot.sp, slot.extra];
            for (place, word) in (1..).zip(words.into_iter().chain(slot.frames)) {
                self.word(at + place * WORD).store(word, Relaxed);
            }
            self.word(at).store(slot.head, Release);
        }
    }
}

fn site_of(kind: Kind) -> u32 {
    SITES.iter().find(|(_, known)| *known == kind).map_or(0, |&(number, _)| number)
}

fn site(kind: Kind) -> RecordSite {
    RecordSite { kind, point: 0 }
}

/// Has threads take a lock in turns, and returns the stream of their records.
fn run(clock: Clock) -> Vec<Record> {
    let layout = ArenaLayout { words: 0, cells: 0, slots: 256, threads: THREADS.into() };
    let memory = Arc::new(SharedMemory::new(layout.file_size()).unwrap());
    let mut arena = Arena::new(layout, ProcessAddress(0), &memory);
    let notes = Notes::default();
    let mut sites = SiteTable::default();
    SITES.into_iter().for_each(|(number, kind)| sites.add(SiteId(number), site(kind)));
    let (lock, ready) = (Mutex::new(0_u64), Barrier::new(THREADS as usize));
    let surroundings = || RingSurroundings::new(Arc::clone(&memory), clock);
    let mut records = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS)
            .map(|tid| {
                let stack = (ProcessAddress(0), ProcessAddress(0));
                let start = ThreadStart { tid, epoch: 0, stack, mode: Mode::Lossless };
                let segment = arena.start(start, &memory).unwrap();
                let ring = Box::new(Ring::new(segment, Mode::Lossless));
                notes.add(Note::Started { tid, process: 1, ring });
                let writer = Writer { surroundings: surroundings(), segment };
                let (lock, ready) = (&lock, &ready);
                scope.spawn(move || {
                    ready.wait();
                    for _ in 0..ROUNDS {
                        let mut number = lock.lock().unwrap();
                        writer.record(Kind::Acquire, *number);
                        *number += 1;
                        writer.record(Kind::Release, *number);
                        drop(number);
                        spin_loop();
                    }
                })
            })
            .collect();
        let mut merge = Merge::new(Arc::clone(&memory), Patience::default(), false);
        let mut around = surroundings();
        let mut batch = |records: &mut Vec<Record>| {
            merge.batch(&mut around, &sites, &notes, records, 64);
            (merge.threads(), merge.losses())
        };
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            batch(&mut records);
        }
        (1..=THREADS).for_each(|tid| notes.add(Note::Ended { tid }));
        while batch(&mut records).0 != 0 {}
        assert_eq!(batch(&mut records).1, Losses::default());
    });
    records
}

/// Critical sections of all threads come one after another, in their real order.
fn check(records: &[Record]) {
    assert_eq!(records.len() as u64, 2 * ROUNDS * u64::from(THREADS));
    for (number, pair) in (0..).zip(records.chunks_exact(2)) {
        let [Record::Return(Kind::Acquire, acquired), Record::Call(Kind::Release, released)] = pair
        else {
            panic!("critical section {number} overlaps with another one: {pair:?}");
        };
        assert_eq!(acquired.header.tid, released.header.tid, "critical section {number}");
        assert_eq!((acquired.sp, released.sp), (number, number + 1));
    }
}

#[test]
fn critical_sections_come_in_their_order_by_the_time_stamp_counter() {
    let choice = choose_clock();
    if choice.clock() != Clock::Tsc {
        println!("skipped: {choice}");
        return;
    }
    membarrier::register().unwrap();
    check(&run(Clock::Tsc));
}

#[test]
fn critical_sections_come_in_their_order_by_the_counter() {
    check(&run(Clock::Counter));
}
