//! The text format: its grammar, its errors, and the lines that are skipped.

use crate::support::{Trace, Trickle, collect, error};
use checker::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};
use checker::format::{
    Gap, Item, MAX_LINE, NO_LOCATION, Place, ReadOptions, TraceReader, numbered_location,
};
use std::io::{self, Read};

fn ops(text: &str) -> Vec<Op> {
    let trace = Trace::of(text.as_bytes()).expect("well-formed");
    trace.events.iter().map(|event| event.op).collect()
}

#[test]
fn every_operation_has_its_spelling() {
    let text = "t|begin(m)|1\nt|r(x)|1\nt|w(y)|1\nt|u(x)|1\nt|rmw(y)|1\nt|add(x)|1\nt|acq(l)|1\nt|rel(l)|1\n\
                t|racq(k)|1\nt|rrel(k)|1\nt|fork(s)|1\nt|join(s)|1\nt|signal(c)|1\nt|wait(c)|1\n\
                t|arrive(b)|1\nt|depart(b)|1\nt|alloc(x)|1\nt|free(x)|1\nt|split(x,y)|\nt|end(m)|1\n\
                t|begin|1\nt|end|1\nt|begin()|1\nt|end()|1\n";
    let (m, unnamed) = (RegionId(0), RegionId(1));
    let (x, y, l, k) = (VarId(0), VarId(1), LockId(0), LockId(1));
    let (s, c, b) = (ThreadId(1), SyncId(0), SyncId(1));
    assert_eq!(
        ops(text),
        [
            Op::Begin(m),
            Op::Read(x),
            Op::Write(y),
            Op::Update(x),
            Op::Update(y),
            Op::CommutingUpdate(x),
            Op::Acquire(l),
            Op::Release(l),
            Op::AcquireShared(k),
            Op::ReleaseShared(k),
            Op::Fork(s),
            Op::Join(s),
            Op::Signal(c),
            Op::Wait(c),
            Op::Arrive(b),
            Op::Depart(b),
            Op::Alloc(x),
            Op::Free(x),
            Op::SplitVariable { from: x, to: y },
            Op::End(Some(m)),
            Op::Begin(unnamed),
            Op::End(None),
            Op::Begin(unnamed),
            Op::End(Some(unnamed)),
        ]
    );
}

#[test]
fn names_are_apart_by_what_they_name() {
    let trace = Trace::of(b"a|r(a)|a\na|acq(a)|a\na|begin(a)|a\na|signal(a)|a\n").unwrap();
    let at = |op| Event { thread: ThreadId(0), op, location: LocationId(0) };
    assert_eq!(
        trace.events,
        [
            at(Op::Read(VarId(0))),
            at(Op::Acquire(LockId(0))),
            at(Op::Begin(RegionId(0))),
            at(Op::Signal(SyncId(0))),
        ]
    );
    let names = &trace.names;
    assert_eq!(names.thread(ThreadId(0)).unwrap().name.as_deref(), Some("a"));
    assert_eq!(names.region(RegionId(0)).unwrap().name, "a");
    assert_eq!(names.variable(VarId(0)).unwrap().name.as_deref(), Some("a"));
    assert_eq!(names.lock(LockId(0)).unwrap().name.as_deref(), Some("a"));
    assert_eq!(names.sync(SyncId(0)).unwrap().name.as_deref(), Some("a"));
    assert_eq!(names.label(LocationId(0)).as_deref(), Some("a"));
    assert_eq!(names.thread(ThreadId(1)), None);
}

#[test]
fn locations_may_be_anything() {
    let text = "t|r(x)|\nt|r(x)|0\nt|r(x)|a b|c(d)|e\nt|r(x)|00\nt|r(x)|4294967296\nt|r(x)|-1\n";
    let trace = Trace::of(text.as_bytes()).unwrap();
    let label = |event: &Event| trace.names.label(event.location).map(String::from);
    let labels: Vec<_> = trace.events.iter().map(label).collect();
    let expected = ["0", "a b|c(d)|e", "00", "4294967296", "-1"].map(|text| Some(text.to_owned()));
    assert_eq!(labels[0], None);
    assert_eq!(labels[1..], expected);
    assert_eq!(trace.events[1].location, numbered_location(0).unwrap());
    assert_eq!(trace.names.location_count(), 5);
}

