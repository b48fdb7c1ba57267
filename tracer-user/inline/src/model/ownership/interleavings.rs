//! All interleavings of a few accesses of two or three threads to one word, and mistakes in each step.

use super::{
    mistakes::OwnershipMistake::{self, *},
    scenario::Scenario,
    thread::Op::{Epoch, Read, Write},
};

/// A write of an owner is deferred while another thread comes.
const TAKEN: Scenario = Scenario {
    threads: &[&[Write(1), Epoch, Write(1)], &[Write(1)]],
    signal: None,
    preemptions: 2,
};

/// So is a read.
const READ_TAKEN: Scenario =
    Scenario { threads: &[&[Write(1), Epoch, Read(1)], &[Write(1)]], signal: None, preemptions: 2 };

/// The other thread becomes the owner, and defers accesses too.
const BACK: Scenario = Scenario {
    threads: &[&[Write(1), Epoch, Write(1), Epoch, Write(1)], &[Write(1), Epoch, Write(1)]],
    signal: None,
    preemptions: 2,
};

/// Another thread comes between the first look of an access and its record.
const RACE: Scenario = Scenario {
    threads: &[&[Epoch, Write(1), Write(1)], &[Write(1), Write(1)]],
    signal: None,
    preemptions: 2,
};

/// Two threads come to an owner's word.
const THREE: Scenario = Scenario {
    threads: &[&[Write(1), Epoch, Write(1)], &[Write(1)], &[Write(1)]],
    signal: None,
    preemptions: 2,
};

#[test]
fn no_interleaving_misplaces_a_deferred_access() {
    for scenario in [TAKEN, READ_TAKEN, BACK, RACE, THREE] {
        let executed = scenario.check(None).unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
        println!("{executed} interleavings of {:?}", scenario.threads);
    }
}

/// Each mistake, with threads in which it shows.
const MISTAKES: &[(OwnershipMistake, Scenario)] = &[
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
    (LateNotBegun, RACE),
];

#[test]
fn each_mistake_is_found() {
    let found = |&(mistake, scenario): &(OwnershipMistake, Scenario)| {
        let found = scenario.check(Some(mistake));
        println!("{mistake:?}: {:?}", found.as_ref().map_err(|message| message.lines().next()));
        found.is_err()
    };
    let missed: Vec<_> = MISTAKES.iter().filter(|mistake| !found(mistake)).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
