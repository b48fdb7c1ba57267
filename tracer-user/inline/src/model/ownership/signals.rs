//! Signals between the steps of a thread, whose handlers access the word, and return or jump out of the probe.

use super::{
    mistakes::OwnershipMistake::{self, *},
    scenario::Scenario,
    thread::{
        Op::{self, Epoch, Write},
        Point::{self, *},
        Signal,
    },
};

/// Two threads take the word from one another. Either may get the signal.
const THREADS: &[&[Op]] =
    &[&[Write(1), Epoch, Write(1), Write(1)], &[Write(1), Epoch, Write(1), Write(1)]];

const POINTS: [Point; 4] = [Settled, Reserved, FlushReserved, FlushChanged];

/// Programs of handlers: accesses in the epoch that they find, and in one of their own.
const HANDLERS: [&[Op]; 2] = [&[Write(1)], &[Epoch, Write(1), Write(1)]];

fn scenarios() -> impl Iterator<Item = Scenario> {
    let signals = POINTS.into_iter().flat_map(|point| {
        (0..8).map(move |bits| Signal {
            thread: bits & 1,
            point,
            pass: bits >> 1 & 1,
            handler: HANDLERS[bits >> 2 & 1],
            jumps: false,
        })
    });
    let signals = signals.flat_map(|signal| [signal, Signal { jumps: true, ..signal }]);
    signals.map(|signal| Scenario { threads: THREADS, signal: Some(signal), preemptions: 1 })
}

#[test]
fn no_signal_misplaces_a_deferred_access() {
    for scenario in scenarios() {
        let executed = scenario.check(None).unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
        println!("{executed} interleavings with {:?}", scenario.signal);
    }
}

const MISTAKES: [OwnershipMistake; 4] =
    [BegunBeforePublished, SlotKept, EpochKept, ExchangeRewound];

#[test]
fn each_mistake_is_found() {
    for mistake in MISTAKES {
        let found = scenarios().find_map(|scenario| {
            let message = scenario.check(Some(mistake)).err()?;
            Some((scenario.signal, message))
        });
        let (signal, message) = found.unwrap_or_else(|| panic!("{mistake:?} is not found"));
        println!("{mistake:?} by {signal:?}: {:?}", message.lines().next());
    }
}