#[test]
fn objects_may_hold_almost_anything() {
    let text = "t|r(f(a|b)[0])|1\nt|r( )|1\nt|r(\u{e4})|1\nt|r(a)b)|1\n";
    let trace = Trace::of(text.as_bytes()).unwrap();
    let name = |id| trace.names.variable(VarId(id)).unwrap().name.unwrap();
    assert_eq!([0, 1, 2, 3].map(name), ["f(a|b)[0]", " ", "\u{e4}", "a)b"]);
}

#[test]
fn blank_lines_comments_and_line_ends_do_not_count() {
    let plain = "t|r(x)|1\nt|w(x)|2\nt|r(y)|3\n";
    let expected = Trace::of(plain.as_bytes()).unwrap().events;
    for text in [
        "t|r(x)|1\r\nt|w(x)|2\r\nt|r(y)|3\r\n",
        "\u{feff}t|r(x)|1\nt|w(x)|2\nt|r(y)|3",
        "# three events\n\n  \t\nt|r(x)|1\n\r\n#\nt|w(x)|2\n#t|w(x)|2\nt|r(y)|3\n\n# end",
        "\u{feff}\r\n#avtrace of no known kind\r\nt|r(x)|1\nt|w(x)|2\r\nt|r(y)|3\r",
    ] {
        assert_eq!(Trace::of(text.as_bytes()).unwrap().events, expected, "{text:?}");
        for at_once in [1, 2, 5] {
            assert_eq!(Trace::trickled(text.as_bytes(), at_once).unwrap().events, expected);
        }
    }
}

#[test]
fn a_trace_may_be_empty() {
    for text in ["", "\n", "\u{feff}", "# nothing", "\r\n\r\n"] {
        assert!(Trace::of(text.as_bytes()).unwrap().events.is_empty());
        assert!(Trace::trickled(text.as_bytes(), 1).unwrap().events.is_empty());
    }
}

#[test]
fn malformed_lines_are_named() {
    assert_eq!(
        error(b"t|r(x)|1\n\nt|r(x)\n"),
        "t:3: expected THREAD|OP(OBJECT)|LOCATION, found \"t|r(x)\""
    );
    assert_eq!(error(b"t|jump(x)|1"), "t:1: no such operation: \"jump\"");
    assert_eq!(error(b"t|r(x)|1\nt|r|2\n"), "t:2: r without an object");
    assert_eq!(error(b"|r(x)|1\n"), "t:1: no thread before the first |");
    let zeros = format!("t|r(x)|1\nt|w\0\0(x)|1\n{}", "t|r(x)|1\n".repeat(20));
    assert_eq!(error(zeros.as_bytes()), "t:2: no such operation: \"w\\0\\0\"");
    assert_eq!(error(b"t|acq(l|1\n"), "t:1: the object of acq is not closed by )|");
    assert_eq!(error(b"# \xff\nt|r(x\xff)|1\n"), "t:2: the object is not UTF-8");
    assert_eq!(error(b"\xfft|r(x)|1\n"), "t:1: the thread is not UTF-8");
    assert_eq!(error(b"t|r(x)|\xff1\n"), "t:1: the location is not UTF-8");
    let long = format!("t|r(x)|1\n{}\n", "x".repeat(300));
    assert!(error(long.as_bytes()).ends_with("…\""));
}

