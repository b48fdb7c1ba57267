//! The state table of the module, row by row.

use std::vec::Vec;

use super::{
    history::Record,
    world::{self, Step, World},
};
use crate::{
    octet::{Held, MapMemory, Shared},
    table::thread_and_epoch,
};

/// State of a word, with the id of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unowned,
    RdEx(u64),
    WrEx(u64),
    RdSh,
}

/// Access of a thread, or a bypass that happened meanwhile.
#[derive(Clone, Copy, Debug)]
enum Input {
    By(usize, Step),
    Bypass,
}

/// Record in the ring buffer, with the id of the accessing thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emitted {
    Access(u32),
    /// Deferred accesses: set if there is a write, and a read.
    Deferred(u64, bool, bool),
}

use Emitted::{Access, Deferred};
use Input::{By, Bypass};
use State::{RdEx, RdSh, Unowned, WrEx};

const READ: Step = Step::Read(0, 0xff);
const WRITE: Step = Step::Write(0, 0xff);
const COMMUTE: Step = Step::Commute(0, 0xff);
const READ_LOW: Step = Step::Read(0, 0x0f);
const WRITE_LOW: Step = Step::Write(0, 0x0f);
const OTHER_WORD: Step = Step::Write(1, 0xff);
const SEVERAL: Step = Step::Several(0);

/// Accesses that lead to the state before, the access, and the expected state and record after it.
type Row = (&'static [Input], State, Input, State, &'static [Emitted]);

const ROWS: &[Row] = &[
    (&[], Unowned, By(1, WRITE), WrEx(1), &[Access(1)]),
    (&[], Unowned, By(1, READ), RdEx(1), &[Access(1)]),
    (&[], Unowned, By(1, SEVERAL), Unowned, &[Access(1)]),
    (&[By(1, READ)], RdEx(1), By(1, READ), RdEx(1), &[]),
    (&[By(1, READ)], RdEx(1), By(1, READ_LOW), RdEx(1), &[Access(1)]),
    (&[By(1, READ)], RdEx(1), By(1, WRITE), WrEx(1), &[Access(1)]),
    (&[By(1, READ)], RdEx(1), By(1, SEVERAL), RdEx(1), &[Access(1)]),
    (&[By(1, WRITE)], WrEx(1), By(1, WRITE), WrEx(1), &[]),
    (&[By(1, WRITE)], WrEx(1), By(1, READ), WrEx(1), &[]),
    (&[By(1, WRITE)], WrEx(1), By(1, READ_LOW), WrEx(1), &[]),
    (&[By(1, WRITE)], WrEx(1), By(1, WRITE_LOW), WrEx(1), &[Access(1)]),
    (&[By(1, WRITE_LOW)], WrEx(1), By(1, READ), WrEx(1), &[Access(1)]),
    (&[By(1, WRITE)], WrEx(1), By(2, WRITE), WrEx(2), &[Access(2)]),
    (
        &[By(1, WRITE), By(1, WRITE)],
        WrEx(1),
        By(2, WRITE),
        WrEx(2),
        &[Deferred(1, true, false), Access(2)],
    ),
    (
        &[By(1, READ), By(1, READ)],
        RdEx(1),
        By(2, WRITE),
        WrEx(2),
        &[Deferred(1, false, true), Access(2)],
    ),
    (
        &[By(1, WRITE), By(1, WRITE), By(1, READ)],
        WrEx(1),
        By(2, READ),
        RdEx(2),
        &[Deferred(1, true, true), Access(2)],
    ),
    (
        &[By(1, WRITE), By(2, WRITE), By(2, WRITE)],
        WrEx(2),
        By(3, WRITE),
        RdSh,
        &[Deferred(2, true, false), Access(3)],
    ),
    (
        &[By(1, WRITE), By(2, READ), By(2, READ)],
        RdEx(2),
        By(1, READ),
        RdSh,
        &[Deferred(2, false, true), Access(1)],
    ),
    (
        &[By(1, WRITE), By(1, WRITE)],
        WrEx(1),
        By(2, SEVERAL),
        RdSh,
        &[Deferred(1, true, false), Access(2)],
    ),
    (
        &[By(1, WRITE), By(1, WRITE), Bypass],
        WrEx(1),
        By(1, WRITE),
        RdSh,
        &[Deferred(1, true, false), Access(1)],
    ),
    (
        &[By(1, READ), By(1, READ), Bypass],
        RdEx(1),
        By(2, READ),
        RdSh,
        &[Deferred(1, false, true), Access(2)],
    ),
    (&[By(1, WRITE), By(1, WRITE)], WrEx(1), By(2, OTHER_WORD), WrEx(1), &[Access(2)]),
    (
        &[By(1, WRITE), By(1, WRITE), By(2, OTHER_WORD)],
        WrEx(1),
        By(2, OTHER_WORD),
        Unowned,
        &[Deferred(1, true, false), Access(2)],
    ),
    (
        &[By(1, WRITE), By(2, OTHER_WORD), By(1, WRITE)],
        WrEx(1),
        By(2, OTHER_WORD),
        WrEx(1),
        &[Access(2)],
    ),
    (&[By(1, COMMUTE)], WrEx(1), By(1, COMMUTE), WrEx(1), &[]),
    (
        &[By(1, COMMUTE), By(1, COMMUTE)],
        WrEx(1),
        By(2, COMMUTE),
        RdEx(2),
        &[Deferred(1, true, false), Access(2)],
    ),
    (&[By(1, WRITE), By(2, COMMUTE)], RdEx(2), By(2, COMMUTE), RdEx(2), &[Access(2)]),
    (&[By(1, WRITE), By(2, COMMUTE)], RdEx(2), By(2, WRITE), WrEx(2), &[Access(2)]),
    (&[By(1, WRITE), By(2, COMMUTE)], RdEx(2), By(2, READ), RdEx(2), &[Access(2)]),
    (&[By(1, WRITE), By(2, WRITE)], WrEx(2), By(2, COMMUTE), WrEx(2), &[Access(2)]),
    (&[By(1, WRITE), By(2, SEVERAL)], RdSh, By(1, WRITE), RdSh, &[Access(1)]),
    (&[By(1, WRITE), Bypass, By(1, READ)], RdSh, By(1, READ), RdSh, &[Access(1)]),
    (&[By(1, WRITE), By(2, WRITE), By(3, WRITE)], RdSh, By(3, WRITE), RdSh, &[Access(3)]),
    (&[By(1, WRITE), By(2, WRITE), By(3, WRITE)], RdSh, By(1, READ), RdSh, &[Access(1)]),
    (&[By(1, WRITE), By(2, WRITE), By(3, WRITE)], RdSh, By(1, SEVERAL), RdSh, &[Access(1)]),
    (
        &[By(1, WRITE), By(2, WRITE), By(3, WRITE), By(2, OTHER_WORD)],
        RdSh,
        By(2, OTHER_WORD),
        Unowned,
        &[Access(2)],
    ),
];

