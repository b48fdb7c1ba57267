//! Recordings in segments: the violations of any kept segments are violations of the whole recording.

use crate::generate::{chaos, well_formed};
use crate::oracle::Oracle;
use checker::event::{Event, EventNumber, LocationId, Op, RegionId, ThreadId};
use checker::finding::{Findings, Instance};
use checker::format::{
    AvtWriter, Descriptions, Frame, IdSpace, Item, JoinError, Joiner, Location, LocationKind, Lost,
    Module, ModuleId, NO_LOCATION, Names, Object, ObjectKind, ObservedValue, Process, ReadOptions,
    Region, Segment, SegmentWriter, Space, Thread, TraceReader,
};
use checker::{Checker, Davida, Options, Regions, Relation};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

/// Names that say the id in the whole recording.
struct Whole;

impl Descriptions for Whole {
    fn thread(&mut self, id: ThreadId) -> Thread {
        Thread { name: Some(format!("thread {}", id.0)), tid: Some(1000 + id.0) }
    }

    fn region(&mut self, id: RegionId) -> Region {
        Region { name: format!("region {}", id.0), location: Some(LocationId(id.0)) }
    }

    fn object(&mut self, space: Space, id: u32) -> Object {
        let name = Some(format!("{space:?} {id}"));
        Object { name, location: Some(NO_LOCATION), ..Object::new(ObjectKind::unknown(space)) }
    }

    fn location(&mut self, id: LocationId) -> Location {
        let at = |module| checker::format::CodeAddress { module, address: id.0.into() };
        let stack = vec![at(Some(ModuleId(id.0 % 3))), at(None)];
        Location { label: Some(format!("line {}", id.0)), kind: LocationKind::Call, stack }
    }

    fn module(&mut self, id: ModuleId) -> Module {
        Module { path: format!("/lib/{}", id.0), ..Module::default() }
    }
}

/// A segment, and the number of its first event.
type Written = (Vec<u8>, EventNumber);

/// Writes events as segments that end before these events. Each describes its objects anew at its end, as `suffix`.
fn write(events: &[Event], ends: &BTreeSet<usize>, suffix: &str) -> Vec<Written> {
    let all = ends.iter().copied().chain([events.len()]);
    let starts = [0].into_iter().chain(ends.iter().copied());
    (0..)
        .zip(starts.zip(all))
        .map(|(number, (from, to))| write_one(events, number, from..to, suffix))
        .collect()
}

fn write_one(events: &[Event], number: u32, part: Range<usize>, suffix: &str) -> Written {
    let Range { start: from, end: to } = part;
    let first = from as EventNumber;
    let segment = Segment { recording: 7, number, first_event: first };
    let mut writer = SegmentWriter::new(Vec::new(), segment, number > 0).expect("memory");
    writer.process(&Process { pid: Some(4711), ..Process::default() }).expect("memory");
    for (index, event) in events.iter().enumerate().take(to).skip(from) {
        writer.event(event, &mut Whole).expect("memory");
        let event = index as EventNumber;
        let value = ObservedValue { event, before: None, after: event, length: 8, written: true };
        writer.value(value).expect("memory");
    }
    let threads = writer.origins(IdSpace::Thread).to_vec();
    for id in threads.into_iter().map(ThreadId) {
        let name = Some(format!("thread {}{suffix}", id.0));
        writer.thread(id, &Thread { name, tid: Some(1000 + id.0) }).expect("memory");
    }
    for id in writer.origins(IdSpace::Location).to_vec() {
        let frame = Frame { function: Some("f"), line: Some(id + 1), ..Frame::default() };
        writer.frames(LocationId(id), &[frame]).expect("memory");
    }
    let bound = writer.length();
    let bytes = writer.finish().expect("memory");
    assert!(bytes.len() as u64 <= bound, "{} bytes, at most {bound}", bytes.len());
    (bytes, first)
}

/// Joined segments: events with their numbers in the whole recording, and the findings.
struct Joined {
    events: Vec<(Event, EventNumber)>,
    names: Names,
    gaps: u64,
    findings: Findings,
}

