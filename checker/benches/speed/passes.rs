//! Passes over traces that are timed, from the minimum to a whole check.

use crate::null::Null;
use checker::event::Op;
use checker::format::{Item, ReadOptions, TraceReader};
use checker::{Checker, Davida, Options, deadlock, predict};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

fn each_batch(mut reader: TraceReader<'_>, mut consume: impl FnMut(&[checker::event::Event])) {
    while let Some(item) = reader.next_item().expect("a well-formed trace") {
        if let Item::Events(batch) = item {
            consume(batch.events);
        }
    }
}

pub fn in_memory(trace: &[u8]) -> TraceReader<'_> {
    TraceReader::from_bytes(trace, ReadOptions::new("trace")).expect("a trace")
}

/// Reads the trace and accesses the state of each event's object.
pub fn null(trace: &[u8]) -> u64 {
    let mut null = Null::default();
    each_batch(in_memory(trace), |events| null.events(events));
    null.sum()
}

/// Checks the trace; returns the number of violations.
pub fn davida(trace: &[u8]) -> u64 {
    check(in_memory(trace), Davida::new(Options::default()))
}

/// Checks the events that are read; returns the number of violations.
pub fn check(mut reader: TraceReader<'_>, mut checker: impl Checker) -> u64 {
    reader.check(&mut checker).expect("well-formed");
    checker.finish().counts.violations
}

/// Predicts from the trace; returns the number of predictions.
pub fn predict(trace: &[u8]) -> u64 {
    let mut observer = predict::Observer::default();
    each_batch(in_memory(trace), |events| events.iter().for_each(|event| observer.event(event)));
    observer.predictions().len() as u64
}

/// Looks for deadlocks that other orders may have; returns their number.
pub fn deadlocks(trace: &[u8]) -> u64 {
    let mut observer = deadlock::Observer::default();
    each_batch(in_memory(trace), |events| events.iter().for_each(|event| observer.event(event)));
    observer.deadlocks().found.len() as u64
}

/// Checks a file as it is read.
pub fn davida_of_file(path: &Path) -> u64 {
    let file = File::open(path).expect("the file is there");
    let reader = TraceReader::from_reader(file, ReadOptions::new("trace")).expect("a trace");
    check(reader, Davida::new(Options::default()))
}

/// Reads the trace and looks at each event.
pub fn read(trace: &[u8]) -> u64 {
    read_all(in_memory(trace))
}

/// Reads the trace from a file and looks at each event.
pub fn read_file(path: &Path) -> u64 {
    let file = File::open(path).expect("the file is there");
    read_all(TraceReader::from_reader(file, ReadOptions::new("trace")).expect("a trace"))
}

fn read_all(reader: TraceReader<'_>) -> u64 {
    let mut writes = 0;
    each_batch(reader, |events| {
        writes += events.iter().filter(|event| matches!(event.op, Op::Write(_))).count();
    });
    writes as u64
}

/// Counts the lines of a text in memory, one by one.
pub fn lines(text: &[u8]) -> u64 {
    let (mut rest, mut count) = (text, 0);
    while let Some(end) = memchr::memchr(b'\n', rest) {
        rest = &rest[end + 1..];
        count += 1;
    }
    count
}

/// Counts the lines of a file, reading one after the other.
pub fn lines_of_file(path: &Path) -> u64 {
    let file = File::open(path).expect("the file is there");
    let mut reader = BufReader::with_capacity(256 * 1024, file);
    let (mut line, mut count) = (Vec::new(), 0);
    while reader.read_until(b'\n', &mut line).expect("the file can be read") > 0 {
        line.clear();
        count += 1;
    }
    count
}

/// Returns the peak memory of this process, in kibibytes, if the system reports it.
pub fn peak() -> Option<u64> {
    let mut status = String::new();
    File::open("/proc/self/status").ok()?.read_to_string(&mut status).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
