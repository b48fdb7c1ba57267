//! Properties of conversion: text to `.avt` and back is the same text, and `.avt` to text and back is the same to a
//! checker, whatever the names.

use crate::support::Trace;
use checker::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use checker::format::{
    AvtWriter, Gap, Location, NO_LOCATION, Names, Object, ObjectKind, ReadOptions, Region,
    TextWriter, Thread, TraceReader, convert, location_number, numbered_location,
};
use proptest::prelude::*;
use std::collections::HashMap;

/// Number of ids of each kind in a random trace.
const IDS: u32 = 4;

fn to_avt(trace: &[u8]) -> Vec<u8> {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    let mut reader = TraceReader::from_bytes(trace, ReadOptions::new("t")).unwrap();
    convert(&mut reader, &mut writer).unwrap();
    writer.into_inner()
}

fn to_text(trace: &[u8]) -> Vec<u8> {
    let mut writer = TextWriter::new(Vec::new());
    let mut reader = TraceReader::from_bytes(trace, ReadOptions::new("t")).unwrap();
    convert(&mut reader, &mut writer).unwrap();
    writer.into_inner()
}

fn op(kind: u8, id: u32) -> Op {
    match kind % 22 {
        0 => Op::Begin(RegionId(id)),
        1 => Op::End(None),
        2 => Op::End(Some(RegionId(id))),
        3 => Op::Read(VarId(id)),
        4 => Op::Write(VarId(id)),
        5 => Op::Update(VarId(id)),
        6 => Op::Acquire(LockId(id)),
        7 => Op::Release(LockId(id)),
        8 => Op::AcquireShared(LockId(id)),
        9 => Op::ReleaseShared(LockId(id)),
        10 => Op::Signal(SyncId(id)),
        11 => Op::Wait(SyncId(id)),
        12 => Op::Arrive(SyncId(id)),
        13 => Op::Depart(SyncId(id)),
        14 => Op::Fork(ThreadId(id)),
        15 => Op::Join(ThreadId(id)),
        16 => Op::Alloc(VarId(id)),
        17 => Op::Free(VarId(id)),
        18 => Op::Reset(LockId(id)),
        19 => Op::SplitVariable { from: VarId(id), to: VarId(u32::from(kind) / 22 % IDS) },
        20 => Op::CommutingUpdate(VarId(id)),
        _ => Op::Exit,
    }
}

/// An event, or a gap before it.
type Step = (Option<Option<u64>>, Event);

fn step() -> impl Strategy<Value = Step> {
    let location = prop_oneof![
        (0..IDS).prop_map(LocationId),
        (0..0x7fff_ffff_u32).prop_map(|number| numbered_location(number).unwrap()),
        Just(NO_LOCATION),
    ];
    let gap = prop_oneof![9 => Just(None), 1 => any::<Option<u32>>().prop_map(Some)];
    (gap, 0..IDS, any::<u8>(), 0..IDS, location).prop_map(|(gap, thread, kind, id, location)| {
        let op = op(kind, id);
        let location = if matches!(op, Op::SplitVariable { .. }) { NO_LOCATION } else { location };
        let event = Event { thread: ThreadId(thread), op, location };
        (gap.map(|lost| lost.map(u64::from)), event)
    })
}

/// Names of all sorts: likely to be the same, to be numbers, or to hold what structures a line.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{0,2}",
        "[ab,]{0,3}",
        "[0-9]{1,11}",
        "[ab|()#\\\\\r\n\u{feff}\u{e4}\0 ]{0,6}",
        ".{0,40}"
    ]
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(name(), IDS as usize)
}

/// A binary trace of these events, with these names for every kind of id.
fn avt(steps: &[Step], names: &[Vec<String>]) -> Vec<u8> {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    for id in 0..IDS {
        let name = |kind: usize| Some(names[kind][id as usize].clone());
        let object = |kind, of| Object { name: name(kind), ..Object::new(of) };
        writer.thread(ThreadId(id), &Thread { name: name(0), tid: None }).unwrap();
        let region = Region { name: name(1).unwrap(), location: None };
        writer.region(RegionId(id), &region).unwrap();
        writer.variable(VarId(id), &object(2, ObjectKind::Variable)).unwrap();
        writer.lock(LockId(id), &object(3, ObjectKind::Lock)).unwrap();
        writer.sync(SyncId(id), &object(4, ObjectKind::Sync)).unwrap();
        let location = Location { label: name(5), ..Location::default() };
        writer.location(LocationId(id), &location).unwrap();
    }
    for (gap, event) in steps {
        if let Some(lost) = gap {
            writer.gap(Gap { lost: *lost }).unwrap();
        }
        writer.event(event).unwrap();
    }
    writer.finish().unwrap()
}

/// Mapping from the ids of one trace to the ids of another: equal ids map to equal ids.
#[derive(Default)]
struct Renaming {
    there: HashMap<(u8, u32), u32>,
    back: HashMap<(u8, u32), u32>,
}

impl Renaming {
    fn same(&mut self, kind: u8, left: u32, right: u32) -> bool {
        *self.there.entry((kind, left)).or_insert(right) == right
            && *self.back.entry((kind, right)).or_insert(left) == left
    }

    fn same_event(&mut self, left: &Event, right: &Event) -> bool {
        let (left_op, right_op) = (parts(left.op), parts(right.op));
        // A text has no other place for "nowhere" than a name that is empty; a split is nowhere in both.
        let splits = matches!(left.op, Op::SplitVariable { .. });
        let location = match (location_number(left.location), location_number(right.location)) {
            (None, None) if splits => left.location == right.location,
            (None, None) => self.same(5, left.location.0, right.location.0),
            (left, right) => left == right,
        };
        left_op.0 == right_op.0
            && self.same(0, left.thread.0, right.thread.0)
            && self.same(left_op.1, left_op.2, right_op.2)
            && match (left.op, right.op) {
                (Op::SplitVariable { to: left, .. }, Op::SplitVariable { to: right, .. }) => {
                    self.same(2, left.0, right.0)
                }
                _ => true,
            }
            && location
    }
}

