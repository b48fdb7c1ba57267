//! Records of several kinds through the whole source, for a process with one function.

use abi::{AccessDescriptor, AccessRecord, CallRecord, Header, PlanNumber, WatchpointRecord};
use std::slice;

use checker::event::{RegionId, VarId};
use x86::commuting::{CommutingChange, CommutingUpdate};

use super::*;
use crate::{
    code_map::fake::FakeCode,
    stream::{Item, Mark},
};
use plan::{
    memory::{
        allocators::Allocator,
        site::{AccessPlace, AllocatorSite},
    },
    regions::{markers::Meaning, site::RegionSite},
};

const BEGIN: u32 = 0;
const END: u32 = 1;
const ACCESS: u32 = 2;
const MALLOC: u32 = 3;

fn sites() -> Vec<Site> {
    let access = AccessPlace {
        instruction: ProcessAddr(0x1000),
        returns_to: None,
        group: 0,
        commuting: None,
        stores: false,
        polls: false,
        is_library: false,
        sees_value: true,
    };
    let kinds = [
        RegionSite::Marker(Meaning::Begin("transfer".to_owned())).into(),
        RegionSite::Marker(Meaning::EndInnermost).into(),
        MemorySite::Access(access).into(),
        MemorySite::Allocator(AllocatorSite { role: Allocator::First, is_complete: true }).into(),
    ];
    let address = ProcessAddr(0x1000);
    kinds.into_iter().map(|kind| Site { address, kind }).collect()
}

fn header(tid: u32, site: u32, lost: u32) -> Header {
    Header { tid, site: SiteId::new(PlanNumber(0), site), lost, ..Header::default() }
}

fn region(kind: Kind, tid: u32, site: u32) -> Record {
    let header = header(tid, site, 0);
    Record::Region(kind, RegionRecord { header, sp: 0x100, ..RegionRecord::default() })
}

fn write(tid: u32, address: u64, epoch: u64, lost: u32) -> Record {
    let (header, flags) = (header(tid, ACCESS, lost), AccessDescriptor::WRITE.into());
    let access = AccessRecord { header, flags, epoch, address, size: 8, ..AccessRecord::default() };
    Record::Access(AccessRecord { sp: 0x100, ..access })
}

fn fork(tid: u32, child: u32) -> Record {
    Record::Fork(ForkRecord { header: header(tid, 0, 0), child, ..ForkRecord::default() })
}

fn exit(tid: u32) -> Record {
    Record::Exit(ExitRecord { header: header(tid, 0, 0), ..ExitRecord::default() })
}

fn source(records: &[Record]) -> Source {
    // mov [rdi],rax; ret
    let code = vec![0x48, 0x89, 0x07, 0xc3];
    let mut code = FakeCode { start: 0x1000, code, is_program: true, ..FakeCode::default() };
    let (mut source, sites) = (Source::new(1, 1), sites());
    source.extend(&sites, &code);
    for record in records {
        source.records(slice::from_ref(record), &sites, &mut code);
    }
    source
}

#[test]
fn a_transaction_of_one_thread_and_the_write_of_another() {
    let source = source(&[
        region(Kind::Begin, 1, BEGIN),
        fork(1, 2),
        write(1, 0x5000, 1, 0),
        write(2, 0x5000, 1, 0),
        region(Kind::EndInnermost, 1, END),
        exit(2),
    ]);
    let (main, other, variable) = (0, 1, VarId(0));
    assert_eq!(
        source.stream().ops(),
        [
            (main, Op::Begin(RegionId(0))),
            (main, Op::Fork(ThreadId(1))),
            (main, Op::Write(variable)),
            (other, Op::Write(variable)),
            (main, Op::End(None)),
            (other, Op::Exit),
        ]
    );
    let is_epoch = |item: &Item<'_>| matches!(item, Item::Mark(Mark::Epoch(_)));
    assert_eq!(source.stream().items().filter(is_epoch).count(), 2, "one of each thread");
    assert_eq!(source.regions().get(RegionId(0)).map(|known| &*known.name), Some("transfer"));
    assert!(source.threads().has_seen_exit() && !source.threads().has_lost_leader());
    assert!(source.shared_words().is_shared(0x5000));
    assert_eq!(*source.omissions(), Omissions::default());
}

