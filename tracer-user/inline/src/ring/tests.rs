//! A single ring, step by step.

use super::*;
use crate::{
    arena::{Arena, Segment},
    testing::{LONG, SHORT, TestMemory, Writer, arena, start},
};

const CAPACITY: u64 = 16;

struct Pair {
    memory: TestMemory,
    writer: Writer,
    ring: Ring,
    arena: Arena,
}

fn pair(mode: Mode) -> Pair {
    let (memory, mut arena) = arena(CAPACITY, 1);
    let segment = arena.start(start(1, mode), &memory).unwrap();
    let writer = Writer { memory: memory.clone(), segment, epoch: core::cell::Cell::default() };
    let ring = Ring::new(segment, mode);
    Pair { memory, writer, ring, arena }
}

impl Pair {
    /// Takes all records, after a look. Returns the number of each and whether there is a gap before it, and the number
    /// of losses.
    fn take_all(&mut self) -> (Vec<(u64, bool)>, u64) {
        self.ring.look(&self.memory);
        self.take()
    }

    fn take(&mut self) -> (Vec<(u64, bool)>, u64) {
        let (mut lost, mut taken) = (0, Vec::new());
        while self.ring.peek(&self.memory, &mut lost).is_some() {
            match self.ring.take(&self.memory).map(|(_, taken)| taken) {
                Some(record) => taken.push((record.first.argument, record.is_gap)),
                None => lost += 1,
            }
        }
        (taken, lost)
    }

    fn numbers(&mut self) -> Vec<u64> {
        self.take_all().0.into_iter().map(|(number, _)| number).collect()
    }

    fn mode(&self) -> u64 {
        self.writer.load(offset_of!(ThreadBlock, mode))
    }
}

#[test]
fn records_of_several_laps_come_in_order() {
    let mut pair = pair(Mode::Lossless);
    let mut next = 0;
    for lap in 0..10 {
        for number in 0..10 {
            let site = if number % 3 == 0 { LONG } else { SHORT };
            assert!(pair.writer.record(site, 100 * lap + number, 100 * lap + number));
        }
        for number in pair.numbers() {
            assert_eq!(number, next);
            next = if next % 10 == 9 { next + 91 } else { next + 1 };
        }
        assert!(pair.ring.give_back(&pair.memory));
    }
    assert_eq!(next, 1000);
}

#[test]
fn marks_wrap_around() {
    let mut pair = pair(Mode::Lossless);
    let first = (1 << 32) - 40;
    pair.memory.store(pair.writer.field(offset_of!(ThreadBlock, reserved)), first);
    pair.memory.store(pair.writer.field(offset_of!(ThreadBlock, limit)), first + CAPACITY);
    pair.ring = Ring::new(Segment { first, ..pair.writer.segment }, Mode::Lossless);
    for lap in 0..10 {
        for number in 0..12 {
            assert_eq!(pair.numbers(), [0_u64; 0]);
            assert!(pair.writer.record(SHORT, lap, number));
            assert_eq!(pair.numbers(), [number]);
        }
        pair.ring.give_back(&pair.memory);
    }
}

#[test]
fn room_comes_back_in_steps_or_when_the_thread_waits() {
    let mut pair = pair(Mode::Lossless);
    pair.writer.record(SHORT, 1, 1);
    assert_eq!(pair.numbers(), [1]);
    assert!(!pair.ring.give_back(&pair.memory), "less than a step");
    (0..CAPACITY - 1).for_each(|number| assert!(pair.writer.record(SHORT, 2, number)));
    let waiting = pair.writer.reserve(SHORT);
    assert!(!pair.writer.has_room(waiting));
    pair.ring.look(&pair.memory);
    assert!(pair.ring.give_back(&pair.memory), "the thread waits");
    assert!(pair.writer.has_room(waiting));
}