/// Joins segments, and checks them.
fn join(segments: &[Written], options: Options) -> Result<Joined, JoinError> {
    let mut joiner = Joiner::default();
    let mut checker = Davida::new(options.lenient(true));
    let (mut events, mut gaps) = (Vec::new(), 0);
    for (bytes, first) in segments {
        let mut reader = TraceReader::from_bytes(bytes, ReadOptions::new("t")).expect("a trace");
        joiner.begin();
        let mut number = *first;
        while let Some(item) = reader.next_item().expect("undamaged") {
            match item {
                Item::Events(batch) => {
                    if joiner.events(&batch)? {
                        checker.gap();
                        gaps += 1;
                    }
                    let batch = joiner.batch();
                    checker.events(batch.events).expect("lenient");
                    assert_eq!(batch.first, events.len() as u64);
                    for (event, value) in batch.events.iter().zip(batch.values) {
                        assert_eq!((value.event, value.after), (events.len() as u64, number));
                        events.push((*event, number));
                        number += 1;
                    }
                }
                Item::Gap(gap) => {
                    if joiner.gap(gap, reader.names())?.is_some() {
                        checker.gap();
                        gaps += 1;
                    }
                }
            }
        }
        let is_whole = reader.summary().truncated.is_none();
        joiner.end(reader.names(), is_whole)?;
    }
    Ok(Joined { events, names: joiner.into_names(), gaps, findings: checker.finish() })
}

fn check(events: &[Event], options: Options) -> Findings {
    let mut checker = Davida::new(options.lenient(true));
    checker.events(events).expect("lenient");
    checker.finish()
}

/// Returns the thread, the operation and the place of an event, in words. Splits are nowhere.
fn words(event: &Event, names: &Names) -> String {
    let place = names.location(event.location).map_or_else(String::new, |location| {
        let module = location.stack[0].module.and_then(|id| names.module(id)).expect("a module");
        format!("{}|{}", location.label.unwrap_or_default(), module.path)
    });
    format!("{}|{}|{place}", names.thread_label(event.thread), operation(event.op))
}

fn words_of_whole(event: &Event, suffix: &str) -> String {
    let is_split = matches!(event.op, Op::SplitVariable { .. });
    let (thread, place) = (event.thread.0, event.location.0);
    let place = if is_split { String::new() } else { format!("line {place}|/lib/{}", place % 3) };
    format!("thread {thread}{suffix}|{}|{place}", operation(event.op))
}

