//! Behaviour of every reader: checkers are fed, events that do not fit are described in words, pipes are
//! not waited for, and memory is limited.

use crate::support::Trace;
use checker::format::{AvtWriter, Format, Item, ReadOptions, Reason, TraceReader, convert};
use checker::{Checker, Davida, Options};
use std::io::{self, Read};
use std::sync::mpsc;

fn check(text: &[u8]) -> Result<u64, String> {
    let mut checker = Davida::new(Options::default());
    let mut reader = TraceReader::from_bytes(text, ReadOptions::new("t")).expect("text");
    match reader.check(&mut checker) {
        Ok(_) => Ok(checker.finish().counts.violations),
        Err(error) => {
            assert!(matches!(error.reason, Reason::Event { .. }));
            Err(error.to_string())
        }
    }
}

#[test]
fn a_checker_gets_every_event() {
    let lost_update = b"T1|begin(m)|1\nT1|r(x)|1\nT2|w(x)|1\nT1|w(x)|1\nT1|end|1\n";
    assert_eq!(check(lost_update), Ok(1));
    let gap = b"T1|begin(m)|1\nT1|r(x)|1\nT2|w(x)|1\n#avtrace gap 1\nT1|w(x)|1\nT1|end|1\n";
    assert_eq!(check(gap), Ok(0), "regions are abandoned at a gap");
}

#[test]
fn events_that_do_not_fit_are_put_into_words() {
    for (text, reason) in [
        ("T1|end|1", "t:2: end of a region, but thread T1 has none open"),
        ("T1|end(m)|1", "t:2: end of a region, but thread T1 has none open"),
        ("T1|begin(a)|1\nT1|end(m)|1", "t:3: end of region m, which thread T1 has not open"),
        (
            "T1|begin(m)|1\nT1|begin(a)|1\nT1|end(m)|1",
            "t:4: end of region m while region a is open inside it",
        ),
        ("T1|rel(l)|1", "t:2: release of lock l, which thread T1 does not hold"),
        ("T1|rrel(l)|1", "t:2: shared release of lock l, which thread T1 does not hold shared"),
        ("T0|join(T1)|1\nT1|r(x)|1", "t:3: an event of thread T1, which was joined before"),
        ("T0|join(T1)|1\nT0|join(T1)|1", "t:3: join of thread T1, which was joined before"),
        ("T0|fork(T1)|1\nT0|fork(T1)|1", "t:3: fork of thread T1, which was forked before"),
        ("T1|r(x)|1\nT0|fork(T1)|1", "t:3: fork of thread T1, which has acted before"),
        ("T0|fork(T0)|1", "t:2: thread T0 forks itself"),
        ("T0|join(T0)|1", "t:2: thread T0 joins itself"),
        ("T0|depart(b)|1", "t:2: thread T0 departs from b without having arrived"),
    ] {
        let text = format!("T7|w(y)|1\n{text}\n");
        assert_eq!(check(text.as_bytes()), Err(reason.to_owned()), "{text}");
    }
}

#[test]
fn misfits_of_binary_traces_have_a_place_too() {
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    let text = b"T1|r(x)|1\nT1|rel(l)|1\n";
    convert(&mut TraceReader::from_bytes(text, ReadOptions::new("t")).unwrap(), &mut writer)
        .unwrap();
    let file = writer.into_inner();
    let expected =
        "t: event 1 (block 1 at byte 96): release of lock l, which thread T1 does not hold";
    assert_eq!(check(&file), Err(expected.to_owned()));
}

/// A reader that returns one message at a time.
struct Pipe(mpsc::Receiver<&'static [u8]>);

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Ok(bytes) = self.0.try_recv() else { panic!("read before anything came") };
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

#[test]
fn lines_are_passed_on_before_the_next_ones_come() {
    let (send, receive) = mpsc::channel();
    send.send(&b"T1|r(x)|1\nT1|w(x"[..]).unwrap();
    let mut reader = TraceReader::from_reader(Pipe(receive), ReadOptions::new("-")).unwrap();
    let count = |reader: &mut TraceReader<'_>| match reader.next_item().unwrap() {
        Some(Item::Events(batch)) => batch.events.len(),
        Some(Item::Gap(_)) => panic!("no gaps"),
        None => 0,
    };
    assert_eq!(count(&mut reader), 1);
    send.send(b")|2\nT1|r(x)|3\n").unwrap();
    assert_eq!(count(&mut reader), 2);
    send.send(b"").unwrap();
    assert_eq!(count(&mut reader), 0);
}