#[test]
fn a_loss_is_a_gap_beside_the_limit() {
    let mut pair = pair(Mode::Drop);
    (0..CAPACITY).for_each(|number| assert!(pair.writer.record(SHORT, 1, number)));
    assert!(!pair.writer.record(SHORT, 1, 99));
    assert_eq!(pair.ring.look(&pair.memory), 1);
    let gaps = |taken: Vec<(u64, bool)>| -> Vec<u64> {
        taken.into_iter().filter_map(|(number, is_gap)| is_gap.then_some(number)).collect()
    };
    assert_eq!(gaps(pair.take().0), [CAPACITY - 2, CAPACITY - 1]);
    pair.ring.give_back(&pair.memory);
    // Lost before the thread sees the new limit, and found at the next look.
    let lost = pair.writer.load(offset_of!(ThreadBlock, lost));
    pair.memory.store(pair.writer.field(offset_of!(ThreadBlock, lost)), lost + 1);
    (0..4).for_each(|number| assert!(pair.writer.record(SHORT, 1, 100 + number)));
    assert_eq!(gaps(pair.take_all().0), [100, 101, 102, 103]);
}

#[test]
fn a_thread_does_not_wait_for_itself() {
    let mut pair = pair(Mode::Lossless);
    let outer = pair.writer.reserve(SHORT);
    (1..CAPACITY).for_each(|number| assert!(pair.writer.record(SHORT, 1, number)));
    let nested = pair.writer.reserve(SHORT);
    assert!(!pair.writer.has_room(nested));
    assert_eq!(pair.numbers(), [0_u64; 0]);
    assert!(pair.ring.give_back(&pair.memory), "the thread is to look at its mode");
    assert_eq!(pair.mode(), Mode::Drop as u64);
    pair.writer.lose(nested);
    assert_eq!(pair.numbers(), [0_u64; 0]);
    assert!(!pair.ring.give_back(&pair.memory));
    assert_eq!(pair.mode(), Mode::Drop as u64, "until the outer record is published");
    pair.writer.publish(outer, 1, 0);
    assert_eq!(pair.numbers().len(), CAPACITY as usize);
    pair.ring.give_back(&pair.memory);
    assert_eq!(pair.mode(), Mode::Lossless as u64);
    assert!(pair.writer.record(SHORT, 2, 50));
    assert_eq!(pair.take_all(), (vec![(50, true)], 0), "the handler's event was lost");
}

#[test]
fn a_thread_waits_whose_records_are_held_back() {
    let mut pair = pair(Mode::Lossless);
    (0..CAPACITY).for_each(|number| assert!(pair.writer.record(SHORT, 1, number)));
    let waiting = pair.writer.reserve(SHORT);
    assert!(!pair.writer.has_room(waiting));
    // Nothing is taken, while records of other threads are.
    pair.ring.look(&pair.memory);
    assert!(!pair.ring.give_back(&pair.memory));
    assert_eq!(pair.mode(), Mode::Lossless as u64);
}

#[test]
fn a_reserved_slot_holds_back_those_behind_it() {
    let mut pair = pair(Mode::Lossless);
    pair.writer.record(SHORT, 5, 1);
    let outer = pair.writer.reserve(LONG);
    assert_eq!(pair.numbers(), [1]);
    assert_eq!(pair.ring.blocked(&pair.memory), Some(Blocked::Plain { place: 5 }));
    pair.writer.record(LONG, 9, 3);
    pair.writer.record(LONG, 8, 4);
    assert_eq!(pair.numbers(), [0_u64; 0]);
    assert_eq!(pair.ring.blocked(&pair.memory), Some(Blocked::Nested { order: 8 }));
    let seconds = Duration::from_secs;
    assert_eq!(pair.ring.blocked_for(seconds(10)), Duration::ZERO);
    assert_eq!(pair.ring.blocked_for(seconds(12)), seconds(2));
    pair.writer.publish(outer, 6, 2);
    assert_eq!(pair.numbers(), [2, 3, 4]);
    assert_eq!(pair.ring.blocked(&pair.memory), None);
}

