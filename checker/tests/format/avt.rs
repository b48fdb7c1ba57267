//! The binary format: everything that can be written is read back, cut files are read up to where they are
//! whole, and damage is found wherever it is.

use crate::support::{Trace, error};
use checker::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use checker::format::{
    AvtWriter, CodeAddress, Frame, Gap, Location, LocationKind, Lost, Module, NO_LOCATION, Object,
    ObjectKind, ObservedValue, Process, Property, ReadOptions, Region, SourceExcerpt, Thread,
    TraceReader, WriteError, convert, numbered_location,
};

type Writer = AvtWriter<Vec<u8>>;

fn event(op: Op) -> Event {
    Event { thread: ThreadId(0), op, location: NO_LOCATION }
}

fn frame<'a>(function: &'a str, file: &'a str, line: u32) -> Frame<'a> {
    let (function, file) = (Some(function), Some(file));
    Frame { function, file, line: Some(line), ..Frame::default() }
}

const VALUE: ObservedValue =
    ObservedValue { event: 1, before: Some(7), after: 9, length: 8, written: true };

/// A trace with something of everything.
fn everything() -> Writer {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    let named = |name: &str| Some(name.to_owned());
    let build_id = vec![1, 2, 3];
    let module = Module { path: "/usr/bin/bank".to_owned(), build_id, load_bias: 0x5555_0000 };
    let module = writer.module(&module).unwrap();
    let stack = vec![
        CodeAddress { module: Some(module), address: 0x1234 },
        CodeAddress { module: None, address: 0x7fff_0000 },
    ];
    let location = Location { label: None, kind: LocationKind::Access, stack };
    writer.location(LocationId(0), &location).unwrap();
    let label = Location { label: named("bank.c:7"), ..Location::default() };
    writer.location(LocationId(1), &label).unwrap();
    writer.thread(ThreadId(0), &Thread { name: None, tid: Some(4711) }).unwrap();
    let region = Region { name: "transfer".to_owned(), location: Some(LocationId(1)) };
    writer.region(RegionId(0), &region).unwrap();
    let object = Object {
        name: named("balance"),
        address: Some(0x1000),
        size: Some(8),
        location: Some(LocationId(0)),
        ..Object::new(ObjectKind::Variable)
    };
    writer.variable(VarId(0), &object).unwrap();
    writer.lock(LockId(0), &Object::new(ObjectKind::Mutex)).unwrap();
    writer.sync(SyncId(0), &Object::new(ObjectKind::Barrier)).unwrap();
    writer.event(&event(Op::Begin(RegionId(0)))).unwrap();
    writer.value(VALUE).unwrap();
    let location = LocationId(0);
    writer.event(&Event { location, ..event(Op::Write(VarId(0))) }).unwrap();
    writer.gap(Gap { lost: Some(5) }).unwrap();
    writer.gap(Gap { lost: None }).unwrap();
    writer.flush().unwrap();
    let location = numbered_location(3).unwrap();
    writer.event(&Event { location, ..event(Op::Acquire(LockId(0))) }).unwrap();
    writer.event(&event(Op::Arrive(SyncId(0)))).unwrap();
    let inner = frame("lock", "mutex.h", 3);
    let inner = Frame { is_inlined: true, is_wrapper: true, is_library: true, ..inner };
    let outer = Frame { column: Some(9), module: Some("bank"), ..frame("transfer", "bank.c", 45) };
    let outer = Frame { declared: Some(40), ..outer };
    writer.frames(LocationId(0), &[inner, outer]).unwrap();
    writer.frames(LocationId(1), &[frame("transfer", "bank.c", 7), Frame::default()]).unwrap();
    writer.thread(ThreadId(0), &Thread { name: named("main"), tid: Some(4711) }).unwrap();
    let argv = vec!["./bank".to_owned(), "-v".to_owned()];
    let process = Process { pid: Some(77), argv, exit_code: None, signal: Some(6) };
    writer.process(&process).unwrap();
    writer.lost(&Lost { class: "lock".to_owned(), count: 5 }).unwrap();
    let (key, value) = ("note".to_owned(), "anything".to_owned());
    writer.property(&Property { key, value }).unwrap();
    writer.excerpt(&excerpt()).unwrap();
    writer
}

