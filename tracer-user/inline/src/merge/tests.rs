//! The merge of several rings: single cases here, and random ones against a plain model.

mod random;

use abi::{ExitRecord, ForkRecord, SiteId};

use super::*;
use crate::{
    arena::Arena,
    cell,
    encoding::{OWNED, RecordSite},
    layout::Mode,
    memory::Offset,
    testing::{LONG, SHORT, TestMemory, Writer, arena, number_of, sites, start},
};

/// Clocks that a test sets.
#[derive(Default)]
struct Clocks {
    now: u64,
    elapsed: Duration,
    woken: u32,
    barriers: u32,
    /// Highest order that is possible; `None` for any.
    latest: Option<u64>,
}

impl Surroundings for Clocks {
    fn now(&mut self) -> u64 {
        self.now
    }

    fn latest(&mut self) -> u64 {
        self.latest.unwrap_or(u64::MAX)
    }

    fn barrier(&mut self) {
        self.barriers += 1;
    }

    fn elapsed(&mut self) -> Duration {
        self.elapsed
    }

    fn wake(&mut self) {
        self.woken += 1;
    }
}

/// Process with some threads, whose ids begin at 1.
struct MergedProcess {
    memory: TestMemory,
    arena: Arena,
    notes: Notes,
    merge: Merge<TestMemory>,
    clocks: Clocks,
    sites: SiteTable,
    writers: Vec<Writer>,
    /// The latest batch has said so.
    has_more: bool,
}

const PROCESS: u32 = 4242;

fn process(threads: u32) -> MergedProcess {
    let (memory, arena) = arena(16, 8);
    let merge = Merge::new(memory.clone(), Patience::default(), true);
    let (notes, clocks, sites) = (Notes::default(), Clocks::default(), sites());
    let mut process = MergedProcess {
        memory,
        arena,
        notes,
        merge,
        clocks,
        sites,
        writers: Vec::new(),
        has_more: false,
    };
    (1..=threads).for_each(|tid| process.start(tid, Mode::Lossless));
    process
}

impl MergedProcess {
    fn start(&mut self, tid: u32, mode: Mode) {
        let segment = self.arena.start(start(tid, mode), &self.memory).unwrap();
        let ring = Box::new(Ring::new(segment, mode));
        self.notes.add(Note::Started { tid, process: PROCESS, ring });
        self.writers.push(Writer {
            memory: self.memory.clone(),
            segment,
            epoch: core::cell::Cell::default(),
        });
    }

    /// Hands on records up to an order.
    fn batch(&mut self, now: u64) -> Vec<Record> {
        self.batch_of(now, usize::MAX)
    }

    fn batch_of(&mut self, now: u64, most: usize) -> Vec<Record> {
        self.clocks.now = now + 1;
        let mut records = Vec::new();
        let batch =
            self.merge.batch(&mut self.clocks, &self.sites, &self.notes, &mut records, most);
        assert_eq!(batch.records, records.len());
        self.has_more = batch.has_more;
        records
    }

    fn numbers(&mut self, now: u64) -> Vec<u64> {
        self.batch(now).iter().map(number_of).collect()
    }
}

#[test]
fn records_come_in_the_order_of_their_clock() {
    let mut process = process(3);
    for (thread, order) in [(0, 1), (1, 2), (1, 3), (0, 4), (2, 5), (0, 6), (2, 7)] {
        process.writers[thread].record(SHORT, order, order);
    }
    assert_eq!((process.numbers(5), process.has_more), (vec![1, 2, 3, 4, 5], true));
    assert_eq!((process.numbers(7), process.has_more), (vec![6, 7], false));
    assert_eq!(process.numbers(7), [0_u64; 0]);
}

#[test]
fn a_full_batch_is_continued() {
    let mut process = process(2);
    for order in 0..10 {
        process.writers[(order % 2) as usize].record(LONG, order, order);
        if order == 6 {
            assert_eq!(process.batch_of(100, 4).len(), 4);
        }
    }
    let rest: Vec<u64> = process.numbers(100);
    assert_eq!(rest, [4, 5, 6, 7, 8, 9]);
}

