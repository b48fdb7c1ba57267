//! Tests that memory does not grow with the number of threads ever seen.

use super::Davida;
use crate::check::{Checker, Options};
use crate::event::{Event, LocationId, LockId, Op, RegionId, SyncId, ThreadId, VarId};

/// Life of the main thread and its children.
#[derive(Clone, Copy)]
struct Life {
    main_in_region: bool,
    exit: bool,
    join: bool,
}

/// Runs many threads, two at a time, that use objects of all kinds; returns sizes after a tenth of them and
/// at the end.
fn sizes(life: Life) -> [[usize; 4]; 2] {
    let mut checker = Davida::new(Options::default());
    let mut step = |thread: u32, op: Op| {
        let event = Event { thread: ThreadId(thread), op, location: LocationId(0) };
        checker.event(&event).expect("well-formed");
        checker.engine.sizes()
    };
    let (lock, rw, sync, barrier) = (LockId(0), LockId(1), SyncId(0), SyncId(1));
    step(0, Op::Write(VarId(0)));
    if life.main_in_region {
        step(0, Op::Begin(RegionId(9)));
    }
    let count = if life.main_in_region { 1_000 } else { 10_000 };
    let mut early = [0; 4];
    for child in 1..=count {
        step(0, Op::Fork(ThreadId(child)));
        let ops = [
            Op::Begin(RegionId(0)),
            Op::Read(VarId(0)),
            Op::Acquire(lock),
            Op::Write(VarId(1 + child % 4)),
            Op::Release(lock),
            Op::AcquireShared(rw),
            Op::ReleaseShared(rw),
            Op::Wait(sync),
            Op::Signal(sync),
            Op::Arrive(barrier),
            Op::End(None),
        ];
        for op in ops {
            step(child, op);
        }
        // A child ends while its successor runs.
        let last = child - 1;
        if last > 0 && life.exit {
            step(last, Op::Exit);
        }
        if last > 0 && life.join {
            step(0, Op::Join(ThreadId(last)));
        }
        if child == count / 10 {
            early = step(0, Op::Read(VarId(9)));
        }
    }
    [early, step(0, Op::Read(VarId(9)))]
}

#[test]
fn threads_that_are_joined_leave_nothing_behind() {
    let [_, [rows, lanes, pages, listed]] =
        sizes(Life { main_in_region: false, exit: false, join: true });
    assert!(rows <= 4 && lanes <= 4 && pages <= 2, "{rows} rows, {lanes} lanes, {pages} pages");
    assert!(listed <= 64, "{listed} events");
}

#[test]
fn threads_that_end_and_are_never_joined_leave_nothing_behind() {
    for join in [false, true] {
        let [_, [rows, lanes, pages, listed]] =
            sizes(Life { main_in_region: false, exit: true, join });
        assert!(rows <= 4 && lanes <= 4 && pages <= 2, "{rows} rows, {lanes} lanes, {pages} pages");
        assert!(listed <= 64, "{listed} events");
    }
}

/// The region follows every child, so that each must be remembered, but clocks need not grow.
#[test]
fn clocks_do_not_grow_with_the_threads_that_a_region_joins() {
    let [early, late] = sizes(Life { main_in_region: true, exit: false, join: true });
    assert!(late[1] <= 4, "{} lanes", late[1]);
    assert!(late[0] > 9 * early[0], "rows are needed while the region lasts: {late:?}");
}