fn state(world: &World<MapMemory>) -> State {
    let slot = world.slot(0);
    let (owner, _) = thread_and_epoch(slot.owner.get());
    match (slot.word(), owner, slot.bits.get() & 0xff) {
        (1.., _, _) => Unowned,
        (0, 0, _) => RdSh,
        (0, _, 0) => RdEx(owner),
        (0, _, _) => WrEx(owner),
    }
}

fn emitted(world: &World<MapMemory>) -> Vec<Emitted> {
    let history = world.history();
    let emitted = |record: &Record| match *record {
        Record::Access(number) => Access(history.accesses[number].tid),
        Record::Owned { owner, write, read, .. } => {
            Deferred(owner, write.is_some(), read.is_some())
        }
    };
    history.records.iter().map(emitted).collect()
}

#[test]
fn transitions() {
    for row in ROWS {
        let (before, state_before, input, state_after, records) = *row;
        let world = World::<MapMemory>::new(1, None);
        let mut threads: Vec<_> = (0..4).map(world::thread).collect();
        let mut execute = |input| match input {
            By(thread, step) => world.step(&mut threads[thread], step),
            Bypass => world.slot(0).bypassed.set(1),
        };
        before.iter().copied().for_each(&mut execute);
        assert_eq!(state(&world), state_before, "{row:?}");
        let records_before = emitted(&world).len();
        execute(input);
        assert_eq!(state(&world), state_after, "{row:?}");
        let after = emitted(&world);
        assert_eq!(&after[records_before..], records, "{row:?}");
    }
}