/// Returns the operation, the kind of its object, and the object's id.
fn parts(op: Op) -> (std::mem::Discriminant<Op>, u8, u32) {
    let (kind, id) = match op {
        Op::End(None) | Op::Exit => (9, 0),
        Op::Begin(id) | Op::End(Some(id)) => (1, id.0),
        Op::Read(id) | Op::Write(id) | Op::Update(id) | Op::CommutingUpdate(id) => (2, id.0),
        Op::Alloc(id) | Op::Free(id) => (2, id.0),
        Op::Acquire(id)
        | Op::Release(id)
        | Op::AcquireShared(id)
        | Op::ReleaseShared(id)
        | Op::Reset(id) => (3, id.0),
        Op::Signal(id) | Op::Wait(id) | Op::Arrive(id) | Op::Depart(id) => (4, id.0),
        Op::Fork(id) | Op::Join(id) => (0, id.0),
        Op::SplitVariable { from, .. } => (2, from.0),
        _ => unreachable!("{op:?}"),
    };
    (std::mem::discriminant(&op), kind, id)
}

/// Returns an event with names instead of ids.
fn named(event: &Event, names: &Names) -> String {
    let (op, kind, id) = parts(event.op);
    let object = match kind {
        0 => names.thread_label(ThreadId(id)).into_owned(),
        1 => names.region(RegionId(id)).unwrap().name,
        2 => names.variable_label(VarId(id)).into_owned(),
        3 => names.lock_label(LockId(id)).into_owned(),
        4 => names.sync_label(SyncId(id)).into_owned(),
        _ => String::new(),
    };
    let thread = names.thread_label(event.thread);
    let label = names.label(event.location);
    format!("{thread} {op:?} {object} {label:?}")
}

proptest! {
    #[test]
    fn a_binary_trace_is_read_as_it_was_written(
        steps in prop::collection::vec(step(), 0..60),
        names in prop::collection::vec(names(), 6),
    ) {
        let trace = Trace::of(&avt(&steps, &names)).unwrap();
        let events: Vec<Event> = steps.iter().map(|(_, event)| *event).collect();
        prop_assert_eq!(&trace.events, &events);
        let gaps: Vec<_> = (0..)
            .zip(&steps)
            .filter_map(|(at, (gap, _))| gap.map(|lost| (at, Gap { lost })))
            .collect();
        prop_assert_eq!(&trace.gaps, &gaps);
        for id in 0..IDS {
            let region = trace.names.region(RegionId(id)).unwrap();
            prop_assert_eq!(&region.name, &names[1][id as usize]);
        }
    }

    #[test]
    fn text_and_back_is_the_same_to_a_checker(
        steps in prop::collection::vec(step(), 0..60),
        names in prop::collection::vec(names(), 6),
    ) {
        let file = avt(&steps, &names);
        let text = to_text(&file);
        prop_assert!(std::str::from_utf8(&text).is_ok());
        let (before, after) = (Trace::of(&file).unwrap(), Trace::of(&to_avt(&text)).unwrap());
        prop_assert_eq!(before.events.len(), after.events.len());
        prop_assert_eq!(before.gaps, after.gaps);
        let mut renaming = Renaming::default();
        for (left, right) in before.events.iter().zip(&after.events) {
            prop_assert!(renaming.same_event(left, right), "{left:?} {right:?}");
        }
    }

    #[test]
    fn binary_and_back_is_the_same_text(
        steps in prop::collection::vec(step(), 0..60),
        names in prop::collection::vec(names(), 6),
    ) {
        let text = to_text(&avt(&steps, &names));
        let file = to_avt(&text);
        let again = to_text(&file);
        prop_assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&text));
        let (left, right) = (Trace::of(&text).unwrap(), Trace::of(&file).unwrap());
        let names = |trace: &Trace| -> Vec<String> {
            trace.events.iter().map(|event| named(event, &trace.names)).collect()
        };
        prop_assert_eq!(names(&left), names(&right));
    }

    #[test]
    fn it_does_not_matter_how_a_trace_arrives(
        steps in prop::collection::vec(step(), 0..60),
        names in prop::collection::vec(names(), 6),
        at_once in 1..50_usize,
    ) {
        let file = avt(&steps, &names);
        for trace in [to_text(&file), file] {
            let (whole, trickled) = (Trace::of(&trace), Trace::trickled(&trace, at_once));
            let (whole, trickled) = (whole.unwrap(), trickled.unwrap());
            prop_assert_eq!(whole.events, trickled.events);
            prop_assert_eq!(whole.gaps, trickled.gaps);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        _ = Trace::of(&bytes);
        _ = Trace::trickled(&bytes, 3);
    }

    #[test]
    fn lines_like_those_of_a_trace_never_panic(text in "([tT]?[0-9]?\\|?(r|w|acq|end|begin|fork)?[(|]?[a-z]{0,14}\\)?\\|[0-9a-z]{0,14}\r?\n?){0,20}") {
        let (whole, trickled) = (Trace::of(text.as_bytes()), Trace::trickled(text.as_bytes(), 5));
        match (whole, trickled) {
            (Ok(whole), Ok(trickled)) => prop_assert_eq!(whole.events, trickled.events),
            (Err(whole), Err(trickled)) => {
                prop_assert_eq!(whole.to_string(), trickled.to_string());
            }
            _ => prop_assert!(false, "one way of reading fails"),
        }
    }
}
