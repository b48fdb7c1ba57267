//! All interleavings of a few accesses of two or three threads to one word, and mistakes in each step.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use loom::model::Builder;

use self::Mistake::*;
use super::{
    history::{History, Seen},
    thread::{
        CELL_WORDS,
        Op::{self, Epoch, Read, Write},
        Thread, World, reserved,
    },
};
use crate::model::{machine::Machine, message};

/// Step of the protocol that is left out or done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The owner defers an access by stores.
    DeferredByStores,
    /// A cell is taken by stores.
    TakenByStores,
    /// Another thread takes the cell of writes alone.
    ReadsNotTaken,
    /// The order of a record is read before the cells are taken.
    OrderBeforeCells,
    /// The cells are not looked at after the order was read.
    NotLookedAgain,
    /// The deferred access remains in the cell that is taken.
    FlushedTwice,
    /// A deferred access is recorded although its owner has changed the cell meanwhile.
    FailedTakeRecorded,
    /// The order of a deferred access's record is read before the access is seen.
    FlushOrderedBeforeLoad,
    /// The order of a deferred access's record is read after the cell was taken.
    FlushOrderedAfterChange,
    /// The slot of a deferred access's record is reserved after the cell was taken.
    FlushReservedAfterChange,
}

/// Threads with their programs, and a bound of preemptions.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    threads: &'static [&'static [Op]],
    preemptions: usize,
}

/// A write of an owner is deferred while another thread comes.
const TAKEN: Scenario =
    Scenario { threads: &[&[Write(1), Epoch, Write(1)], &[Write(1)]], preemptions: 2 };

/// So is a read.
const READ_TAKEN: Scenario =
    Scenario { threads: &[&[Write(1), Epoch, Read(1)], &[Write(1)]], preemptions: 2 };

/// The other thread becomes the owner, and defers accesses too.
const BACK: Scenario = Scenario {
    threads: &[&[Write(1), Epoch, Write(1), Epoch, Write(1)], &[Write(1), Epoch, Write(1)]],
    preemptions: 2,
};

/// Two threads come to an owner's word.
const THREE: Scenario =
    Scenario { threads: &[&[Write(1), Epoch, Write(1)], &[Write(1)], &[Write(1)]], preemptions: 2 };

/// Processor steps after which stores become visible.
const DELAYS: [u64; 2] = [0, 100];

impl Scenario {
    /// Executes all interleavings, as `model::scenario` does.
    fn check(self, mistake: Option<Mistake>) -> Result<usize, String> {
        DELAYS.into_iter().map(|delay| self.check_with(delay, mistake)).sum()
    }

    fn check_with(self, delay: u64, mistake: Option<Mistake>) -> Result<usize, String> {
        // The model checker's state is that of its thread, and does not survive a panic.
        let checked = thread::spawn(move || {
            let mut model = Builder::new();
            model.max_branches = 10_000;
            model.preemption_bound.get_or_insert(self.preemptions);
            let executed = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&executed);
            model.check(move || {
                counter.fetch_add(1, Relaxed);
                self.run(delay, mistake);
            });
            executed.load(Relaxed)
        });
        checked.join().map_err(|panic| message(&*panic))
    }

    fn run(self, delay: u64, mistake: Option<Mistake>) {
        let count = self.threads.len();
        let machine = Machine::new(CELL_WORDS + count + 1, count + 1, delay);
        let world = Arc::new(World { machine, history: History::default(), mistake });
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let thread = Thread::new(&world, number);
                loom::thread::spawn(move || thread.run(self.threads[number]))
            })
            .collect();
        let reader = count;
        let until = world.machine.step(reader, |state| state.clock - 1);
        let reserved = world.machine.step(reader, |state| {
            state.barrier();
            (0..count).map(|number| state.load(reader, reserved(number))).collect()
        });
        world.history.saw(Seen { until, reserved });
        for thread in threads {
            thread.join().unwrap();
        }
        Thread::new(&world, count).flush_all();
        world.history.check();
    }
}

#[test]
fn no_interleaving_misplaces_a_deferred_access() {
    for scenario in [TAKEN, READ_TAKEN, BACK, THREE] {
        let executed = scenario.check(None).unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
        println!("{executed} interleavings of {:?}", scenario.threads);
    }
}

/// Each mistake, with threads in which it shows.
const MISTAKES: &[(Mistake, Scenario)] = &[
    (DeferredByStores, TAKEN),
    (TakenByStores, BACK),
    (ReadsNotTaken, READ_TAKEN),
    (OrderBeforeCells, THREE),
    (NotLookedAgain, TAKEN),
    (FlushedTwice, BACK),
    (FailedTakeRecorded, THREE),
    (FlushOrderedBeforeLoad, TAKEN),
    (FlushOrderedAfterChange, THREE),
    (FlushReservedAfterChange, THREE),
];

#[test]
fn each_mistake_is_found() {
    let found = |&(mistake, scenario): &(Mistake, Scenario)| {
        let found = scenario.check(Some(mistake));
        println!("{mistake:?}: {:?}", found.as_ref().map_err(|message| message.lines().next()));
        found.is_err()
    };
    let missed: Vec<_> = MISTAKES.iter().filter(|mistake| !found(mistake)).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