fn excerpt() -> SourceExcerpt {
    let lines = vec!["{".to_owned(), "    lock();".to_owned(), String::new()];
    SourceExcerpt { file: "bank.c".to_owned(), first_line: 44, lines }
}

#[track_caller]
fn has_everything(trace: &Trace) {
    assert_eq!(trace.names.excerpts(), [excerpt()]);
    let ops: Vec<Op> = trace.events.iter().map(|event| event.op).collect();
    let acquire = Op::Acquire(LockId(0));
    let begin = Op::Begin(RegionId(0));
    assert_eq!(ops, [begin, Op::Write(VarId(0)), acquire, Op::Arrive(SyncId(0))]);
    assert_eq!(trace.events[1].location, LocationId(0));
    assert_eq!(trace.events[2].location, numbered_location(3).unwrap());
    assert_eq!(trace.gaps, [(2, Gap { lost: Some(5) }), (2, Gap { lost: None })]);
    assert_eq!(trace.values, [VALUE]);
    assert_eq!((trace.summary.lost, trace.summary.truncated), (5, None));
    let names = &trace.names;
    let thread = names.thread(ThreadId(0)).unwrap();
    assert_eq!((thread.name.as_deref(), thread.tid), (Some("main"), Some(4711)));
    let region = names.region(RegionId(0)).unwrap();
    assert_eq!((region.name.as_str(), region.location), ("transfer", Some(LocationId(1))));
    let balance = names.variable(VarId(0)).unwrap();
    assert_eq!((balance.name.as_deref(), balance.address), (Some("balance"), Some(0x1000)));
    assert_eq!((balance.size, balance.location), (Some(8), Some(LocationId(0))));
    assert_eq!(names.lock(LockId(0)).unwrap(), Object::new(ObjectKind::Mutex));
    assert_eq!(names.sync(SyncId(0)).unwrap(), Object::new(ObjectKind::Barrier));
    let location = names.location(LocationId(0)).unwrap();
    assert_eq!((location.kind, location.stack.len()), (LocationKind::Access, 2));
    let module = names.module(location.stack[0].module.unwrap()).unwrap();
    assert_eq!((module.path.as_str(), module.load_bias), ("/usr/bin/bank", 0x5555_0000));
    assert_eq!(module.build_id, [1, 2, 3]);
    assert_eq!(names.label(LocationId(1)).as_deref(), Some("bank.c:7"));
    let frames: Vec<_> = names.frames(LocationId(0)).collect();
    assert!(frames[0].is_inlined && frames[0].is_wrapper);
    assert_eq!((frames[1].function, frames[1].file), (Some("transfer"), Some("bank.c")));
    assert_eq!((frames[1].line, frames[1].column), (Some(45), Some(9)));
    assert_eq!((frames[0].declared, frames[1].declared), (None, Some(40)));
    assert_eq!(frames[1].module, Some("bank"));
    assert_eq!(names.frames(LocationId(1)).count(), 2);
    let process = names.process().unwrap();
    assert_eq!((process.pid, process.exit_code, process.signal), (Some(77), None, Some(6)));
    assert_eq!(process.argv, ["./bank", "-v"]);
    assert_eq!(names.lost(), [Lost { class: "lock".to_owned(), count: 5 }]);
    assert_eq!((names.properties()[0].key.as_str(), names.properties().len()), ("note", 1));
}

/// A block with right checksums.
fn block(kind: u16, records: u32, first_event: u64, number: u32, payload: &[u8]) -> Vec<u8> {
    let mut body = payload.to_vec();
    body.resize(body.len().next_multiple_of(8), 0);
    let mut block = b"avtB".to_vec();
    block.extend(u32::from(kind).to_le_bytes());
    block.extend((payload.len() as u32).to_le_bytes());
    block.extend(records.to_le_bytes());
    block.extend(first_event.to_le_bytes());
    block.extend(number.to_le_bytes());
    block.extend([0; 4]);
    block.extend(crc32fast::hash(&body).to_le_bytes());
    block.extend(crc32fast::hash(&block).to_le_bytes());
    block.extend(body);
    block
}

