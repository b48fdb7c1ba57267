//! Benchmarks of inner parts of checking: `cargo bench -p checker --bench parts`. Whole traces are timed in
//! `speed`.

use checker::event::{Event, LocationId, LockId, Op, RegionId, ThreadId, VarId};
use checker::{Checker, Davida, Options};
use divan::Bencher;
use divan::counter::ItemsCount;

const TURNS: u32 = 100_000;

fn main() {
    divan::main();
}

/// Checks `N` events over and over, each with the thread and operation of its number.
fn turns<const N: usize>(bencher: Bencher<'_, '_>, turn: impl Fn(u32) -> [(u32, Op); N]) {
    let event = |(thread, op)| Event { thread: ThreadId(thread), op, location: LocationId(0) };
    check(bencher, &(0..TURNS).flat_map(turn).map(event).collect::<Vec<_>>());
}

/// Runs `op` inside one region of thread 0.
fn in_region(bencher: Bencher<'_, '_>, op: impl Fn(u32) -> Op) {
    let ops = std::iter::once(Op::Begin(RegionId(0))).chain((0..TURNS).map(op));
    let event = |op| Event { thread: ThreadId(0), op, location: LocationId(0) };
    check(bencher, &ops.map(event).collect::<Vec<_>>());
}

fn check(bencher: Bencher<'_, '_>, events: &[Event]) {
    bencher
        .counter(ItemsCount::new(events.len()))
        .with_inputs(|| Davida::new(Options::default()))
        .bench_local_values(|mut checker| {
            checker.events(events).expect("well-formed");
            checker.counts()
        });
}

#[divan::bench]
fn reads_in_a_region(bencher: Bencher<'_, '_>) {
    in_region(bencher, |i| Op::Read(VarId(i % 64)));
}

#[divan::bench]
fn writes_in_a_region(bencher: Bencher<'_, '_>) {
    in_region(bencher, |i| Op::Write(VarId(i % 64)));
}

#[divan::bench]
fn writes_outside_regions(bencher: Bencher<'_, '_>) {
    turns(bencher, |i| [(0, Op::Write(VarId(i % 64)))]);
}

#[divan::bench(args = [4, 64])]
fn writes_after_other_threads(bencher: Bencher<'_, '_>, threads: u32) {
    turns(bencher, |i| [(i % threads, Op::Write(VarId(i % 63)))]);
}

#[divan::bench(args = [4, 64])]
fn reads_by_all_then_a_write(bencher: Bencher<'_, '_>, threads: u32) {
    turns(bencher, |i| {
        let (turn, thread) = (i / threads, i % threads);
        let variable = VarId(turn % 63);
        [(thread, if thread == turn % threads { Op::Write(variable) } else { Op::Read(variable) })]
    });
}

#[divan::bench(args = [1, 4])]
fn regions_without_events(bencher: Bencher<'_, '_>, threads: u32) {
    turns(bencher, |i| [(i % threads, Op::Begin(RegionId(0))), (i % threads, Op::End(None))]);
}

#[divan::bench(args = [1, 4, 64])]
fn critical_sections_by_turns(bencher: Bencher<'_, '_>, threads: u32) {
    let lock = LockId(0);
    turns(bencher, |i| [(i % threads, Op::Acquire(lock)), (i % threads, Op::Release(lock))]);
}
