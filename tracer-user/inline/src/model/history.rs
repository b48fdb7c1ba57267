//! Log of what the threads of a model did, and the properties that the merged stream has by it.

use std::{collections::HashMap, sync::Mutex};

use abi::Record;

use crate::merge::Losses;

/// Event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    thread: usize,
    /// Number of the slot that was reserved; of a lost event that was not.
    slot: u64,
    /// The record's number, or `None` for a lost event.
    record: Option<u64>,
}

/// Log of a run.
#[derive(Debug, Default)]
pub struct History(Mutex<RingLog>);

#[derive(Debug, Default)]
struct RingLog {
    events: Vec<Event>,
    /// Records, each with one that it follows from.
    follows: Vec<(u64, u64)>,
    records: u64,
    /// Slots that were reserved by threads that stopped before they wrote them.
    unwritten: u64,
}

impl History {
    /// Number of a new record.
    pub fn new_record(&self) -> u64 {
        let mut log = self.0.lock().unwrap();
        log.records += 1;
        log.records
    }

    pub fn published(&self, thread: usize, slot: u64, record: u64) {
        self.0.lock().unwrap().events.push(Event { thread, slot, record: Some(record) });
    }

    pub fn lost(&self, thread: usize, slot: u64) {
        self.0.lock().unwrap().events.push(Event { thread, slot, record: None });
    }

    /// Notes that a thread stops while it has reserved slots.
    pub fn stopped(&self, slots: u64) {
        self.0.lock().unwrap().unwritten += slots;
    }

    /// Notes that the second record follows from the first.
    pub fn follows(&self, first: u64, second: u64) {
        self.0.lock().unwrap().follows.push((first, second));
    }

    /// Checks the stream that was handed on: each published record once, none before one that it follows from or that
    /// its thread has reserved before, and a gap wherever events were lost, which are
    /// counted. Each record has so many frames.
    pub fn check(&self, stream: &[Record], frames: usize, losses: Losses) {
        let log = self.0.lock().unwrap();
        let lost = log.events.iter().filter(|event| event.record.is_none()).count();
        assert_eq!((losses.full, losses.unreadable), (lost as u64, 0), "lost events");
        assert!(
            losses.unpublished + losses.begun <= log.unwritten,
            "events that nobody has begun: {losses:?}"
        );
        let mut places = HashMap::new();
        for (place, record) in stream.iter().enumerate() {
            let number = number_of(record, frames);
            assert!(places.insert(number, place).is_none(), "record {number} came twice");
        }
        let place = |number: u64| places.get(&number).copied();
        let mut events = log.events.clone();
        events.sort_by_key(|event| (event.thread, event.slot, event.record.is_some()));
        let published = events.iter().filter_map(|event| event.record);
        assert_eq!(published.clone().count(), stream.len(), "{stream:?}");
        for number in published {
            assert!(place(number).is_some(), "record {number} was not handed on");
        }
        for &(first, second) in &log.follows {
            if let (Some(a), Some(b)) = (place(first), place(second)) {
                assert!(a < b, "record {second} came before {first}, which it follows from");
            }
        }
        let mut before: Option<(usize, usize)> = None;
        let mut is_gap = false;
        for event in events {
            let Some(number) = event.record else {
                is_gap = true;
                continue;
            };
            let at = place(number).unwrap();
            let lost_before = match before {
                Some((thread, earlier)) if thread == event.thread => {
                    assert!(earlier < at, "record {number} came before one of its thread");
                    stream[earlier].header().lost
                }
                _ => 0,
            };
            let lost = stream[at].header().lost;
            assert!(!is_gap || lost != lost_before, "no gap before record {number}");
            (before, is_gap) = (Some((event.thread, at)), false);
        }
    }
}

/// Number of a record: its argument. All its words have it, as long as it was read as a whole; so do these frames.
fn number_of(record: &Record, frames: usize) -> u64 {
    let Record::Pair(_, record) = record else { panic!("{record:?}") };
    let number = record.argument;
    assert_eq!((record.sp, record.other), (number, number), "words of several records");
    let frames = &record.frames[..frames];
    assert!(frames.iter().all(|&frame| frame == number), "words of several records");
    number
}
