//! Helpers for the tests of formats: traces read to the end, and readers that behave badly.

use checker::event::Event;
use checker::format::{
    Gap, Item, Names, ObservedValue, ReadError, ReadOptions, Summary, TraceReader,
};
use std::io::{self, Read};

/// Contents of a trace that was read to its end.
#[derive(Debug)]
pub struct Trace {
    pub events: Vec<Event>,
    /// Gaps, each before the event of this number.
    pub gaps: Vec<(u64, Gap)>,
    pub values: Vec<ObservedValue>,
    pub names: Names,
    pub summary: Summary,
}

impl Trace {
    /// Reads a trace; the part before an error is discarded.
    pub fn of(bytes: &[u8]) -> Result<Self, ReadError> {
        collect(TraceReader::from_bytes(bytes, ReadOptions::new("t"))?)
    }

    /// Reads a trace through a reader that returns a few bytes at a time.
    pub fn trickled(bytes: &[u8], at_once: usize) -> Result<Self, ReadError> {
        let reader = Trickle { bytes, at_once };
        collect(TraceReader::from_reader(reader, ReadOptions::new("t"))?)
    }
}

pub fn collect(mut reader: TraceReader<'_>) -> Result<Trace, ReadError> {
    let (mut events, mut gaps, mut values) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Events(batch) => {
                assert_eq!(batch.first, events.len() as u64);
                assert!(!batch.events.is_empty());
                events.extend_from_slice(batch.events);
                values.extend_from_slice(batch.values);
            }
            Item::Gap(gap) => gaps.push((events.len() as u64, gap)),
        }
    }
    let summary = reader.summary();
    assert_eq!(summary.events, events.len() as u64);
    assert_eq!(summary.gaps, gaps.len() as u64);
    Ok(Trace { events, gaps, values, names: reader.into_names(), summary })
}

/// A reader that returns a few bytes at a time, and is interrupted now and then.
pub struct Trickle<'a> {
    pub bytes: &'a [u8],
    pub at_once: usize,
}

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.len() % 7 == 3 && self.at_once > 1 {
            self.at_once -= 1;
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = buffer.len().min(self.at_once);
        self.bytes.read(&mut buffer[..count])
    }
}

/// Returns the error that a trace ends with.
#[track_caller]
pub fn error(bytes: &[u8]) -> String {
    let error = Trace::of(bytes).expect_err("malformed").to_string();
    let trickled = Trace::trickled(bytes, 3).expect_err("malformed").to_string();
    assert_eq!(error, trickled);
    error
}
