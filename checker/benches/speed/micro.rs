//! Inner parts, timed by themselves; whole workloads are elsewhere.

use crate::workload::Random;
use checker::event::{Event, LocationId, LockId, Op, RegionId, ThreadId, VarId};
use checker::{Checker, Davida, Options};
use std::time::{Duration, Instant};

const TURNS: u32 = 100_000;
const ROUNDS: usize = 20;

/// So many turns of some events, each by the thread and with the operation that its number gives.
fn turns<const N: usize>(turn: impl Fn(u32) -> [(u32, Op); N]) -> Vec<Event> {
    let event = |(thread, op)| Event { thread: ThreadId(thread), op, location: LocationId(0) };
    (0..TURNS).flat_map(turn).map(event).collect()
}

/// The same inside one region of thread 0.
fn in_region(mut op: impl FnMut(u32) -> Op) -> Vec<Event> {
    let ops = std::iter::once(Op::Begin(RegionId(0))).chain((0..TURNS).map(&mut op));
    ops.map(|op| Event { thread: ThreadId(0), op, location: LocationId(0) }).collect()
}

fn cases() -> Vec<(&'static str, Vec<Event>)> {
    let mut random = Random::new(3);
    let (region, lock) = (RegionId(0), LockId(0));
    vec![
        ("read in a region", in_region(|i| Op::Read(VarId(i % 64)))),
        ("write in a region", in_region(|i| Op::Write(VarId(i % 64)))),
        (
            "read or write at random",
            in_region(|_| match random.below(3) {
                0 => Op::Write(VarId(random.below(64))),
                _ => Op::Read(VarId(random.below(64))),
            }),
        ),
        ("write outside regions", turns(|i| [(0, Op::Write(VarId(i % 64)))])),
        ("write after another thread's", turns(|i| [(i % 4, Op::Write(VarId(i % 63)))])),
        ("begin, end", turns(|i| [(i % 4, Op::Begin(region)), (i % 4, Op::End(None))])),
        ("acquire, release", turns(|_| [(0, Op::Acquire(lock)), (0, Op::Release(lock))])),
        (
            "acquire, release by turns",
            turns(|i| [(i % 4, Op::Acquire(lock)), (i % 4, Op::Release(lock))]),
        ),
    ]
}

/// Prints the time of each, the best of several rounds.
pub fn run() {
    println!("{:30} {:>12}", "", "ns an event");
    for (name, trace) in cases() {
        let time = |_| {
            let mut checker = Davida::new(Options::default());
            let start = Instant::now();
            checker.events(&trace).expect("well-formed");
            std::hint::black_box(checker.counts());
            start.elapsed()
        };
        let best: Option<Duration> = (0..ROUNDS).map(time).min();
        let nanoseconds = best.unwrap_or_default().as_secs_f64() * 1e9 / trace.len() as f64;
        println!("{name:30} {nanoseconds:>12.1}");
    }
}