#[test]
fn what_comes_before_a_malformed_line_is_read() {
    let text = b"t|r(x)|1\nt|w(x)|2\nnonsense\nt|r(x)|3\n";
    let mut reader = TraceReader::from_bytes(text, ReadOptions::new("t")).unwrap();
    let Ok(Some(Item::Events(batch))) = reader.next_item() else { panic!("events first") };
    assert_eq!(batch.events.len(), 2);
    assert!(reader.next_item().is_err());
    assert!(reader.next_item().unwrap().is_none(), "nothing is read past it");
}

#[test]
fn a_lenient_reader_skips_malformed_lines_and_leaves_gaps() {
    let text =
        format!("t|begin(m)|1\nnonsense\nt|end|2\nt|r(\n{}\nt|w(x)|3", "y".repeat(MAX_LINE + 1));
    for at_once in [1 << 20, 1000] {
        let source = Trickle { bytes: text.as_bytes(), at_once };
        let reader = TraceReader::from_reader(source, ReadOptions::new("t").lenient()).unwrap();
        let trace = collect(reader).unwrap();
        assert_eq!(trace.events.len(), 3);
        let gap = Gap { lost: None };
        assert_eq!(trace.gaps, [(1, gap), (2, gap), (2, gap)]);
        assert_eq!(trace.summary.skipped_lines, 3);
        assert_eq!(trace.summary.first_skipped_line, Some(2));
    }
}

#[test]
fn a_last_line_that_is_malformed_is_skipped_too() {
    let options = || ReadOptions::new("t").lenient();
    let reader = TraceReader::from_bytes(b"t|r(x)|1\nt|r", options()).unwrap();
    let trace = collect(reader).unwrap();
    assert_eq!((trace.events.len(), trace.summary.skipped_lines), (1, 1));
}

#[test]
fn lines_may_be_long_but_not_too_long() {
    let line = |length: usize| {
        let rest = "t|r()|1".len();
        format!("t|r({})|1", "x".repeat(length - rest))
    };
    for end in ["", "\n", "\r\n"] {
        let text = format!("t|w(y)|1\n{}{end}", line(MAX_LINE));
        assert_eq!(Trace::of(text.as_bytes()).unwrap().events.len(), 2);
        assert_eq!(Trace::trickled(text.as_bytes(), 100_000).unwrap().events.len(), 2);
        let text = format!("t|w(y)|1\n{}{end}", line(MAX_LINE + 1));
        let expected = format!("t:2: the line is longer than {MAX_LINE} bytes");
        assert_eq!(Trace::of(text.as_bytes()).unwrap_err().to_string(), expected);
        assert_eq!(Trace::trickled(text.as_bytes(), 100_000).unwrap_err().to_string(), expected);
    }
}

/// A line that never ends; counts the bytes taken of it.
struct Endless<'a>(&'a mut usize);

impl Read for Endless<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        buffer.fill(b'x');
        *self.0 += buffer.len();
        Ok(buffer.len())
    }
}

#[test]
fn a_line_without_end_is_given_up_early() {
    let mut taken = 0;
    let mut reader = TraceReader::from_reader(Endless(&mut taken), ReadOptions::new("t")).unwrap();
    assert!(reader.next_item().is_err());
    drop(reader);
    assert!(taken < 2 * MAX_LINE, "{taken} bytes were read");
}

#[test]
fn other_files_are_no_text() {
    assert_eq!(error(b"\x7fELF\x02\x01\x01\0\0\0"), "t: neither a text trace nor an .avt file");
    assert_eq!(error(b"\x89AVT\n\x1a\n-------------"), "t: a damaged .avt header");
    assert_eq!(error(b"\x89PNG\r\n\x1a\n\0\0\0\x0d"), "t: neither a text trace nor an .avt file");
}