#[test]
fn the_rest_of_a_full_batch_needs_no_other_barrier() {
    let mut process = process(2);
    for order in 0..6 {
        process.writers[(order % 2) as usize].record(SHORT, order, order);
    }
    assert_eq!((process.batch_of(4, 3).len(), process.clocks.barriers), (3, 1));
    // A time that was read before the barrier.
    assert_eq!((process.numbers(100), process.clocks.barriers), (vec![3, 4], 1));
    assert_eq!((process.numbers(100), process.clocks.barriers), (vec![5], 2));
}

#[test]
fn headers_have_the_thread_the_site_and_the_process() {
    let mut process = process(2);
    process.writers[1].record(SHORT, 1, 10);
    let header = *process.batch(1)[0].header();
    assert_eq!((header.tid, header.process, header.site), (2, PROCESS, SiteId(SHORT)));
    assert_eq!((header.kind, header.lost), (Kind::Init as u32, 0));
}

#[test]
fn records_of_the_tracer_have_their_place() {
    let mut process = process(1);
    process.writers[0].record(SHORT, 1, 1);
    let header = |kind: Kind, tid| Header { kind: kind as u32, tid, ..Header::default() };
    let fork = ForkRecord { header: header(Kind::Fork, 1), child: 2, ..ForkRecord::default() };
    process.notes.record(Record::Fork(fork), || 2);
    process.start(2, Mode::Lossless);
    process.writers[1].record(SHORT, 3, 3);
    process.writers[0].record(SHORT, 4, 4);
    let exit = ExitRecord { header: header(Kind::Exit, 2), ..ExitRecord::default() };
    process.notes.record(Record::Exit(exit), || 5);
    process.notes.add(Note::Ended { tid: 2 });
    let kinds: Vec<Kind> = process.batch(4).iter().map(Record::kind).collect();
    assert_eq!(kinds, [Kind::Init, Kind::Fork, Kind::Init, Kind::Init]);
    let exit = process.batch(5);
    assert_eq!((exit[0].kind(), exit[0].header().tid), (Kind::Exit, 2));
    assert_eq!(process.merge.threads(), 1);
    let drained = process.merge.take_drained();
    assert_eq!(drained, [Segment { first: 1, ..process.writers[1].segment }]);
}

