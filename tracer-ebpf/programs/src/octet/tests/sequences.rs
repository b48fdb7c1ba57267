//! Long sequences of accesses, one at a time, against a plain list of all that happened.

use proptest::prelude::*;
use std::vec::Vec;

use super::{
    history::{Happened, History, Record},
    world::{self, Step, World},
};
use crate::octet::MapMemory;

const WORDS: u64 = 6;

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let usual = prop_oneof![3 => Just(0xff), 1 => Just(0x0f), 1 => Just(0xf0), 1 => Just(0x3c)];
    let step = prop_oneof![
        5 => (0..WORDS, usual.clone()).prop_map(|(word, mask)| Step::Read(word, mask)),
        5 => (0..WORDS, usual.clone()).prop_map(|(word, mask)| Step::Write(word, mask)),
        3 => (0..WORDS, usual).prop_map(|(word, mask)| Step::Commute(word, mask)),
        1 => (0..WORDS - 1).prop_map(Step::Several),
    ];
    // A thread mostly goes on with what it has accessed before.
    let run = (0usize..3, prop::collection::vec(step, 1..3), 1usize..4).prop_map(
        |(thread, steps, times)| {
            let steps: Vec<_> = steps.into_iter().map(|step| (thread, step)).collect();
            steps.repeat(times)
        },
    );
    prop::collection::vec(run, 1..16).prop_map(|runs| runs.concat())
}

fn run(slots: usize, steps: &[(usize, Step)]) -> History {
    execute(World::new(slots, None), steps)
}

fn execute(world: World<MapMemory>, steps: &[(usize, Step)]) -> History {
    let mut threads: Vec<_> = (1..4).map(world::thread).collect();
    for &(thread, step) in steps {
        world.step(&mut threads[thread], step);
    }
    world.flush();
    world.history()
}

/// Returns whether two accesses of different threads depend on each other by a byte of a word.
fn conflict(a: &Happened, b: &Happened, word: u64, byte: u32) -> bool {
    let has = |access: &Happened| access.has(word) && access.mask >> byte & 1 != 0;
    a.tid != b.tid && has(a) && has(b) && (a.writes || b.writes)
}

/// Accesses that records represent, in the order of the records.
fn represented(history: &History) -> Vec<(usize, bool)> {
    let accesses = |record: &Record| match *record {
        Record::Access(number) => [Some((number, true)), None],
        Record::Owned { write, read, .. } => [write, read].map(|last| Some((last?.number, false))),
    };
    history.records.iter().flat_map(accesses).flatten().collect()
}

/// Each dependency between two accesses is one between their records, or those that stand for them: of the first, a
/// record of it or of a later access of its thread; of the second, the record of it or of an earlier one, which must
/// not be a deferred one, as that depends on nothing.
fn check_dependencies(history: &History) {
    let records = represented(history);
    let accesses = &history.accesses;
    for (number, second) in accesses.iter().enumerate() {
        for (earlier, first) in accesses[..number].iter().enumerate() {
            for word in first.words.0..=first.words.1 {
                for byte in (0..8).filter(|&byte| conflict(first, second, word, byte)) {
                    let is_there = records.iter().enumerate().any(|(place, &(x, _))| {
                        accesses[x].tid == first.tid
                            && x >= earlier
                            && records[place..].iter().any(|&(y, is_access)| {
                                is_access
                                    && accesses[y].tid == second.tid
                                    && y <= number
                                    && conflict(&accesses[x], &accesses[y], word, byte)
                            })
                    });
                    assert!(is_there, "{number} depends on {earlier} in silence: {history:#?}");
                }
            }
        }
    }
}

proptest! {
    /// Also where words displace one another.
    #[test]
    fn each_dependency_has_its_records(slots in 1..8usize, steps in steps()) {
        let history = run(slots, &steps);
        history.check();
        prop_assert_eq!(history.lost, 0);
        check_dependencies(&history);
    }

    /// Also without a table of epochs, if the word has a slot: an access after another thread's begins an epoch.
    #[test]
    fn ownership_begins_epochs(steps in prop::collection::vec((0usize..3, any::<bool>()), 1..40)) {
        let mut world = World::new(1, None);
        world.has_epochs = false;
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(thread, writes)| {
                (thread, if writes { Step::Write(0, 0xff) } else { Step::Read(0, 0xff) })
            })
            .collect();
        execute(world, &steps).check();
    }

    /// If no words share a slot, a thread alone makes a record of the first access of each kind to each word.
    #[test]
    fn an_owner_makes_no_records(steps in prop::collection::vec((0..WORDS, any::<bool>()), 1..60)) {
        let steps: Vec<_> = steps
            .into_iter()
            .map(|(word, writes)| {
                (0, if writes { Step::Write(word, 0xff) } else { Step::Read(word, 0xff) })
            })
            .collect();
        let history = run(WORDS as usize, &steps);
        history.check();
        for word in 0..WORDS {
            let records = history.records.iter().filter(|record| {
                matches!(**record, Record::Access(number) if history.accesses[number].has(word))
            });
            prop_assert!(records.count() <= 2);
        }
    }
}