#[test]
fn what_a_library_accesses_is_no_variable() {
    let code = vec![0x48, 0x89, 0x07, 0xc3];
    let mut code = FakeCode { start: 0x1000, code, is_program: true, ..FakeCode::default() };
    let (mut source, mut sites) = (Source::new(1, 1), sites());
    for site in &mut sites {
        if let SiteKind::Memory(MemorySite::Access(place)) = &mut site.kind {
            place.is_library = true;
        }
    }
    source.extend(&sites, &code);
    for record in [fork(1, 2), write(1, 0x5000, 1, 0), write(2, 0x5000, 1, 0)] {
        source.records(slice::from_ref(&record), &sites, &mut code);
    }
    assert_eq!(source.stream().ops(), [(0, Op::Fork(ThreadId(1)))]);
    assert_eq!(source.omissions().lock_accesses, 2);
    assert!(!source.shared_words().is_shared(0x5000));
}

#[test]
fn an_update_of_what_the_region_has_read_does_not_commute() {
    let code = vec![0x48, 0x89, 0x07, 0xc3];
    let mut code = FakeCode { start: 0x1000, code, is_program: true, ..FakeCode::default() };
    let (mut source, mut sites) = (Source::new(1, 1), sites());
    let mut update = sites[ACCESS as usize].clone();
    if let SiteKind::Memory(MemorySite::Access(place)) = &mut update.kind {
        let change = CommutingChange::Adds;
        place.commuting = Some(CommutingUpdate { change, is_atomic: true });
    }
    sites.push(update);
    source.extend(&sites, &code);
    let access = |flags: u8, site: usize| {
        let header = header(1, site as u32, 0);
        let access =
            AccessRecord { header, flags: flags.into(), epoch: 1, ..AccessRecord::default() };
        Record::Access(AccessRecord { address: 0x5000, size: 8, sp: 0x100, ..access })
    };
    let read = access(AccessDescriptor::READ, ACCESS as usize);
    let flags = AccessDescriptor::READ | AccessDescriptor::WRITE | AccessDescriptor::ATOMIC;
    let update = access(flags, sites.len() - 1);
    let (begin, end) = (region(Kind::Begin, 1, BEGIN), region(Kind::EndInnermost, 1, END));
    for record in [begin, update, read, update, end, update] {
        source.records(slice::from_ref(&record), &sites, &mut code);
    }
    let ops: Vec<Op> = source.stream().ops().into_iter().map(|(_, op)| op).collect();
    let is_commuting = |op: &Op| matches!(op, Op::CommutingUpdate(_));
    let found: Vec<bool> = ops.iter().map(is_commuting).collect();
    assert_eq!(found, [false, true, false, false, false, true], "{ops:?}");
}

