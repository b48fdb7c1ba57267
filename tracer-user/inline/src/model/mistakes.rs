//! Mistakes that are made on purpose in each step of the protocol: the model checker must find them.

use self::RingMistake::*;
use super::scenario::{
    CONTINUED, FOLLOWS, INTERRUPTED_RESERVED, INTERRUPTED_WRITTEN, LAPS, LOSES, Scenario,
};

/// Step of the protocol that is left out or done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingMistake {
    /// A thread reads the order after it has reserved a slot.
    OrderAfterReserve,
    /// A thread reads the order before it has acquired.
    OrderBeforeAcquire,
    /// A thread reserves a slot by a load and a store.
    ReserveInTwoSteps,
    /// A thread writes to its ring whether there is room or not.
    LimitNotAwaited,
    /// A thread keeps the reservation of an event that is lost.
    ReservationKept,
    /// A thread writes the mark first.
    PublishBeforeWrite,
    /// A thread publishes the first slot of a record before those that continue it.
    ContinuationAfterFirst,
    /// A thread releases before it has made the record.
    ActionBeforeRecord,
    /// The reader goes on without a barrier.
    NoBarrier,
    /// The reader reads the time after the barrier.
    TimeAfterBarrier,
    /// The reader gives a slot back before it has read it.
    LimitTooEarly,
    /// The reader does not look at the lap of a mark.
    MarkNotCompared,
    /// The reader knows of no slots that are reserved and not published.
    ReservationsNotSeen,
    /// The reader does not see that events were lost.
    LossesNotSeen,
}

/// Each mistake, with threads in which it shows.
const MISTAKES: &[(RingMistake, Scenario)] = &[
    (OrderAfterReserve, INTERRUPTED_RESERVED),
    (OrderBeforeAcquire, FOLLOWS),
    (ReserveInTwoSteps, INTERRUPTED_RESERVED),
    (LimitNotAwaited, LAPS),
    (ReservationKept, LOSES),
    (PublishBeforeWrite, FOLLOWS),
    (ContinuationAfterFirst, CONTINUED),
    (ActionBeforeRecord, FOLLOWS),
    (NoBarrier, FOLLOWS),
    (TimeAfterBarrier, FOLLOWS),
    (LimitTooEarly, LAPS),
    (MarkNotCompared, LAPS),
    (ReservationsNotSeen, INTERRUPTED_WRITTEN),
    (LossesNotSeen, LOSES),
];

#[test]
fn each_mistake_is_found() {
    for &(mistake, scenario) in MISTAKES {
        let found = scenario.check(Some(mistake));
        println!("{mistake:?}: {found:?}");
        assert!(found.is_err(), "{mistake:?} is not found in {found:?} interleavings");
    }
}

#[test]
fn with_the_counter_no_barrier_is_needed() {
    for scenario in [FOLLOWS, INTERRUPTED_RESERVED, INTERRUPTED_WRITTEN] {
        scenario.counted().check(Some(NoBarrier)).unwrap();
    }
}
