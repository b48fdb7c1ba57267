//! Mistakes that are made on purpose in each step of the protocol: the model checker must find them.

use super::{
    interleavings::{COMES, SEVERAL, SEVERAL_CLAIMED, SEVERAL_UNOWNED, Scenario, TURNS, TWO_WORDS},
    world::Mistake::{self, *},
};

/// Each mistake, with accesses in which it shows.
const MISTAKES: &[(Mistake, Scenario)] = &[
    (LockNotAwaited, COMES),
    (LockWithoutBarrier, COMES),
    (LockReleasedBeforeFlush, COMES),
    (RecordBeforeLock, COMES),
    (RecordAfterUnlock, SEVERAL_CLAIMED),
    (NotFlushed, TWO_WORDS),
    (FlushedTwice, COMES),
    (FlushedAfterRecord, COMES),
    (OwnerStays, COMES),
    (OwnerNotSeen, SEVERAL),
    (BypassNotShown, TURNS),
    (BypassNotChecked, TURNS),
    (BypassWithoutBarrier, TURNS),
    (LockNotSeen, COMES),
    (LockSeenOnce, COMES),
    (DeferredNotSeen, COMES),
    (LossNotCounted, COMES),
    (NotDisownedBefore, SEVERAL),
    (NotDisownedAfter, SEVERAL_UNOWNED),
    (SeveralNotShown, SEVERAL_CLAIMED),
    (EpochGoesOn, TURNS),
];

#[test]
fn each_mistake_is_found() {
    for &(mistake, scenario) in MISTAKES {
        let found = scenario.check(Some(mistake));
        assert!(found.is_err(), "{mistake:?} is not found in {found:?} interleavings");
    }
}