#[test]
fn a_slot_that_was_given_up_is_of_no_use_until_it_is_written() {
    let mut pair = pair(Mode::Lossless);
    let outer = pair.writer.reserve(SHORT);
    (1..CAPACITY).for_each(|number| assert!(pair.writer.record(SHORT, 1, number)));
    assert_eq!(pair.numbers(), [0_u64; 0]);
    pair.ring.abandon();
    assert_eq!(pair.take().0.len(), CAPACITY as usize - 1);
    pair.ring.give_back(&pair.memory);
    // The next lap.
    (0..CAPACITY).for_each(|number| assert!(pair.writer.record(SHORT, 1, 100 + number)));
    let (taken, lost) = pair.take_all();
    assert_eq!((taken[0].0, taken.len(), lost), (101, CAPACITY as usize - 1, 1));
    pair.ring.give_back(&pair.memory);
    // The outer record is published after all.
    pair.writer.publish(outer, 1, 0);
    pair.ring.look(&pair.memory);
    (0..CAPACITY).for_each(|number| assert!(pair.writer.record(SHORT, 1, 200 + number)));
    let (taken, lost) = pair.take_all();
    assert_eq!((taken[0].0, taken.len(), lost), (200, CAPACITY as usize, 0));
}

#[test]
fn what_a_killed_thread_has_not_published_is_lost() {
    let mut pair = pair(Mode::Lossless);
    pair.writer.record(SHORT, 1, 1);
    let _never = pair.writer.reserve(LONG);
    pair.writer.record(SHORT, 2, 3);
    assert_eq!(pair.numbers(), [1]);
    pair.ring.end();
    assert!(!pair.ring.is_drained());
    let (taken, lost) = pair.take_all();
    assert_eq!((taken, lost), (vec![(3, false)], 2));
    assert!(pair.ring.is_drained());
}

#[test]
fn the_record_that_a_killed_thread_has_begun_last_is_no_loss() {
    let mut pair = pair(Mode::Lossless);
    pair.writer.record(SHORT, 1, 1);
    let _never = pair.writer.reserve(LONG);
    pair.ring.end();
    assert_eq!(pair.take_all(), (vec![(1, false)], 0));
    assert!(pair.ring.is_drained());
}

#[test]
fn the_ring_of_another_thread_has_no_records_of_the_one_before() {
    let mut pair = pair(Mode::Lossless);
    (0..5).for_each(|number| assert!(pair.writer.record(SHORT, 1, number)));
    assert_eq!(pair.numbers().len(), 5);
    let segment = pair.ring.for_next();
    assert_eq!(segment, Segment { first: 5, ..pair.ring.segment() });
    pair.arena.release(segment);
    assert_eq!(pair.arena.start(start(2, Mode::Lossless), &pair.memory).unwrap(), segment);
    pair.ring = Ring::new(segment, Mode::Lossless);
    for _ in 0..CAPACITY {
        pair.writer.reserve(SHORT);
    }
    assert_eq!(pair.numbers(), [0_u64; 0], "reserved and not published");
}

#[test]
fn numbers_go_on_at_the_limit_of_a_thread_that_died_waiting() {
    let mut pair = pair(Mode::Lossless);
    for number in 0..CAPACITY {
        assert!(pair.writer.record(SHORT, 1, number));
    }
    pair.writer.reserve(LONG);
    pair.ring.end();
    assert_eq!(pair.numbers().len(), CAPACITY as usize);
    assert!(pair.ring.is_drained());
    let next = pair.ring.for_next();
    assert_eq!((next.first, next.limit()), (CAPACITY, 2 * CAPACITY));
}

#[test]
fn nothing_in_the_memory_makes_the_reader_panic() {
    let mut pair = pair(Mode::Lossless);
    for value in [u64::MAX, 1 << 63, 12, 0] {
        for offset in [offset_of!(ThreadBlock, reserved), offset_of!(ThreadBlock, lost)] {
            pair.memory.store(pair.writer.field(offset), value);
        }
        let _ = pair.take_all();
        let _ = pair.ring.blocked(&pair.memory);
        let _ = pair.ring.give_back(&pair.memory);
    }
}