#[test]
fn names_may_take_so_much_memory_and_no_more() {
    let text: String = (0..2000).map(|n| format!("T1|r(variable_{n})|1\n")).collect();
    let options = |memory_limit| ReadOptions { memory_limit, ..ReadOptions::new("t") };
    let read = |bytes: &[u8], limit| {
        let mut reader = TraceReader::from_bytes(bytes, options(limit)).unwrap();
        reader.try_for_each(|_| Ok(())).map_err(|error: checker::format::ReadError| error.reason)
    };
    assert_eq!(read(text.as_bytes(), 1 << 20).unwrap().events, 2000);
    assert!(matches!(read(text.as_bytes(), 10_000), Err(Reason::TooManyNames { limit: 10_000 })));
    let lenient = ReadOptions { lenient: true, ..options(10_000) };
    let mut reader = TraceReader::from_bytes(text.as_bytes(), lenient).unwrap();
    let mut checker = Davida::new(Options::live());
    assert!(reader.check(&mut checker).is_err(), "too much is too much for a lenient reader, too");
    let mut writer = AvtWriter::new(Vec::new()).unwrap();
    let mut reader = TraceReader::from_bytes(text.as_bytes(), options(1 << 20)).unwrap();
    convert(&mut reader, &mut writer).unwrap();
    let file = writer.into_inner();
    assert_eq!(read(&file, 1 << 20).unwrap().events, 2000);
    assert!(matches!(read(&file, 10_000), Err(Reason::TooManyNames { .. })));
}

#[test]
fn a_reader_tells_what_it_reads_and_how_far_it_is() {
    let text = "T1|r(x)|1\n".repeat(10_000);
    let mut reader = TraceReader::from_bytes(text.as_bytes(), ReadOptions::new("a.std")).unwrap();
    assert_eq!((reader.format(), reader.file()), (Format::Text, "a.std"));
    assert_eq!(reader.position(), 0);
    reader.next_item().unwrap();
    assert!((1..text.len() as u64).contains(&reader.position()));
    while reader.next_item().unwrap().is_some() {}
    assert_eq!(reader.position(), text.len() as u64);
    let mut streamed =
        TraceReader::from_reader(text.as_bytes(), ReadOptions::new("a.std")).unwrap();
    while streamed.next_item().unwrap().is_some() {}
    assert_eq!(streamed.position(), text.len() as u64);
}

/// A reader that fails.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the cable is out"))
    }
}

#[test]
fn failures_of_the_input_are_told() {
    let Err(error) = TraceReader::from_reader(Broken, ReadOptions::new("t")) else {
        panic!("nothing can be read")
    };
    assert_eq!(error.to_string(), "t: failed to read: the cable is out");
    let text = b"T1|r(x)|1\nT1|w(".chain(Broken);
    let mut reader = TraceReader::from_reader(text, ReadOptions::new("t")).unwrap();
    assert!(matches!(reader.next_item(), Ok(Some(Item::Events(_)))));
    let error = reader.next_item().err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("t:2: failed to read: the cable is out"));
    assert!(matches!(reader.next_item(), Ok(None)), "nothing is read past an error");
}

#[test]
fn both_ways_of_reading_give_the_same() {
    let text: String = (0..9000).map(|n| format!("T{}|r(V{n})|{n}\n", n % 5)).collect();
    let whole = Trace::of(text.as_bytes()).unwrap();
    for at_once in [1, 17, 4096] {
        assert_eq!(Trace::trickled(text.as_bytes(), at_once).unwrap().events, whole.events);
    }
}

#[cfg(not(feature = "compression"))]
#[test]
fn compressed_input_is_told_as_such() {
    let error = |start: &[u8]| Trace::of(start).unwrap_err().to_string();
    let gzip = "t: gzip input, which this build cannot decompress";
    assert_eq!(error(&[0x1f, 0x8b, 8, 0]), gzip);
    let zstd = "t: Zstandard input, which this build cannot decompress";
    assert_eq!(error(&[0x28, 0xb5, 0x2f, 0xfd]), zstd);
}