#[test]
fn packed_blocks_that_cannot_be_are_refused() {
    // Operation and its bits, widths of the columns; thread, object and location.
    let columns = |first: [u8; 5], bases: [u32; 3]| {
        [&first[..], &[0; 3], &bases.map(u32::to_le_bytes).concat()].concat()
    };
    let whole = [columns([2, 0, 1, 0, 0], [0; 3]), vec![0; 3]].concat();
    let end = event(Op::End(None));
    let of = |kind: u16, records: u32, payload: &[u8]| {
        let mut writer = AvtWriter::new(Vec::new()).unwrap();
        writer.thread(ThreadId(0), &Thread::default()).unwrap();
        writer.flush().unwrap();
        let start = writer.get_ref().len();
        let file = [&writer.into_inner()[..], &block(kind, records, 0, 1, payload)].concat();
        let start = format!("t: block 1 at byte {start}: ");
        Trace::of(&file)
            .map(|trace| trace.events)
            .map_err(|error| error.to_string().replace(&start, ""))
    };
    assert_eq!(of(5, 3, &whole), Ok(vec![end; 3]));
    let refused = |what: &str| Err(format!("record 0: {what}"));
    let length = refused("the block's length is not that of its records");
    for (records, payload) in [
        (2, &whole[..]),
        (4, &whole),
        (u32::MAX, &whole),
        (3, &whole[..19]),
        (0, &[]),
        (3, &[columns([2, 9, 1, 0, 0], [0; 3]), vec![0; 3]].concat()),
        (3, &[columns([2, 0, 0, 0, 0], [0; 3])].concat()),
        (3, &[columns([2, 0, 1, 5, 0], [0; 3]), vec![0; 18]].concat()),
    ] {
        assert_eq!(of(5, records, payload), length);
    }
    // A base and a difference from it that have no sum.
    let far = [columns([2, 0, 1, 0, 0], [u32::MAX, 0, 0]), vec![0, 2]].concat();
    assert_eq!(of(5, 2, &far), refused("a thread that is not defined"));
    let unknown = [columns([200, 0, 1, 0, 0], [0; 3]), vec![0]].concat();
    let what = "an operation that does not exist, or of objects of which none are defined";
    assert_eq!(of(5, 1, &unknown), refused(what));
    let undefined = [columns([2, 0, 1, 0, 1], [0; 3]), vec![0, 2]].concat();
    assert_eq!(of(5, 1, &undefined), refused("a location that is not defined"));

    assert_eq!(of(6, 1, &[0, 0, 1]), Ok(Vec::new()));
    assert_eq!(of(6, 2, &[0, 0, 1]), refused("a value that goes past its block"));
    assert_eq!(of(6, 1, &[0, 0, 1, 0]), length);
    assert_eq!(of(6, 1 << 17, &[0; 3]), refused("more values than a block may have"));
    let last = [[0xff; 9].as_slice(), &[1, 0, 0]].concat();
    assert_eq!(of(6, 1, &last), Ok(Vec::new()));
    assert_eq!(of(6, 2, &[&last[..], &[0, 0, 0]].concat()), refused("values out of order"));
    let overlong = [[0xff; 9].as_slice(), &[2, 0, 0]].concat();
    assert_eq!(of(6, 1, &overlong), refused("a value that goes past its block"));

    let past = refused("a definition that goes past its block");
    let field = refused("a definition with a field that is cut or not UTF-8");
    assert_eq!(of(7, 1, &[1, 0x7f, 0]), past);
    assert_eq!(of(7, 1, &[]), past);
    // A location with more addresses than there are bytes, and one whose number of addresses is too large.
    assert_eq!(of(7, 1, &[8, 9, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf]), field);
    assert_eq!(of(7, 1, &[8, 10, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xf]), field);
}

#[test]
fn everything_is_read_back() {
    let file = everything().finish().unwrap();
    has_everything(&Trace::of(&file).unwrap());
    for at_once in [1, 40, 1000] {
        has_everything(&Trace::trickled(&file, at_once).unwrap());
    }
}

#[test]
fn a_copy_has_everything_too() {
    let file = everything().finish().unwrap();
    let mut copy = AvtWriter::new(Vec::new()).unwrap();
    convert(&mut TraceReader::from_bytes(&file, ReadOptions::new("t")).unwrap(), &mut copy)
        .unwrap();
    has_everything(&Trace::of(&copy.into_inner()).unwrap());
}