/// That a thread has left a frame shows in accesses of its caller, which may be silent.
#[test]
fn data_on_stacks_is_unknown_once_accesses_are_left_out() {
    let (code, sites) = (vec![0x48, 0x89, 0x07, 0xc3], sites());
    let mut code = FakeCode { start: 0x1000, code, is_program: true, ..FakeCode::default() };
    let mut source = Source::new(1, 1);
    source.extend(&sites, &code);
    let own = |address| {
        let Record::Access(access) = write(1, address, 1, 0) else { unreachable!() };
        let flags = access.flags | AccessRecord::OWN_STACK;
        Record::Access(AccessRecord { flags, sp: 0x4000, ..access })
    };
    for record in [own(0x5000), write(2, 0x5000, 1, 0)] {
        source.records(slice::from_ref(&record), &sites, &mut code);
    }
    let writes = |thread, variable| (thread, Op::Write(VarId(variable)));
    assert_eq!(source.stream().ops(), [writes(0, 0), writes(1, 0)]);
    source.consume();
    source.accesses_are_partial();
    source.accesses_are_partial();
    source.records(slice::from_ref(&own(0x5000)), &sites, &mut code);
    // Another thread's access there is to another variable.
    source.records(slice::from_ref(&write(2, 0x5000, 1, 0)), &sites, &mut code);
    source.records(slice::from_ref(&write(1, 0x9000, 2, 0)), &sites, &mut code);
    let ops = source.stream().ops().into_iter();
    let written: Vec<_> = ops.filter(|(_, op)| matches!(op, Op::Write(_))).collect();
    assert_eq!(written, [writes(1, 1), writes(0, 2)]);
}

#[test]
fn a_loss_stands_before_the_record_that_shows_it() {
    let source = source(&[write(1, 0x5000, 1, 0), write(1, 0x5000, 1, 3)]);
    let mut items = source.stream().items().skip_while(|item| *item != Item::Mark(&Mark::Gap));
    assert!(items.next().is_some() && matches!(items.next(), Some(Item::Events(_))));
}

#[test]
fn records_of_other_sites_are_counted_and_make_no_events() {
    let header = header(1, ACCESS, 0);
    let source = source(&[
        Record::Call(Kind::Acquire, CallRecord { header, ..CallRecord::default() }),
        Record::Block(Kind::Alloc, BlockRecord { header, ..BlockRecord::default() }),
        Record::Region(Kind::Begin, RegionRecord { header, ..RegionRecord::default() }),
        Record::Jump(JumpRecord { header, ..JumpRecord::default() }),
        Record::Watchpoint(WatchpointRecord::default()),
    ]);
    assert!(source.stream().items().next().is_none());
    assert_eq!(source.omissions().foreign_records, 5);
}

#[test]
fn accesses_where_no_process_has_memory_are_counted_and_make_no_events() {
    let (code, sites) = (vec![0x48, 0x89, 0x07, 0xc3], sites());
    let mut code = FakeCode { start: 0x1000, code, is_program: true, ..FakeCode::default() };
    let mut source = Source::new(1, 1).with_memory_at(0x1_0000..1 << 47);
    source.extend(&sites, &code);
    // Of 8 bytes.
    let impossible = [0, 8, 0x2066, (1 << 47) - 7, 1 << 47, u64::MAX / 3, u64::MAX - 7, u64::MAX];
    for address in impossible {
        source.records(slice::from_ref(&write(1, address, 1, 0)), &sites, &mut code);
    }
    assert!(source.stream().ops().is_empty() && source.shared_words().candidates().count() == 0);
    assert_eq!(source.omissions().impossible_accesses, impossible.len() as u64);
    for address in [0x1_0000, (1 << 47) - 8] {
        source.records(slice::from_ref(&write(1, address, 1, 0)), &sites, &mut code);
    }
    assert_eq!(source.stream().ops().len(), 2);
}

#[test]
fn memory_that_is_given_out_again_is_another_variable() {
    let (header, address) = (header(1, MALLOC, 0), 0x5000);
    let block = BlockRecord { header, address, size: 8, ..BlockRecord::default() };
    let given = Record::Block(Kind::Alloc, block);
    let source =
        source(&[write(1, 0x5000, 0, 0), write(2, 0x5000, 0, 0), given, write(1, 0x5000, 0, 0)]);
    let (old, new) = (VarId(0), VarId(1));
    let expected =
        [(0, Op::Write(old)), (1, Op::Write(old)), (0, Op::Alloc(old)), (0, Op::Write(new))];
    assert_eq!(source.stream().ops(), expected);
    assert_eq!(source.memory().calls(), (1, 0));
    assert!(!source.shared_words().is_shared(0x5000));
}