#[test]
fn events_know_their_lines() {
    let mut text = String::from("# first\n");
    for line in 2..20_000 {
        text += match line % 100 {
            0 => "\n",
            50 => "# comment\n",
            _ => "t|r(a_longer_name_than_most)|a_longer_label_than_most_labels_are\n",
        };
    }
    let mut reader = TraceReader::from_bytes(text.as_bytes(), ReadOptions::new("t")).unwrap();
    let mut lines = (2..20_000).filter(|line| line % 50 != 0);
    loop {
        let events = match reader.next_item().unwrap() {
            Some(Item::Events(batch)) => batch.first..batch.first + batch.events.len() as u64,
            Some(Item::Gap(_)) => panic!("no gaps"),
            None => break,
        };
        assert_eq!(reader.place(events.end), Place::Whole);
        for event in events {
            assert_eq!(reader.place(event), Place::Line(lines.next().unwrap()));
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn directives_are_for_gaps_and_escapes() {
    let text = b"t|r(a\\7c)|1\n#avtrace gap 12\n#avtrace gap\nt|r(x)|2\n#avtrace escapes\n\
                 t\\7c|r(a\\29|b)|\\0a\nt|begin(a\\5c7c)|1\n#avtrace gap many\n";
    let trace = Trace::of(text).unwrap();
    let gaps = [(1, Gap { lost: Some(12) }), (1, Gap { lost: None })];
    assert_eq!(trace.gaps, gaps);
    assert_eq!(trace.summary.lost, 12);
    let many = format!("#avtrace gap {0}\n#avtrace gap {0}\n", u64::MAX);
    assert_eq!(Trace::of(many.as_bytes()).unwrap().summary.lost, u64::MAX);
    let name = |id| trace.names.variable(VarId(id)).unwrap().name.unwrap();
    assert_eq!([0, 2].map(name), ["a\\7c", "a)|b"]);
    assert_eq!(trace.names.thread_label(ThreadId(1)), "t|");
    assert_eq!(trace.names.region_label(RegionId(0)), "a\\7c");
    assert_eq!(trace.names.label(trace.events[2].location).as_deref(), Some("\n"));
    let broken = b"#avtrace escapes\nt|r(a\\zz)|1\n";
    assert_eq!(error(broken), "t:2: a backslash without two hexadecimal digits in the object");
    let not_text = b"#avtrace escapes\nt|r(a\\ff)|1\n";
    assert_eq!(error(not_text), "t:2: the object is not UTF-8");
}

#[test]
fn a_split_names_two_variables_and_no_place() {
    let text = "t|split(a,b,c)|x.c:1\n#avtrace escapes\nt|split(a\\2cb,c)|\n";
    let trace = Trace::of(text.as_bytes()).unwrap();
    let name = |id: u32| trace.names.variable(VarId(id)).unwrap().name;
    assert_eq!([0, 1, 2, 3].map(name), ["a", "b,c", "a,b", "c"].map(|name| Some(name.to_owned())));
    let split = |from, to| Op::SplitVariable { from: VarId(from), to: VarId(to) };
    let at = |op| Event { thread: ThreadId(0), op, location: NO_LOCATION };
    assert_eq!(trace.events, [at(split(0, 1)), at(split(2, 3))]);
    assert_eq!(trace.names.label(LocationId(0)), None);
}

#[test]
fn damaged_splits_are_told() {
    for (line, reason) in [
        ("t|split(a)|", "split needs two objects: split(FROM,TO)"),
        ("t|split|", "split needs two objects: split(FROM,TO)"),
        ("t|split()|", "split needs two objects: split(FROM,TO)"),
        ("t|split(a,)|", "split needs two objects: split(FROM,TO)"),
        ("t|split(,b)|", "split needs two objects: split(FROM,TO)"),
        ("t|split(a,b|", "the object of split is not closed by )|"),
        ("|split(a,b)|", "no thread before the first |"),
        ("t|split(a\\zz,b)|", "a backslash without two hexadecimal digits in the object"),
        ("t|split(a,b\\ff)|", "the object is not UTF-8"),
    ] {
        let text = format!("#avtrace escapes\nt|split(a,b)|\n{line}\nt|r(a)|\n");
        assert_eq!(error(text.as_bytes()), format!("t:3: {reason}"), "{line}");
    }
}