#[test]
fn a_file_without_footer_is_read_and_says_so() {
    let mut writer = everything();
    writer.flush().unwrap();
    let file = writer.into_inner();
    let mut trace = Trace::of(&file).unwrap();
    assert_eq!(trace.summary.truncated, Some(file.len() as u64));
    trace.summary.truncated = None;
    has_everything(&trace);
}

/// A trace of several blocks of events.
fn blocks() -> Vec<u8> {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    writer.thread(ThreadId(0), &Thread::default()).unwrap();
    for id in 0..50 {
        writer.variable(VarId(id), &Object::new(ObjectKind::Variable)).unwrap();
        writer.event(&event(Op::Read(VarId(id)))).unwrap();
        if id % 10 == 9 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap()
}

#[test]
fn a_cut_file_reads_up_to_its_last_whole_block() {
    let file = blocks();
    let whole = Trace::of(&file).unwrap().events;
    assert_eq!(whole.len(), 50);
    let mut counts = Vec::new();
    for length in 32..file.len() {
        let trace = Trace::of(&file[..length]).unwrap();
        let end = trace.summary.truncated.expect("it was cut");
        assert!((32..=length as u64).contains(&end) && end.is_multiple_of(8), "{length}: {end}");
        assert_eq!(trace.events, whole[..trace.events.len()]);
        counts.push(trace.events.len());
    }
    assert!(counts.is_sorted());
    counts.dedup();
    assert_eq!(counts, [0, 10, 20, 30, 40, 50]);
    assert_eq!(error(&file[..31]), "t: the file ends inside its header, after 31 of 32 bytes");
    assert_eq!(error(&file[..1]), "t: the file ends inside its header, after 1 of 32 bytes");
}

#[test]
fn every_flipped_bit_is_found() {
    let file = blocks();
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = Trace::of(&damaged).expect_err("damaged").to_string();
        let place = if bit < 32 * 8 { "t" } else { "t: block " };
        assert!(error.starts_with(place), "bit {bit}: {error}");
    }
}