/// Returns the name of an operation, without its object.
fn operation(op: Op) -> String {
    let text = format!("{op:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

fn options(relation: Relation) -> Options {
    Options::default().regions(Regions::All).relation(relation).instances(true)
}

fn instances(findings: &Findings) -> BTreeSet<Instance> {
    findings.instances.iter().copied().collect()
}

/// Returns where segments end, from choices.
fn ends(events: &[Event], choices: &[prop::sample::Index]) -> BTreeSet<usize> {
    choices.iter().map(|choice| choice.index(events.len() + 1)).collect()
}

/// Checks that the findings in kept segments hold in the whole recording.
fn holds(oracle: &Oracle, joined: &Joined, relation: Relation) -> Result<(), TestCaseError> {
    let number = |event: EventNumber| joined.events[event as usize].1 as usize;
    for violation in &joined.findings.violations {
        let first = violation.begin.event;
        let (begin, source) = (number(first), number(violation.source_event));
        let trigger = number(violation.trigger_event);
        let execution = oracle.executions.iter().find(|execution| execution.begin == begin);
        let execution = execution.expect("a begin");
        prop_assert!((begin..=execution.end).contains(&trigger));
        prop_assert!(oracle.happens_before(relation, begin, source));
        prop_assert!(oracle.happens_before(relation, source, trigger));
    }
    Ok(())
}

proptest! {
    /// Segments without a part of them missing are the recording.
    #[test]
    fn all_segments_are_the_recording(
        events in well_formed(160),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let written = write(&events, &ends(&events, &choices), "!");
        for relation in [Relation::Full, Relation::Data] {
            let joined = join(&written, options(relation)).expect("one recording");
            prop_assert_eq!(joined.gaps, 0);
            let whole = check(&events, options(relation));
            prop_assert_eq!(joined.findings.counts, whole.counts);
            prop_assert_eq!(&joined.findings.instances, &whole.instances);
            let read: Vec<String> =
                joined.events.iter().map(|(event, _)| words(event, &joined.names)).collect();
            let expected: Vec<String> =
                events.iter().map(|event| words_of_whole(event, "!")).collect();
            prop_assert_eq!(read, expected);
        }
    }

    /// Whatever segments are left of a recording, and of the last one: their findings are findings of the whole.
    #[test]
    fn what_is_left_reports_nothing_else(
        events in well_formed(160),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        kept in any::<[bool; 7]>(),
        cut in any::<prop::sample::Index>(),
        relation in prop_oneof![Just(Relation::Full), Just(Relation::Data)],
    ) {
        let oracle = Oracle::new(&events);
        let mut written = write(&events, &ends(&events, &choices), "");
        let mut kept = kept.into_iter().cycle();
        written.retain(|_| kept.next() == Some(true));
        if let Some((last, _)) = written.last_mut() {
            // As a killed recorder leaves it; the header of the file is there.
            let length = 32 + cut.index(2 * last.len());
            last.truncate(length);
        }
        let joined = join(&written, options(relation));
        let joined = match joined {
            // The last segment is empty.
            Err(JoinError::NoSegment) => join(&written[..written.len() - 1], options(relation)),
            joined => joined,
        };
        let joined = joined.expect("one recording");
        holds(&oracle, &joined, relation)?;
        let begins: BTreeSet<usize> = (oracle.instances(relation, Regions::All).iter())
            .map(|instance| instance.begin_event as usize)
            .collect();
        for instance in &joined.findings.instances {
            let begin = joined.events[instance.begin_event as usize].1 as usize;
            prop_assert!(begins.contains(&begin), "the region from event {} on is whole", begin);
        }
        for (event, number) in &joined.events {
            let whole = words_of_whole(&events[*number as usize], "");
            prop_assert_eq!(words(event, &joined.names), whole);
        }
    }

    /// Every segment is a trace by itself.
    #[test]
    fn a_single_segment_reports_nothing_else(
        events in well_formed(160),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let oracle = Oracle::new(&events);
        for segment in write(&events, &ends(&events, &choices), "") {
            let mut checker = Davida::new(options(Relation::Full));
            let reader = TraceReader::from_bytes(&segment.0, ReadOptions::new("t"));
            // In strict mode, the gap at its start explains unmatched ends and releases.
            reader.expect("a trace").check(&mut checker).expect("a trace of its own");
            let joined = join(&[segment], options(Relation::Full)).expect("a segment");
            prop_assert_eq!(instances(&checker.finish()), instances(&joined.findings));
            holds(&oracle, &joined, Relation::Full)?;
        }
    }

    /// Events that do not fit together are joined like others.
    #[test]
    fn any_events_are_joined(
        events in chaos(200),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let written = write(&events, &ends(&events, &choices), "");
        let joined = join(&written, options(Relation::Full)).expect("one recording");
        let whole = check(&events, options(Relation::Full));
        prop_assert_eq!(joined.findings.counts, whole.counts);
        prop_assert_eq!(joined.findings.instances, whole.instances);
    }
}

#[test]
fn losses_are_those_of_the_last_segment_that_has_some() {
    let write = |number, counts: &[(&str, u64)]| {
        let segment = Segment { recording: 7, number, first_event: 0 };
        let mut writer = SegmentWriter::new(Vec::new(), segment, number > 0).expect("memory");
        for &(class, count) in counts {
            writer.lost(&Lost { class: class.to_owned(), count }).expect("memory");
        }
        (writer.finish().expect("memory"), 0)
    };
    let lost = |segments: &[Written]| {
        let joined = join(segments, Options::default()).expect("one recording");
        let lost = joined.names.lost().iter().map(|lost| (lost.class.clone(), lost.count));
        lost.collect::<Vec<_>>()
    };
    let of = |class: &str, count| (class.to_owned(), count);
    let first = write(0, &[("lock", 1), ("data", 2)]);
    let second = write(1, &[("lock", 10_000), ("data", 3)]);
    let third = write(2, &[]);
    assert_eq!(lost(std::slice::from_ref(&third)), []);
    assert_eq!(lost(std::slice::from_ref(&first)), [of("lock", 1), of("data", 2)]);
    let expected = [of("lock", 10_000), of("data", 3)];
    assert_eq!(lost(&[first.clone(), second.clone()]), expected);
    assert_eq!(lost(&[first, second, third]), expected);
}

#[test]
fn other_traces_are_no_segments() {
    let plain = AvtWriter::new(Vec::new()).and_then(AvtWriter::finish).expect("memory");
    let error = |segments: &[Written]| join(segments, Options::default()).err();
    assert_eq!(error(&[(plain, 0)]), Some(JoinError::NoSegment));
    let other = |recording| {
        let segment = Segment { recording, number: 0, first_event: 0 };
        let writer = SegmentWriter::new(Vec::new(), segment, false).expect("memory");
        (writer.finish().expect("memory"), 0)
    };
    assert_eq!(error(&[other(1), other(2)]), Some(JoinError::OtherRecording));
    assert_eq!(error(&[other(1), other(1)]), None);
}