#[test]
fn between_windows_there_is_a_gap_without_records() {
    let mut process = process(2);
    let window = |process: &MergedProcess, begins, order| process.notes.window(begins, || order);
    process.writers[0].record(SHORT, 1, 1);
    window(&process, false, 3);
    // Threads that have not seen the switches yet.
    process.writers[1].record(SHORT, 2, 2);
    process.writers[1].record(SHORT, 4, 4);
    take(&process.writers[0], 5, 2, 3, 9);
    window(&process, true, 7);
    process.writers[0].record(SHORT, 6, 6);
    process.writers[0].record(LONG, 8, 8);
    process.writers[1].record(SHORT, 9, 9);
    let records = process.batch(10);
    assert_eq!(records.iter().map(number_of).collect::<Vec<_>>(), [1, 2, 8, 9]);
    assert_eq!(records.iter().map(|r| r.header().lost).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_eq!(process.merge.losses(), Losses::default(), "nothing was lost");
    // A window that has begun already.
    window(&process, true, 11);
    process.writers[0].record(SHORT, 12, 12);
    assert_eq!(process.batch(13)[0].header().lost, 1);
}

#[test]
fn between_windows_records_of_the_tracer_go_on() {
    let mut process = process(1);
    process.notes.window(false, || 1);
    let header = Header { kind: Kind::Fork as u32, tid: 1, ..Header::default() };
    let fork = ForkRecord { header, child: 2, ..ForkRecord::default() };
    process.notes.record(Record::Fork(fork), || 2);
    process.writers[0].record(SHORT, 3, 3);
    let records = process.batch(4);
    assert_eq!(records.iter().map(Record::kind).collect::<Vec<_>>(), [Kind::Fork]);
    assert_eq!(records[0].header().lost, 1, "regions that were open are not any more");
}

#[test]
fn records_have_the_epochs_of_their_slots() {
    let mut process = process(1);
    let site = |kind| RecordSite { kind, point: 0 };
    process.sites = SiteTable::default();
    process.sites.add(SiteId(SHORT), site(Kind::Release));
    let mut epochs = |kind, order, epoch| {
        process.sites.add(SiteId(SHORT), site(kind));
        process.writers[0].record_in(epoch, SHORT, order, 1);
        match process.batch(order)[0] {
            Record::Call(_, record) => record.epoch,
            Record::Access(record) => record.epoch,
            ref other => panic!("{other:?}"),
        }
    };
    let kinds = [Kind::Release, Kind::Access, Kind::Access, Kind::Release, Kind::Access];
    let found = [1, 2, 3, 4, 5].map(|n| epochs(kinds[n - 1], n as u64, 0x7fff * n as u64));
    assert_eq!(found, [0, 0xfffe, 0x1_7ffd, 0x1_fffc, 0x2_7ffb], "0 before the first access");
}

/// Publishes the record of a deferred access of a block's thread.
fn take(writer: &Writer, order: u64, number: u64, epoch: u64, site: u64) {
    const WORD: u64 = 0x1234;
    let reserved = writer.reserve(OWNED.0);
    let owner = WORD | number << cell::WORD_BITS | 0xff << (cell::WORD_BITS + cell::THREAD_BITS);
    let access = epoch | site << cell::EPOCH_BITS;
    let words = [order, owner, 0, access, 16, 0, 0];
    writer.publish_words(reserved, words);
}

#[test]
fn deferred_accesses_are_of_the_thread_that_had_the_block() {
    let mut process = process(2);
    take(&process.writers[1], 5, 1, 3, 9);
    let records = process.batch(10);
    let [Record::Owned(record)] = &records[..] else { panic!("{records:?}") };
    let expected = LastAccess { epoch: 3, sp: 0, site: SiteId(9), bytes: 0xff };
    assert_eq!((record.owner, record.header.tid, record.address), (1, 2, 0x1234 << 3));
    assert_eq!((record.write, record.read), (LastAccess::default(), expected));
    take(&process.writers[1], 11, 7, 3, 9);
    assert_eq!(process.batch(20).len(), 0);
    assert_eq!(process.merge.losses().late, 1, "of an unknown thread");
}

#[test]
fn a_deferred_access_behind_what_follows_from_it_is_lost() {
    let mut process = process(2);
    process.writers[0].record(SHORT, 20, 1);
    assert_eq!(process.batch(30).len(), 1);
    take(&process.writers[1], 15, 1, 3, 9);
    let [] = process.batch(30)[..] else { panic!("it is too late") };
    assert_eq!(process.merge.losses().late, 1);
    process.writers[0].record(SHORT, 40, 1);
    assert_eq!(process.batch(50)[0].header().lost, 1, "a gap");
}

#[test]
fn void_slots_are_no_records() {
    let mut process = process(1);
    let reserved = process.writers[0].reserve(VOID.0);
    process.writers[0].publish_words(reserved, [1, 0, 0, 0, 0, 0, 0]);
    process.writers[0].record(SHORT, 2, 1);
    assert_eq!(process.batch(10).len(), 1);
    assert_eq!(process.merge.losses(), Losses::default());
}

#[test]
fn records_of_impossible_orders_are_counted_and_hold_up_nothing() {
    let mut process = process(2);
    process.clocks.latest = Some(10);
    process.writers[0].record(LONG, u64::MAX, 1);
    process.writers[0].record(SHORT, 11, 2);
    process.writers[0].record(SHORT, 3, 3);
    process.writers[1].record(SHORT, 2, 4);
    process.writers[1].record(SHORT, 9, 5);
    let records = process.batch(5);
    assert_eq!(records.iter().map(number_of).collect::<Vec<_>>(), [4, 3], "in their order");
    assert_eq!(records.iter().map(|r| r.header().lost).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(process.merge.losses(), Losses { unreadable: 2, ..Losses::default() });
    assert_eq!(process.numbers(9), [5], "a possible one is waited for");
}

#[test]
fn at_the_end_nothing_is_held_back() {
    let mut process = process(2);
    process.clocks.latest = Some(1_000);
    let header = Header { kind: Kind::Exit as u32, tid: 2, ..Header::default() };
    process.notes.record(Record::Exit(ExitRecord { header, ..ExitRecord::default() }), || u64::MAX);
    let _never = process.writers[0].reserve(SHORT);
    process.writers[0].record(SHORT, 500, 1);
    process.writers[1].record(SHORT, 600, 2);
    assert_eq!(
        process.numbers(9),
        [0_u64; 0],
        "the clock stands still, as the program can have it do"
    );
    process.merge.end();
    process.start(3, Mode::Lossless);
    process.writers[2].record(SHORT, 700, 3);
    assert_eq!(process.batch(9).len(), 4);
    assert!(!process.has_more);
    assert_eq!((process.merge.threads(), process.merge.losses().unpublished), (0, 1));
}

#[test]
fn unknown_sites_are_counted_and_leave_a_gap() {
    let mut process = process(1);
    process.sites = SiteTable::default();
    let short = *sites().get(SiteId(SHORT)).unwrap();
    process.sites.add(SiteId(SHORT), short);
    process.writers[0].record(SHORT, 1, 1);
    process.writers[0].record(LONG, 2, 2);
    process.writers[0].record(SHORT, 3, 3);
    let lost: Vec<u32> = process.batch(9).iter().map(|record| record.header().lost).collect();
    assert_eq!(lost, [0, 1]);
    let losses = Losses { unreadable: 1, ..Losses::default() };
    assert_eq!(process.merge.losses(), losses);
}

#[test]
fn what_may_follow_from_a_handlers_record_waits_for_the_interrupted_one() {
    let mut process = process(2);
    let outer = process.writers[0].reserve(SHORT);
    process.writers[0].record(SHORT, 5, 5);
    process.writers[1].record(SHORT, 4, 4);
    process.writers[1].record(SHORT, 6, 6);
    assert_eq!((process.numbers(9), process.has_more), (vec![4], true));
    process.clocks.elapsed = Duration::from_millis(999);
    assert_eq!((process.numbers(9), process.has_more), (vec![], true));
    process.writers[0].publish(outer, 3, 3);
    assert_eq!(process.numbers(9), [3, 5, 6]);
}

#[test]
fn a_handler_that_does_not_return_costs_one_event() {
    let mut process = process(2);
    let _never = process.writers[0].reserve(SHORT);
    process.writers[0].record(SHORT, 5, 5);
    process.writers[1].record(SHORT, 6, 6);
    assert_eq!(process.numbers(9), [0_u64; 0]);
    process.clocks.elapsed = Duration::from_secs(1);
    let records = process.batch(9);
    assert_eq!(records.iter().map(number_of).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(records[0].header().lost, 1);
    assert_eq!(process.merge.losses().unpublished, 1);
}

#[test]
fn a_thread_that_is_stopped_holds_up_others_for_a_moment_only() {
    let mut process = process(2);
    process.writers[0].record(SHORT, 1, 1);
    let stopped = process.writers[0].reserve(SHORT);
    process.writers[1].record(SHORT, 4, 4);
    assert_eq!(process.numbers(9), [1]);
    process.clocks.elapsed = Duration::from_millis(1);
    assert_eq!(process.numbers(9), [4]);
    process.writers[1].record(SHORT, 10, 10);
    assert_eq!(process.numbers(20), [10]);
    process.writers[0].publish(stopped, 2, 2);
    assert_eq!(process.numbers(20), [2], "nothing has followed from it");
    assert_eq!(process.merge.losses(), Losses::default());
}

#[test]
fn waiting_threads_are_woken() {
    let mut process = process(1);
    let word = |process: &MergedProcess, offset: usize| process.memory.load(Offset(offset as u64));
    (0..16).for_each(|number| assert!(process.writers[0].record(SHORT, 1, number)));
    let waiting = process.writers[0].reserve(SHORT);
    process.memory.store(Offset(offset_of!(Control, waiting) as u64), 1);
    assert_eq!(process.batch(9).len(), 16);
    assert!(process.writers[0].has_room(waiting));
    assert_eq!((process.clocks.woken, word(&process, 0) >> 32), (1, 1));
    process.writers[0].publish(waiting, 10, 10);
    assert_eq!(process.numbers(10), [10]);
    assert_eq!(process.clocks.woken, 1, "no limit has moved");
    let writer = &process.writers[0];
    process.memory.store(writer.field(offset_of!(ThreadBlock, waits)), 3);
    assert_eq!(process.merge.waits(), 3);
    process.notes.add(Note::Ended { tid: 1 });
    process.batch(10);
    assert_eq!((process.merge.threads(), process.merge.waits()), (0, 3), "of all that were");
}

#[test]
fn a_counter_that_the_program_has_turned_back_counts_as_before() {
    let mut process = process(1);
    process.batch(1);
    let field = process.writers[0].field(offset_of!(ThreadBlock, waits));
    for (written, counted) in [(3, 3), (1, 3), (u64::MAX, u64::MAX), (0, u64::MAX)] {
        process.memory.store(field, written);
        assert_eq!(process.merge.waits(), counted, "{written} was written");
    }
}

#[test]
fn losses_are_counted() {
    let mut process = process(0);
    process.start(1, Mode::Drop);
    for number in 0..20 {
        process.writers[0].record(SHORT, number, number);
    }
    assert_eq!(process.batch(99).len(), 16);
    assert_eq!(process.merge.losses(), Losses { full: 4, ..Losses::default() });
    assert_eq!(process.writers[0].load(offset_of!(ThreadBlock, lost)), 4);
    process.writers[0].record(SHORT, 30, 30);
    assert_ne!(process.batch(99)[0].header().lost, 0);
}

#[test]
fn many_short_threads_share_the_rings_of_a_few() {
    const AT_ONCE: u32 = 500;
    let (memory, mut arena) = arena(16, AT_ONCE.into());
    let mut merge = Merge::new(memory.clone(), Patience::default(), true);
    let (notes, sites, mut clocks) = (Notes::default(), sites(), Clocks::default());
    let mut records = Vec::new();
    for round in 0..200_u64 {
        for tid in 1..=AT_ONCE {
            let segment = arena.start(start(tid, Mode::Lossless), &memory).unwrap();
            let ring = Box::new(Ring::new(segment, Mode::Lossless));
            notes.add(Note::Started { tid, process: PROCESS, ring });
            let writer =
                Writer { memory: memory.clone(), segment, epoch: core::cell::Cell::default() };
            assert!(writer.record(SHORT, round * 1000 + u64::from(tid), tid.into()));
            notes.add(Note::Ended { tid });
        }
        records.clear();
        clocks.now = (round + 1) * 1000;
        merge.batch(&mut clocks, &sites, &notes, &mut records, usize::MAX);
        assert!(records.iter().map(number_of).eq(1..=u64::from(AT_ONCE)), "round {round}");
        assert_eq!(merge.threads(), 0);
        merge.take_drained().into_iter().for_each(|segment| arena.release(segment));
    }
}

#[test]
fn where_nothing_happens_no_thread_is_interrupted() {
    let mut process = process(2);
    process.writers[0].record(SHORT, 1, 1);
    assert_eq!((process.numbers(5), process.clocks.barriers), (vec![1], 1));
    assert_eq!((process.numbers(6), process.clocks.barriers), (vec![], 1));
    process.writers[1].record(SHORT, 7, 7);
    assert_eq!((process.numbers(6), process.clocks.barriers), (vec![], 2));
    assert_eq!((process.numbers(7), process.clocks.barriers), (vec![7], 3));
    process.writers[1].reserve(SHORT);
    assert_eq!((process.numbers(8), process.clocks.barriers), (vec![], 4));
    process.notes.add(Note::Ended { tid: 2 });
    assert_eq!((process.numbers(9), process.clocks.barriers), (vec![], 5));
    assert_eq!((process.numbers(9), process.clocks.barriers), (vec![], 5));
    assert_eq!((process.merge.threads(), process.merge.losses().begun), (1, 1));
}