#[test]
fn damage_is_named_with_its_block() {
    let file = blocks();
    // The first block is of definitions, the second of events.
    let second = 32 + 40 + (file[32 + 8] as usize).next_multiple_of(8) + 256;
    let starts: Vec<usize> =
        (0..file.len() - 4).filter(|&at| &file[at..at + 4] == b"avtB").collect();
    assert!(second > 0 && starts[0] == 32);
    let mut damaged = file.clone();
    damaged[starts[1] + 41] ^= 1;
    let error = error(&damaged);
    let expected = format!("t: block 1 at byte {}: the block is damaged: checksum 0x", starts[1]);
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn blocks_that_are_missing_doubled_or_moved_are_noticed() {
    let file = blocks();
    let starts: Vec<usize> =
        (0..file.len() - 4).filter(|&at| &file[at..at + 4] == b"avtB").collect();
    let block = |index: usize| &file[starts[index]..starts[index + 1]];
    let without = [&file[..starts[2]], &file[starts[3]..]].concat();
    let doubled = [&file[..starts[2]], block(1), &file[starts[2]..]].concat();
    let moved = [&file[..starts[1]], block(3), block(2), block(1), &file[starts[4]..]].concat();
    for damaged in [without, doubled, moved] {
        let error = error(&damaged);
        assert!(error.contains("but event"), "{error}");
    }
    let longer = [&file[..], b"more"].concat();
    assert!(error(&longer).ends_with("the file goes on after its footer"));
}

#[test]
fn undefined_ids_are_refused_by_the_writer() {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    let undefined = |result: Result<(), WriteError>, expected: &str| {
        assert_eq!(result.unwrap_err().to_string(), expected);
    };
    undefined(writer.event(&event(Op::End(None))), "thread 0 is used, but 0 are defined");
    writer.thread(ThreadId(0), &Thread::default()).unwrap();
    for (op, expected) in [
        (Op::Begin(RegionId(2)), "region 2 is used, but 0 are defined"),
        (Op::End(Some(RegionId(2))), "region 2 is used, but 0 are defined"),
        (Op::Free(VarId(0)), "variable 0 is used, but 0 are defined"),
        (
            Op::SplitVariable { from: VarId(0), to: VarId(1) },
            "variable 0 is used, but 0 are defined",
        ),
        (Op::ReleaseShared(LockId(0)), "lock 0 is used, but 0 are defined"),
        (Op::Wait(SyncId(0)), "synchronisation object 0 is used, but 0 are defined"),
        (Op::Join(ThreadId(1)), "thread 1 is used, but 1 are defined"),
    ] {
        undefined(writer.event(&event(op)), expected);
    }
    let location = LocationId(0);
    let end = Event { location, ..event(Op::End(None)) };
    undefined(writer.event(&end), "location 0 is used, but 0 are defined");
    undefined(writer.frames(location, &[]), "location 0 is used, but 0 are defined");
    undefined(writer.thread(ThreadId(2), &Thread::default()), "thread 2 is defined, but 1 is next");
    assert_eq!(Trace::of(&writer.finish().unwrap()).unwrap().events, []);
}

#[test]
fn values_come_with_their_events() {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    writer.thread(ThreadId(0), &Thread::default()).unwrap();
    writer.variable(VarId(0), &Object::new(ObjectKind::Variable)).unwrap();
    let value = |event| ObservedValue { event, ..VALUE };
    for number in 0..10_000 {
        writer.event(&event(Op::Write(VarId(0)))).unwrap();
        if number % 3 == 0 {
            writer.value(value(number)).unwrap();
        }
    }
    assert!(matches!(writer.value(value(9_999)), Err(WriteError::ValueOrder { .. })));
    assert!(writer.value(value(10_000)).is_ok(), "its event might still come");
    writer.flush().unwrap();
    assert!(matches!(writer.value(value(9_998)), Err(WriteError::ValueOrder { .. })));
    let trace = Trace::of(&writer.finish().unwrap()).unwrap();
    let expected: Vec<_> = (0..10_000).step_by(3).map(value).collect();
    assert_eq!(trace.values, expected);
}

#[test]
fn values_of_events_that_cannot_be_do_no_harm() {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    writer.value(ObservedValue { event: u64::MAX, ..VALUE }).unwrap();
    let again = writer.value(ObservedValue { event: 0, ..VALUE });
    assert!(matches!(again, Err(WriteError::ValueOrder { .. })));
}

#[test]
fn definitions_that_are_too_long_are_refused() {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    let thread = |length| Thread { name: Some("x".repeat(length)), tid: None };
    let error = writer.thread(ThreadId(0), &thread(17 << 20)).unwrap_err();
    assert!(matches!(error, WriteError::TooLong { .. }));
}

#[test]
fn long_definitions_have_blocks_of_their_own() {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    let thread = |length| Thread { name: Some("x".repeat(length)), tid: None };
    for id in 0..4 {
        writer.thread(ThreadId(id), &thread(9 << 20)).unwrap();
        writer.thread(ThreadId(id), &thread(10)).unwrap();
    }
    let trace = Trace::of(&writer.finish().unwrap()).unwrap();
    assert_eq!(trace.names.thread(ThreadId(3)), Some(thread(10)));
}

#[test]
fn splits_of_what_is_not_defined_are_refused() {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    writer.thread(ThreadId(0), &Thread::default()).unwrap();
    for id in 0..2 {
        writer.variable(VarId(id), &Object::new(ObjectKind::Variable)).unwrap();
    }
    let split = event(Op::SplitVariable { from: VarId(0), to: VarId(1) });
    writer.flush().unwrap();
    let start = writer.get_ref().len();
    // Records that are not packed: an operation, a thread and two variables.
    let record = [21_u32, 0, 0, 1].map(u32::to_le_bytes).concat();
    let damaged = |at: usize, byte: u8| {
        let mut payload = record.repeat(2);
        payload[at] = byte;
        [&writer.get_ref()[..], &block(2, 2, 0, 1, &payload)].concat()
    };
    let second = record.len();
    assert_eq!(Trace::of(&damaged(second, 21)).unwrap().events, [split; 2]);
    let undefined =
        "a split of a variable or into one that is not defined, or by a thread that is not";
    for (at, byte, what) in [
        (second + 4, 1, undefined),
        (second + 8, 2, undefined),
        (second + 12, 2, undefined),
        (second + 15, 0xff, undefined),
        (second, 99, "an operation that does not exist, or of objects of which none are defined"),
    ] {
        let error = error(&damaged(at, byte));
        assert_eq!(error, format!("t: block 1 at byte {start}: record 1: {what}"));
    }
}
