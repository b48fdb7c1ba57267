//! Inner parts, timed by themselves; whole workloads are elsewhere.

use checker::event::*;
use checker::{Checker, Davida, Options};
pub fn run() {
    let n = 200_000u32;
    let ev = |t: u32, op: Op| Event { thread: ThreadId(t), op, location: LocationId(0) };
    let mut cases: Vec<(&str, Vec<Event>)> = vec![];
    let mut v = vec![ev(0, Op::Begin(RegionId(0)))];
    v.extend((0..n).map(|i| ev(0, Op::Read(VarId(i % 64)))));
    cases.push(("read in region", v));
    let mut v = vec![ev(0, Op::Begin(RegionId(0)))];
    v.extend((0..n).map(|i| ev(0, Op::Write(VarId(i % 64)))));
    cases.push(("write in region", v));
    let v = (0..n).map(|i| ev(0, Op::Write(VarId(i % 64)))).collect();
    cases.push(("unary write", v));
    let mut v = vec![ev(0, Op::Begin(RegionId(0)))];
    let mut r = crate::workload::Random::new(3);
    v.extend((0..n).map(|_| {
        ev(
            0,
            if r.below(3) == 0 {
                Op::Write(VarId(r.below(64)))
            } else {
                Op::Read(VarId(r.below(64)))
            },
        )
    }));
    cases.push(("random r/w in region", v));
    let v = (0..n)
        .flat_map(|i| [ev(i % 4, Op::Begin(RegionId(0))), ev(i % 4, Op::End(None))])
        .collect();
    cases.push(("begin end", v));
    let v = (0..n)
        .flat_map(|i| [ev(0, Op::Acquire(LockId(i % 16))), ev(0, Op::Release(LockId(i % 16)))])
        .collect();
    cases.push(("acq rel", v));
    let v = (0..n)
        .flat_map(|i| [ev(i % 4, Op::Acquire(LockId(0))), ev(i % 4, Op::Release(LockId(0)))])
        .collect();
    cases.push(("acq rel 4 threads", v));
    let v = (0..n).map(|i| ev(i % 4, Op::Write(VarId(i % 64)))).collect();
    cases.push(("4 threads writes, no dep", v));
    let v = (0..n).map(|i| ev(i % 4, Op::Write(VarId(i % 63)))).collect();
    cases.push(("4 threads writes, dep", v));
    let v = (0..n)
        .flat_map(|i| {
            [
                ev(i % 4, Op::Begin(RegionId(0))),
                ev(i % 4, Op::Acquire(LockId(0))),
                ev(i % 4, Op::Release(LockId(0))),
                ev(i % 4, Op::End(None)),
            ]
        })
        .collect();
    cases.push(("begin acq rel end", v));
    for (name, trace) in cases {
        let mut best = f64::MAX;
        for _ in 0..40 {
            let s = std::time::Instant::now();
            let mut c = Box::new(Davida::new(Options::default()));
            c.events(&trace).unwrap();
            std::hint::black_box(c.counts());
            best = best.min(s.elapsed().as_secs_f64() * 1e9 / trace.len() as f64);
        }
        println!("{name:30} {best:.2} ns");
    }
}
